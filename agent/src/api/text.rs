//! Prometheus' text format: families with help and type, samples with labels, numbers without floats.

use std::fmt::Write as _;

/// A page of metrics.
#[derive(Debug, Default)]
pub(super) struct Page(String);

/// Kind of a family.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Gauge,
    Counter,
}

impl Page {
    /// A family; what has no sample is left away.
    pub(super) fn family<'a>(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Vec<(&'a str, String)>, Number)>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        let kind = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
        };
        // Writing to a String does not fail.
        write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n").ok();
        for (labels, value) in samples {
            self.0.push_str(name);
            for (i, (label, text)) in labels.iter().enumerate() {
                let before = if i == 0 { '{' } else { ',' };
                write!(self.0, "{before}{label}=\"{}\"", escaped(text)).ok();
            }
            if !labels.is_empty() {
                self.0.push('}');
            }
            writeln!(self.0, " {value}").ok();
        }
    }

    /// A family of one sample without labels; nothing if it is unknown.
    pub(super) fn one(&mut self, kind: Kind, name: &str, help: &str, value: Option<Number>) {
        self.family(kind, name, help, value.map(|v| (Vec::new(), v)));
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// A number in units of 10⁻ᵖ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    value: i128,
    places: u8,
}

impl Number {
    /// A whole number.
    pub(super) fn whole(value: impl Into<i128>) -> Self {
        Self {
            value: value.into(),
            places: 0,
        }
    }

    /// `value` in units of 10⁻`places`.
    pub(super) fn scaled(value: impl Into<i128>, places: u8) -> Self {
        Self {
            value: value.into(),
            places,
        }
    }

    /// 1 or 0.
    pub(super) fn flag(value: bool) -> Self {
        Self::whole(i128::from(value))
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = self.value.unsigned_abs();
        let scale = 10u128.checked_pow(u32::from(self.places)).unwrap_or(1);
        let sign = if self.value < 0 { "-" } else { "" };
        let (whole, part) = (
            digits.checked_div(scale).unwrap_or(digits),
            digits.checked_rem(scale).unwrap_or(0),
        );
        if self.places == 0 {
            return write!(f, "{sign}{whole}");
        }
        let part = format!("{part:0width$}", width = usize::from(self.places));
        match part.trim_end_matches('0') {
            "" => write!(f, "{sign}{whole}"),
            part => write!(f, "{sign}{whole}.{part}"),
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_labels_escaped() {
        for (number, text) in [
            (Number::scaled(16_500_000, 6), "16.5"),
            (Number::scaled(-70_500, 3), "-70.5"),
            (Number::scaled(-5, 2), "-0.05"),
            (Number::scaled(100, 2), "1"),
            (Number::whole(u64::MAX), "18446744073709551615"),
            (Number::flag(true), "1"),
        ] {
            assert_eq!(number.to_string(), text);
        }
        let mut page = Page::default();
        page.one(Kind::Gauge, "absent", "Nothing.", None);
        page.family(
            Kind::Counter,
            "a_total",
            "Things.",
            [(
                vec![("n", "a\"b\\c\nd".to_owned()), ("m", "x".to_owned())],
                Number::whole(3),
            )],
        );
        assert_eq!(
            page.finish(),
            "# HELP a_total Things.\n# TYPE a_total counter\na_total{n=\"a\\\"b\\\\c\\nd\",m=\"x\"} 3\n"
        );
    }
}
