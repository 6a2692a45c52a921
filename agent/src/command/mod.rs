//! Orders of the provider (specification 000 "commands", protocol decision 11): verified with the task key that was
//! pinned at registration, written down before they are begun, carried out once over all restarts, acknowledged.

mod boot;
mod diagnostic;
mod journal;
mod outcome;
mod work;

use hpc_schema::code::Code;
use hpc_schema::command::{
    Acknowledgement, AcknowledgementStatus, Command, CommandScope, CommandType, MAX_ACKNOWLEDGEMENT_DETAIL,
    Parameters, verify_command,
};
use hpc_schema::key::ZebraVerifier;
use hpc_schema::refusal::Refusal;
use hpc_schema::time::UnixSeconds;

pub use boot::{boot, is_another};
pub use diagnostic::{Diagnostic, Facts, keep};
pub use journal::{Entry, Journal, OrderedDrain, Taken};
pub use outcome::Outcome;
pub use work::{End, Update, Work};

use crate::state::Registration;

/// Checks a command against the registration, and its parameters by its type.
///
/// # Errors
/// The refusal to acknowledge it with.
pub fn verify(
    command: &Command,
    registration: &Registration,
    now: u64,
) -> Result<(CommandType, Parameters), Refusal> {
    let Some(task_key) = &registration.task_public_key else {
        return Err(Refusal::field(
            Code::TaskSignatureInvalid,
            "commands.signature",
            "no task key was pinned at registration; register the node again with a token of a provider that has one",
        ));
    };
    let scope = CommandScope {
        chain_id: &registration.chain_id,
        contract: &registration.contract,
        cluster_id: &registration.cluster_id,
        node_id: &registration.node_id,
    };
    let kind = verify_command(command, &scope, task_key, UnixSeconds(now), &ZebraVerifier)?;
    let parameters = Parameters::parse(kind, &command.parameters)?;
    Ok((kind, parameters))
}

/// The acknowledgement of a command that was not begun.
#[must_use]
pub fn refused(command_id: &str, refusal: &Refusal) -> Acknowledgement {
    Acknowledgement {
        // Longer ones are malformed; the gateway gave none such.
        command_id: command_id.chars().take(64).collect(),
        status: AcknowledgementStatus::Refused,
        code: Some(refusal.code.as_str().to_owned()),
        detail: Some(detail(&refusal.message)),
        report: None,
    }
}

/// Printable and within the protocol's bound.
#[must_use]
pub fn detail(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(MAX_ACKNOWLEDGEMENT_DETAIL));
    for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
        if out.len().saturating_add(c.len_utf8()) > MAX_ACKNOWLEDGEMENT_DETAIL {
            break;
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_is_printable_and_cut_between_characters() {
        assert_eq!(detail("a\nb\u{7}c"), "a b c");
        let long = detail(&"ä".repeat(300));
        assert_eq!(long.len(), MAX_ACKNOWLEDGEMENT_DETAIL);
        assert!(long.chars().all(|c| c == 'ä'));
    }
}
