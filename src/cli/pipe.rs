//! `semel pipe [IN] [OUT]`: lines from a file or a stream, each event once.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgMatches, Command, value_parser};
use indicatif::{ProgressBar, ProgressStyle};

use super::{EXIT_USAGE, Subcommand, flags, signals};
use crate::clock::SystemClock;
use crate::config::pipe::PipeConfig;
use crate::config::reader;
use crate::pipeline::chain;
use crate::pipeline::pipe::report::grouped;
use crate::pipeline::pipe::{self, Order, Progress};
use crate::telemetry;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const ABOUT: &str = "Reads lines (NDJSON) and lets each event through once, on this machine alone";

/// A paragraph is one line, which is folded to the terminal's width.
const NOTES: &str = "\
From file to file each event comes out exactly once, even if semel is killed: run the same command again and it goes on \
where it was.

From or to a stream nothing is lost, and after a crash the last window may come out twice. Send the stream again from \
its beginning: what was forwarded is known. What stood in a pipe when semel was ended must be sent again.

Claims stay in the store's folder, so that yesterday's file fed again yields nothing. An output that exists and was not \
written by the same store is refused, never overwritten; so is another input while a job is unfinished. To give an \
unfinished job up, name another output: it gets what was not claimed yet, or everything if another --store is named as \
well.

Lines are forwarded byte for byte; a last line without its end gets one. The `\\r` of a `\\r\\n` is not part of the \
event. Empty lines are skipped and counted. Lines without an id, that are not UTF-8 or longer than 16 MiB go to \
OUT.rejected (beside a stream ./semel-rejected.ndjson), or where --dead-letter says, with their place and the cause.

Exit codes: 0 the input was read to its end; 1 failed, or there were lines and every one was rejected; 64 refused; \
129, 130 or 143 ended by a signal (hang-up, Ctrl-C, SIGTERM).";

fn declare() -> Command {
    let path = |name: &'static str, shown: &'static str, help: &'static str| {
        Arg::new(name).value_name(shown).help(help).value_parser(value_parser!(PathBuf))
    };
    let command = Command::new("pipe")
        .about(ABOUT)
        .after_long_help(NOTES)
        .arg(path("in", "IN", "File to read; the standard input without it or with -"))
        .arg(path("out", "OUT", "File to write; the standard output without it or with -"));
    flags::with_settings(command, reader::Command::Pipe)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = PipeConfig::of(flags::given(matches))?;
    // Nobody scrapes it: it lives as long as its input.
    let _metrics = telemetry::set_up(&config.log)?;
    signals::listen();
    let path = |name| matches.get_one::<PathBuf>(name).map(PathBuf::as_path).filter(|path| *path != Path::new("-"));
    let order = Order {
        config: &config,
        input: path("in"),
        output: path("out"),
        clock: Arc::new(SystemClock),
        stop: &|| signals::asked().is_some(),
    };
    let bar = Bar::new();
    let ended = pipe::run(&order, &mut |progress| bar.tell(&progress));
    bar.end();
    match ended {
        Ok(summary) => {
            // Nothing can be told to whom does not listen.
            let _ = write!(std::io::stderr(), "{summary}");
            if let Some(signal) = signals::asked().filter(|_| summary.interrupted) {
                return Ok(ExitCode::from(signals::exit_code(signal)));
            }
            let Some(problem) = summary.all_rejected() else { return Ok(ExitCode::SUCCESS) };
            eprintln!("semel: {problem}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) if error.is_usage() => {
            eprintln!("semel: {}", chain(&error));
            Ok(ExitCode::from(EXIT_USAGE))
        }
        Err(error) => {
            eprintln!("semel: {}", chain(&error));
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Shown on a terminal only.
struct Bar(Option<ProgressBar>);

impl Bar {
    fn new() -> Bar {
        Bar(std::io::stderr().is_terminal().then(|| ProgressBar::new(0)))
    }

    fn tell(&self, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        let Progress { position, length, counts } = progress;
        if let Some(length) = length.filter(|length| bar.length() != Some(*length)) {
            // The style first: each of these draws.
            bar.set_style(style("[{bar:30}] {bytes}/{total_bytes}, {eta} left  {msg}"));
            bar.set_length(length);
        } else if length.is_none() {
            bar.set_style(style("{spinner} {bytes}  {msg}"));
        }
        bar.set_message(format!("{} read, {} duplicates", grouped(counts.read), grouped(counts.duplicates)));
        bar.set_position(*position);
    }

    fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}
