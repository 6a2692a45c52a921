//! The two databases behind one face: a statement is written once, with `?` or `?1` for its parameters, and runs on SQLite
//! as it stands and on PostgreSQL with `$1`. Statements keep to what both understand in the same way; where they differ
//! (`docs/adr/0022-two-stores.md`) it is said here and in the migrations, nowhere else.

mod conn;
mod dialect;
mod give_way;
pub(crate) mod many;
mod query;
mod row;
mod together;
mod transaction;
mod value;
mod writer;

pub use conn::{Conn, Held, Pool};

pub(crate) use give_way::give_way;
pub use query::{Done, Query, Target, query};
pub use row::{Get, Row};
pub use together::{Rows, each};
pub(crate) use together::{changes, rows};
pub use transaction::Transaction;
pub use value::Value;
pub(crate) use writer::Writer;
