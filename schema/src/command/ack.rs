use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::code::Code;

/// Acknowledgements that one heartbeat may carry.
pub const MAX_ACKNOWLEDGEMENTS: usize = 16;
/// Longest `detail` of an acknowledgement in bytes; the gateway cuts what is longer.
pub const MAX_ACKNOWLEDGEMENT_DETAIL: usize = 256;

/// Longest `report` of an acknowledgement in bytes; a longer one is not sent, and not kept.
pub const MAX_ACKNOWLEDGEMENT_REPORT: usize = 8192;

/// What an agent says of a command that it was given; stands beside `heartbeat` and `auth` of its next heartbeat.
/// With the first one the gateway stops telling the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledgement {
    /// The command's `command_id`.
    #[schemars(length(min = 1, max = 64))]
    pub command_id: String,
    /// What became of it.
    pub status: AcknowledgementStatus,
    /// Why it was refused or failed; a code's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same for people, or a diagnostic's result; printable text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub detail: Option<String>,
    /// All that a diagnostic has found: a JSON object as text. One in a heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 8192))]
    pub report: Option<String>,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AcknowledgementStatus {
    /// Taken and under way; a later acknowledgement says how it ended.
    Accepted,
    /// Carried out.
    Done,
    /// Begun and not carried out.
    Failed,
    /// Not begun: signature, deadline, type or parameters do not allow it.
    Refused,
}

impl AcknowledgementStatus {
    /// The word in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }
}

impl Acknowledgement {
    /// The code, if this version knows it.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        self.code.as_deref().and_then(Code::from_word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_serde_agree_and_unknown_fields_are_ignored() {
        for status in [
            AcknowledgementStatus::Accepted,
            AcknowledgementStatus::Done,
            AcknowledgementStatus::Failed,
            AcknowledgementStatus::Refused,
        ] {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
        }
        let ack: Acknowledgement = serde_json::from_str(
            r#"{"command_id":"c1","status":"refused","code":"task_expired","tomorrow":1}"#,
        )
        .unwrap();
        assert_eq!(ack.code(), Some(Code::TaskExpired));
    }
}
