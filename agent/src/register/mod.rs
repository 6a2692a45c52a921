//! Registration: token and certificate request in, certificate and the chain's record out.

mod csr;
mod exchange;
mod install;

pub use csr::{Csr, CsrError};
pub use exchange::{Outcome, RegisterError, register, register_by};
