//! `virtengine-provider`: see `virtengine-provider --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests are freed by other threads than those that made them, which the system's allocator is slow at: a quarter of
/// the daemon's time under load.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The allocator asks for huge pages, of which most stay resident for little that is used: a quarter of the daemon's
    // memory, and no faster. A kernel without them refuses, which is as good.
    rustix::thread::disable_transparent_huge_pages(true).ok();
    ExitCode::from(virtengine_provider::cli::main())
}
