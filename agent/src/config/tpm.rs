//! Section `agent.tpm` of the file.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use super::bounds::refuse;

/// What the TPM that seals the key does beside.
#[derive(Debug, Default, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tpm {
    /// Registers with a quote, so that the provider knows this machine's TPM again; default false.
    pub quote: bool,
    /// Which PCRs of the SHA-256 bank it is of; default 0 to 7 (firmware, boot loader, Secure Boot).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcrs: Option<Vec<u8>>,
}

/// The PCRs that a registration quotes, rising; none: it has no quote.
pub(super) fn resolve(section: Tpm) -> Result<Option<Vec<u8>>, ConfigError> {
    let mut pcrs = section.pcrs.unwrap_or_else(|| (0..8).collect());
    pcrs.sort_unstable();
    pcrs.dedup();
    if pcrs.is_empty() || pcrs.iter().any(|p| *p > 23) {
        return Err(refuse(
            "agent.tpm.pcrs",
            "must name at least one PCR, each from 0 to 23",
        ));
    }
    Ok(section.quote.then_some(pcrs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_of_the_first_eight_registers_unless_others_are_named_and_only_if_it_is_wanted() {
        let read = |text: &str| resolve(serde_yaml_ng::from_str(text).unwrap());
        assert_eq!(read("{}").unwrap(), None);
        assert_eq!(read("{pcrs: [1]}").unwrap(), None);
        assert_eq!(read("{quote: true}").unwrap(), Some((0..8).collect()));
        assert_eq!(read("{quote: true, pcrs: [7, 0, 7]}").unwrap(), Some(vec![0, 7]));
        for bad in ["{pcrs: []}", "{quote: true, pcrs: [24]}"] {
            assert!(
                read(bad).unwrap_err().to_string().contains("agent.tpm.pcrs"),
                "{bad}"
            );
        }
    }
}
