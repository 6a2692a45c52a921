//! What is checked before it is used: numbers against the policy, paths against the schema.

use std::path::Path;

use hpc_schema::code::Code;
use hpc_schema::task::HostPath;

use crate::task::failure::Failure;

pub(super) fn most(field: &str, value: u64, bound: u64, key: &str) -> Result<(), Failure> {
    if value <= bound {
        return Ok(());
    }
    let what = format!("{field}: is {value}, and machines.{key} of the policy is {bound}");
    Err(Failure::new(Code::PolicyDenied, what))
}

/// As the journal has it.
pub(super) fn text(path: &Path) -> Result<HostPath, Failure> {
    let refuse = |what: String| Failure::failed(format!("{}: {what}", path.display()));
    path.to_str()
        .ok_or_else(|| refuse("is no UTF-8".to_owned()))?
        .parse()
        .map_err(|e: hpc_schema::task::TextError| refuse(e.to_string()))
}
