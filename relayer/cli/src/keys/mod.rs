//! `keys`: the keyring.

mod command;
mod passphrase;

pub(crate) use command::run;
pub(crate) use passphrase::open;
