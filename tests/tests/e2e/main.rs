//! The end-to-end suite: real processes, on the chain that `HPC_TEST_CHAIN` names.

mod attestation;
mod change_of_ca;
mod closing;
mod crash;
mod drain;
mod feegrant;
mod findings;
mod foreign;
mod identity;
mod onboarding;
mod once;
mod proof;
mod refusals;
mod task_key;
mod task_proof;
mod tasks;
mod visible;
