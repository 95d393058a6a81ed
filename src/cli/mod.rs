//! The command line: one file per subcommand.

use std::process::ExitCode;

/// Parses the arguments, runs the subcommand, and says by the exit code how it ended.
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
