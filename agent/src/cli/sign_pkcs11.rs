use std::io::{stdin, stdout};
use std::process::ExitCode;

use super::Failure;
use crate::key::pkcs11_helper;

/// `sign-pkcs11`.
pub(super) fn run() -> Result<ExitCode, Failure> {
    pkcs11_helper(stdin().lock(), stdout().lock())
        .map(|()| ExitCode::SUCCESS)
        .map_err(|e| Failure::new(1, e))
}
