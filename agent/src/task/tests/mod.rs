mod bench;
mod domain;
mod effects;
mod hostile;
mod journal;
mod kill;
