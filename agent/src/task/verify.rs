use hpc_schema::bytes::base64_exact;
use hpc_schema::code::Code;
use hpc_schema::key::ZebraVerifier;
use hpc_schema::task::{Params, Task, TaskHash, TaskType, task_hash, task_message, verify_task};
use hpc_schema::time::UnixSeconds;

use super::authority::Authority;
use super::failure::Failure;
use super::handler::Handler;
use super::policy::Policy;

/// The handler of a type, if this version has one.
pub type Handlers = fn(TaskType) -> Option<&'static dyn Handler>;

/// The hash of a task as it was delivered, good or not; none if it has no nonce to hash.
#[must_use]
pub fn hash_of(task: &Task, authority: &Authority) -> Option<TaskHash> {
    let nonce = base64_exact::<16>(&task.nonce)?;
    Some(task_hash(&task_message(&authority.scope(), task, &nonce)))
}

/// Checks all of a task that this node does not know yet: signature, node, times, type, parameters, policy.
///
/// # Errors
/// Why it is refused.
pub fn check(
    task: &Task,
    authority: &Authority,
    policy: &Policy,
    handlers: Handlers,
    now: u64,
) -> Result<(&'static dyn Handler, Params), Failure> {
    let scope = authority.scope();
    let (kind, _) = verify_task(
        task,
        &scope,
        &authority.task_key,
        UnixSeconds(now),
        &ZebraVerifier,
    )?;
    let params = Params::parse(kind, &task.params)?;
    policy.allows(kind)?;
    let Some(handler) = handlers(kind) else {
        let what = format!("{kind} has no handler in this version; upgrade the agent");
        return Err(Failure::new(Code::UnknownType, what));
    };
    handler.allow(&params, policy)?;
    // This node's memory begins there; once too few is better than once too many.
    if kind.mutates() && task.issued_at.seconds().0 < authority.since {
        let what = "it was issued before this node's record of tasks begins; submit it again";
        return Err(Failure::new(Code::OutcomeUnknown, what));
    }
    Ok((handler, params))
}
