//! `semel completions`: what a shell needs to complete commands and flags.

use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

use super::Subcommand;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

fn declare() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell));
    Command::new("completions").about("Writes a shell's completions to stdout").arg(shell)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, &mut super::command(), "semel", &mut std::io::stdout());
    }
    Ok(ExitCode::SUCCESS)
}
