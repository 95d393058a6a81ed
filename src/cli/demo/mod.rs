//! `semel demo`: shows that the job comes out exact although it is killed on its way.
//!
//! Everything is real: the stream is a file, the job is `semel pipe` as a child process on the embedded store, a kill is
//! a SIGKILL at a random moment, and the proof reads the two files and nothing else. A kill counts only if the child
//! died of it. Nothing is left behind, after Ctrl-C neither; what a killed demo leaves is removed by the next one.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command, value_parser};

use self::child::{Ended, Files};
use self::folder::Folder;
use self::proof::Finding;
use self::stream::{Random, Sent};
use super::{Subcommand, signals};
use crate::pipeline::pipe::report::grouped;

mod child;
mod folder;
mod proof;
mod stream;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

/// Longest time between a length that is seen and the kill: the time of one window, so that every step is hit.
const PAUSE_MAX: Duration = Duration::from_millis(60);
/// Kills fall within this part of the work, in thousandths, so that they find something to interrupt.
const KILLS_WITHIN: (u64, u64) = (20, 850);

/// Windows that the job makes of the stream.
const WINDOWS: u64 = 60;

fn declare() -> Command {
    let number = |name: &'static str, help: &'static str| Arg::new(name).long(name).value_name("number").help(help);
    Command::new("demo")
        .about("Shows it: a stream with duplicates, a job that is killed on its way, and a proof of the result")
        .arg(
            number("messages", "Lines of the stream")
                .value_parser(value_parser!(u64).range(1_000..=20_000_000))
                .default_value("600000"),
        )
        .arg(number("kills", "Kills on the way").value_parser(value_parser!(u64).range(0..=1_000)).default_value("5"))
        .arg(number("seed", "Repeats a stream and its kills").value_parser(value_parser!(u64)))
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let number = |name: &str| matches.get_one::<u64>(name).copied();
    let seed = match number("seed") {
        Some(seed) => seed,
        None => u64::from(getrandom::u32().context("the system has no randomness")?),
    };
    let (messages, kills) = (number("messages").unwrap_or(0), number("kills").unwrap_or(0));
    signals::listen();
    let folder = Folder::make()?;
    let ended = show(
        &mut io::stdout(),
        &Files { folder: folder.path.clone(), window: (messages / WINDOWS).clamp(100, 50_000) },
        messages,
        kills,
        seed,
    );
    drop(folder);
    match (ended?, signals::asked()) {
        (None, signal) => Ok(ExitCode::from(signals::exit_code(signal.unwrap_or(libc::SIGINT)))),
        (Some(true), _) => Ok(ExitCode::SUCCESS),
        (Some(false), _) => Ok(ExitCode::FAILURE),
    }
}

/// Whether the proof holds. None: interrupted.
fn show(out: &mut impl Write, files: &Files, messages: u64, kills: u64, seed: u64) -> anyhow::Result<Option<bool>> {
    let stopped = || signals::asked().is_some();
    writeln!(out, "Semel lets each event through once. This shows it, on this machine alone (seed {seed}).\n")?;

    let file = File::create(files.sent()).context("cannot write the stream")?;
    let sent = stream::write(&mut BufWriter::with_capacity(1 << 20, file), messages, seed, stopped)?;
    if stopped() {
        return Ok(None);
    }
    let repeated = sent.lines - sent.distinct;
    writeln!(out, "1. A stream of {} events in a file, {} MB.", grouped(sent.lines), sent.bytes / 1_000_000)?;
    writeln!(out, "   {} of them repeat an event that was sent before.\n", grouped(repeated))?;

    writeln!(out, "2. `semel pipe` forwards each event once, from file to file. It is killed on its way (SIGKILL)")?;
    writeln!(out, "   and started again, with nothing but its files to go on from:")?;
    let Some((killed, took)) = work(out, files, &sent, kills, seed)? else { return Ok(None) };
    let rate = sent.lines as f64 / took.as_secs_f64().max(1e-9);
    let (seconds, rate) = (took.as_secs_f64(), grouped(rate as u64));
    writeln!(out, "     finished    after {seconds:.1} s, all starts included: {rate} events/s\n")?;

    writeln!(out, "3. The proof reads both files and knows nothing of Semel's own records:")?;
    let open = |path| Ok::<_, io::Error>(BufReader::with_capacity(1 << 20, File::open(path)?));
    let finding = proof::compare(open(files.sent())?, open(files.forwarded())?)?;
    if stopped() {
        return Ok(None);
    }
    tell(out, &finding, killed, kills)?;
    Ok(Some(finding.is_exact() && (killed > 0 || kills == 0)))
}

/// Runs the job to its end. Answers how often it was killed, and how long it ran in all.
fn work(
    out: &mut impl Write,
    files: &Files,
    sent: &Sent,
    kills: u64,
    seed: u64,
) -> anyhow::Result<Option<(u64, Duration)>> {
    let mut random = Random(!seed);
    let (first, last) = KILLS_WITHIN;
    let mut moments: Vec<u64> = (0..kills).map(|_| first + random.below(last - first)).collect();
    moments.sort_unstable();
    let (mut killed, mut took) = (0, Duration::ZERO);
    loop {
        let pause = Duration::from_micros(random.below(PAUSE_MAX.as_micros() as u64));
        let kill = moments.get(killed as usize).map(|moment| (sent.distinct_bytes * moment / 1000, pause));
        let begin = Instant::now();
        let ended = child::start(files, kill, || signals::asked().is_some()).context("cannot run the job")?;
        took += begin.elapsed();
        match ended {
            Ended::Finished => return Ok(Some((killed, took))),
            Ended::Interrupted => return Ok(None),
            Ended::Killed(length) => {
                killed += 1;
                let percent = length * 100 / sent.distinct_bytes.max(1);
                writeln!(out, "     killed      with {percent:>2} % of the output written")?;
            }
            // Ctrl-C reaches the child too.
            Ended::Failed(_) if signals::asked().is_some() => return Ok(None),
            Ended::Failed(status) => bail!("the job failed ({status}):\n{}", child::last_words(&files.log())),
        }
    }
}

fn tell(out: &mut impl Write, finding: &Finding, killed: u64, kills: u64) -> io::Result<()> {
    let mut line = |name: &str, number: u64| writeln!(out, "     {name:<13}{:>12}", grouped(number));
    line("sent", finding.sent)?;
    line("distinct", finding.distinct)?;
    line("forwarded", finding.forwarded)?;
    line("lost", finding.lost)?;
    line("doubled", finding.doubled)?;
    line("altered", finding.altered)?;
    line("out of order", finding.out_of_order)?;
    if finding.unknown > 0 {
        line("unknown", finding.unknown)?;
    }
    if !finding.is_exact() {
        writeln!(out, "\nThe result is WRONG.")
    } else if killed == 0 && kills > 0 {
        writeln!(out, "\nThe result is right, but the job was done before it could be killed: this proves little.")
    } else {
        writeln!(out, "\nEvery event came through once, its first copy, in order, over {killed} kills.")
    }
}
