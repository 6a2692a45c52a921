//! `virtengine-provider`: see `virtengine-provider --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(virtengine_provider::cli::main())
}
