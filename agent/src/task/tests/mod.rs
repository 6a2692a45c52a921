mod bench;
mod domain;
mod effects;
mod journal;
