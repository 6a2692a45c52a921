//! `virtengine-provider`: see `virtengine-provider --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests are freed by other threads than those that made them, which the system's allocator is slow at: a quarter of
/// the daemon's time under load.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    ExitCode::from(virtengine_provider::cli::main())
}
