//! The end-to-end suite: real processes, on the chain that `HPC_TEST_CHAIN` names.

mod closing;
mod crash;
mod drain;
mod feegrant;
mod foreign;
mod identity;
mod onboarding;
mod once;
mod proof;
mod refusals;
mod tasks;
