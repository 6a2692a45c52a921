pub(in crate::task) mod bench;
mod domain;
mod effects;
mod hostile;
mod journal;
mod kill;
mod leftovers;
mod races;
mod safety;
