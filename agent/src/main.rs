use std::process::ExitCode;

fn main() -> ExitCode {
    virtengine_node_agent::cli::main()
}
