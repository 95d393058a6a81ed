//! `semel config`: the settings there are, and those that hold.

use std::io::{Write, stdout};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::{Subcommand, flags};
use crate::config::values::Values;
use crate::config::{ConfigError, reader, schema};

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

fn declare() -> Command {
    let markdown = Arg::new("markdown").long("markdown").action(ArgAction::SetTrue).help("As the table in README");
    let schema = Command::new("schema").about("Lists every setting, as JSON").arg(markdown);
    let show = Command::new("show").about("Shows the settings of `semel run` that hold, and where each comes from");
    Command::new("config")
        .about("Shows settings")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(schema)
        .subcommand(flags::with_listed(show, reader::Command::Run, &flags::AS_RUN))
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        // Not by the macros, which panic where nobody reads on.
        Some(("schema", matches)) if matches.get_flag("markdown") => write!(stdout(), "{}", schema::markdown())?,
        Some(("schema", _)) => writeln!(stdout(), "{:#}", schema::json())?,
        Some((_, matches)) => {
            let (values, problems) = Values::gather(flags::given(matches));
            let shown = schema::show(&values, reader::Command::Run);
            let width = |of: fn(&schema::Shown) -> &str| shown.iter().map(|shown| of(shown).len()).max().unwrap_or(0);
            let (names, texts) = (width(|shown| &shown.name), width(|shown| &shown.value).min(60));
            for schema::Shown { name, value, origin } in &shown {
                writeln!(stdout(), "{name:names$}  {value:texts$}  {origin}")?;
            }
            if !problems.is_empty() {
                return Err(ConfigError(problems).into());
            }
        }
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}
