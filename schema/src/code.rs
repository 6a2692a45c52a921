//! The closed list of machine-readable refusal codes: the same words in gateway, contract and command line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $num:literal, $text:literal, $remedy:literal;)*) => {
        /// A stable refusal or notice code. The numbers are the contract's compact form and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code {
            $($(#[$doc])* $name = $num,)*
        }

        impl Code {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word that stands in JSON, events and logs.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What the reader should do about it.
            #[must_use]
            pub fn remedy(self) -> &'static str {
                match self { $(Self::$name => $remedy,)* }
            }

            /// The compact number used in batch outcomes.
            #[must_use]
            pub fn number(self) -> u8 {
                match self { $(Self::$name => $num,)* }
            }

            /// The code with this number.
            #[must_use]
            pub fn from_number(n: u8) -> Option<Self> {
                match n { $($num => Some(Self::$name),)* _ => None }
            }

            /// The code with this word.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($text => Some(Self::$name),)* _ => None }
            }
        }
    };
}

codes! {
    /// No such node on record.
    UnknownNode = 1, "unknown_node", "register the node first";
    /// Several clusters have a node with this id.
    AmbiguousNode = 2, "ambiguous_node", "name the cluster with --cluster-id";
    /// The cluster named is not the node's.
    ClusterMismatch = 3, "cluster_mismatch", "set node.cluster_id to the cluster that the node is registered in";
    /// The cluster has not been activated; the report counts, the node stays PENDING.
    ClusterInactive = 4, "cluster_inactive", "activate the cluster: virtengine tx hpc activate-cluster";
    /// The key is not the registered one.
    KeyMismatch = 5, "key_mismatch", "re-register the node with its present public key";
    /// Path, body and certificate do not name the same node.
    IdentityMismatch = 6, "identity_mismatch", "use the certificate issued to this node";
    /// Another live node has this hardware fingerprint.
    DuplicateHardware = 7, "duplicate_hardware", "deregister the other node, or correct the fingerprint";
    /// A signature does not verify.
    SignatureInvalid = 8, "signature_invalid", "sign the exact bytes that are sent, with the registered key";
    /// The heartbeat carries no report for the chain.
    ReportMissing = 9, "report_missing", "send auth.report and auth.report_signature";
    /// Report and payload disagree.
    ReportMismatch = 10, "report_mismatch", "derive the report from the payload that is sent";
    /// The nonce is not base64 of 16 bytes.
    NonceInvalid = 11, "nonce_invalid", "draw 16 random bytes for each heartbeat";
    /// The nonce was seen before.
    NonceReused = 12, "nonce_reused", "draw a fresh nonce";
    /// The sequence number is not above the recorded one.
    StaleSequence = 13, "stale_sequence", "continue above the acknowledged sequence number";
    /// The sequence number is 0 or above 2^32-1.
    InvalidSequence = 14, "invalid_sequence", "use a sequence number from 1 to 4294967295";
    /// The second section is needed and absent.
    SectionMissing = 15, "section_missing", "send the section again";
    /// More than five minutes old.
    TimestampExpired = 16, "timestamp_expired", "synchronise the node's clock (NTP)";
    /// More than one minute ahead.
    TimestampInFuture = 17, "timestamp_in_future", "synchronise the node's clock (NTP)";
    /// A capacity figure is out of range.
    InvalidCapacity = 18, "invalid_capacity", "correct the field named";
    /// A health figure is out of range.
    InvalidHealth = 19, "invalid_health", "correct the field named";
    /// The node has been deregistered.
    NodeDeregistered = 20, "node_deregistered", "register the node again";
    /// The operator has disabled the node at the gateway.
    NodeDisabled = 21, "node_disabled", "ask the operator: virtengine-provider node enable";
    /// The registration token has expired.
    TokenExpired = 22, "token_expired", "create a new token: virtengine-provider node-token create, or node-token join for a join token";
    /// The registration token was used with another key or CSR.
    TokenUsed = 23, "token_used", "create a new token: virtengine-provider node-token create, or node-token join for a join token";
    /// The registration token is malformed, revoked or not ours.
    TokenInvalid = 24, "token_invalid", "create a new token: virtengine-provider node-token create, or node-token join for a join token";
    /// The task's time is over.
    TaskExpired = 25, "task_expired", "submit the task again";
    /// A task or command is not signed by the cluster's task key.
    TaskSignatureInvalid = 26, "task_signature_invalid", "sign with the cluster's task key";
    /// The node's mode does not allow this task.
    WrongMode = 27, "wrong_mode", "change the node's mode or send another task";
    /// Too many requests.
    RateLimited = 28, "rate_limited", "wait for the time that Retry-After names";
    /// The body is larger than the limit.
    BodyTooLarge = 29, "body_too_large", "send less";
    /// A version byte is unknown.
    UnsupportedVersion = 30, "unsupported_version", "upgrade the older side";
    /// Signed with the key of an earlier registration.
    SupersededByRotation = 31, "superseded_by_rotation", "sign with the key of the present registration";
    /// The sender may not do this.
    NotAuthorized = 32, "not_authorized", "send as the cluster's owner, an operator or the admin";
    /// Bytes that cannot be read.
    Malformed = 33, "malformed", "see docs/protocol.md for the layout";
    /// The same node twice in one batch.
    DuplicateNode = 34, "duplicate_node", "send one report a node in a batch";
    /// No cluster with this id.
    UnknownCluster = 35, "unknown_cluster", "create the cluster first: virtengine tx hpc create-cluster";
    /// The cluster id is taken.
    ClusterExists = 36, "cluster_exists", "choose another cluster id";
    /// The registration nonce was used before.
    RegistrationNonceUsed = 37, "registration_nonce_used", "sign the identity with a fresh registration_nonce";
    /// The registration timestamp is outside 24 hours of block time.
    RegistrationExpired = 38, "registration_expired", "sign the identity again with the present time";
    /// Registrations are paused by the admin.
    RegistrationsPaused = 39, "registrations_paused", "try again when the contract's admin lifts the pause";
    /// The batch holds no report, or more than the limit.
    InvalidBatch = 40, "invalid_batch", "send 1 to batch_limit reports";
    /// A parameter is out of range or order.
    InvalidParams = 41, "invalid_params", "see the ranges in docs/protocol.md";
    /// The transition is not allowed from the present state.
    InvalidState = 42, "invalid_state", "see the lifecycle in docs/protocol.md";
    /// A live node is registered under this id with another key.
    NodeExists = 43, "node_exists", "rotate the key with the old key's signature, or deregister the node first";
    /// A text field is too long or holds a character that identity strings may not hold.
    InvalidField = 44, "invalid_field", "correct the field named";
    /// The deposit is missing or of another amount.
    InvalidDeposit = 45, "invalid_deposit", "send exactly the deposit that params name";
    /// The node has other work on the chain that must settle first.
    RegistrationPending = 46, "registration_pending", "repeat the same request after Retry-After";
    /// The gateway cannot answer now.
    Unavailable = 47, "unavailable", "repeat the request after Retry-After; see the gateway's log if it lasts";
    /// A task of a type that is not in the catalogue.
    UnknownType = 60, "unknown_type", "use a type that virtengine-provider task catalog lists; upgrade the agent if it is new";
    /// The node's own policy does not allow the task.
    PolicyDenied = 61, "policy_denied", "ask the site for it: tasks.policy on the node decides";
    /// It cannot be established what a task has done.
    OutcomeUnknown = 62, "outcome_unknown", "look at the findings in the result and at the host before anything is let again";
    /// No such task of this node on record.
    UnknownTask = 63, "unknown_task", "use the id that task list shows";
    /// The id is that of another task, or the result of another.
    TaskMismatch = 64, "task_mismatch", "use a fresh task id for each task";
    /// A newer connection of the same node waits for its tasks.
    SessionSuperseded = 65, "session_superseded", "run one task agent a node";
    /// The agent was interrupted; what the task had done is undone.
    TaskInterrupted = 66, "task_interrupted", "submit the task again";
    /// The task was taken back.
    TaskCancelled = 67, "task_cancelled", "submit the task again if it was a mistake";
    /// The task took longer than its type may.
    TaskTimeout = 68, "task_timeout", "see the detail and the node's log";
    /// A handler could not do its work; what it had done is undone.
    TaskFailed = 69, "task_failed", "see the detail and the node's log";
    /// What the task wants is held by another, or there and not ours.
    ResourceBusy = 70, "resource_busy", "release what holds it first; the detail names it";
    /// The host lacks what the task needs.
    NotSupported = 71, "not_supported", "see the detail for what is missing";
    /// A file is not the one that its digest names.
    DigestMismatch = 72, "digest_mismatch", "fetch the image again, or correct the digest";
    /// The task waits for approval, or was given it already.
    ApprovalRequired = 73, "approval_required", "virtengine-provider task approve";
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_serde_agree() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(code.number()), Some(*code));
            assert_eq!(Code::from_word(code.as_str()), Some(*code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
