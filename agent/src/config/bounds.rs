//! Values and their bounds.

use std::fmt::Display;
use std::time::Duration;

use super::ConfigError;
use super::duration::HumanDuration;

pub(super) fn refuse(key: &'static str, message: impl Display) -> ConfigError {
    ConfigError::Value {
        key,
        message: message.to_string(),
    }
}

pub(super) fn within(
    key: &'static str,
    value: Option<HumanDuration>,
    default: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, ConfigError> {
    let value = value.map_or(default, |d| d.0);
    let shown = |d| HumanDuration(d).to_string();
    if value < least {
        return Err(refuse(
            key,
            format_args!("{} is below the minimum of {}", shown(value), shown(least)),
        ));
    }
    if value > most {
        return Err(refuse(
            key,
            format_args!("{} is above the maximum of {}", shown(value), shown(most)),
        ));
    }
    Ok(value)
}

pub(super) fn number(
    key: &'static str,
    value: Option<u32>,
    default: u32,
    least: u32,
    most: u32,
) -> Result<u32, ConfigError> {
    let value = value.unwrap_or(default);
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(refuse(key, format_args!("must be {least} to {most}, is {value}")))
    }
}
