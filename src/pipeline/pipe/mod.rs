//! Lines from a file or a stream to a file or a stream, each event once, on one machine.
//!
//! **File to file: exactly once**, across kills at any moment. The claims of a window, the output's length and the
//! input's position are one batch of the embedded store, written after the output was synced ([`settle`]). A start
//! cuts the output back to the recorded length and reads on from the recorded position ([`job`], [`files`]); what is
//! not as it was recorded is refused, never overwritten.
//!
//! **From or to a stream: never lost**, as long as the sender repeats what was not answered for: a crash may repeat the
//! last window, since a stream has no length that could be cut back, and no position to go on from.
//!
//! Two threads: one reads, splits and keys ([`reader`]), the other judges, writes and commits. The store's folder and
//! the output are locked, so there is no second writer.
//!
//! Not handled: an input whose bytes are changed behind the position that was reached while it is read, and a file that
//! was changed more than 4 KiB before the recorded place without changing its length.

use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use self::files::{Before, KeptFile, NotOurs};
use self::input::Input;
use self::job::{Asked, From, InputMark, Job};
use self::keyer::{Cause, Keyer};
use self::output::Stream;
use self::reader::{Limits, Reader, Then, Window};
use self::recipe::Recipe;
use self::rejects::Rejects;
use self::report::{Causes, Counts, Summary};
use self::settle::{Scratch, SettleError, Settler};
use self::target::Target;
use crate::clock::SharedClock;
use crate::config::pipe::PipeConfig;
use crate::key::TimeRecipe;
use crate::source::split as lines;
use crate::store::StoreError;
use crate::store::embedded::{EmbeddedStore, OpenError};

pub mod files;
pub mod input;
pub mod job;
pub mod keyer;
pub mod output;
pub mod reader;
mod recipe;
pub mod rejects;
pub mod report;
pub mod settle;
mod target;

#[cfg(test)]
mod crash_tests;

#[derive(Debug, thiserror::Error)]
pub enum PipeError {
    #[error("cannot read {name}")]
    Input { name: String, source: io::Error },
    #[error("{} and {} are the same file", a.display(), b.display())]
    SameFile { a: PathBuf, b: PathBuf },
    #[error("{} lies in the claim store's own folder", path.display())]
    InStore { path: PathBuf },
    #[error(transparent)]
    File(#[from] NotOurs),
    #[error(transparent)]
    Job(#[from] job::Refused),
    #[error(
        "the scope `{scope}` was used with `{recorded}`, now it is `{given}`: its claims would mean something else; \
         name another scope, or accept the change with --accept-recipe {digest}"
    )]
    OtherRecipe { scope: String, recorded: String, given: String, digest: String },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error("no thread could be started")]
    Thread(#[source] io::Error),
    #[error("stopped before line {line} of {input} (byte {position}), as asked")]
    Stopped { input: String, line: u64, position: u64, source: Cause },
}

impl PipeError {
    /// Whether another command, and nothing else, would help.
    pub fn is_usage(&self) -> bool {
        match self {
            PipeError::SameFile { .. } | PipeError::InStore { .. } | PipeError::OtherRecipe { .. } => true,
            PipeError::File(file) => !matches!(file, NotOurs::Io { .. }),
            PipeError::Job(_) => true,
            PipeError::Input { .. }
            | PipeError::Open(_)
            | PipeError::Store(_)
            | PipeError::Settle(_)
            | PipeError::Thread(_)
            | PipeError::Stopped { .. } => false,
        }
    }
}

/// What is asked for.
pub struct Order<'a> {
    pub config: &'a PipeConfig,
    /// None: the standard input.
    pub input: Option<&'a Path>,
    /// None: the standard output.
    pub output: Option<&'a Path>,
    pub clock: SharedClock,
    /// The wish to end.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// How far a run has come, told after each window.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// In the input, in bytes.
    pub position: u64,
    /// Of the input, where it is known.
    pub length: Option<u64>,
    pub counts: Counts,
}

/// Reads the input to its end, or until it is asked to stop. Blocks.
pub fn run(order: &Order<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Summary, PipeError> {
    let name = order.input.map_or("standard input".into(), |path| path.display().to_string());
    let input = Input::open(order.input).map_err(|source| PipeError::Input { name, source })?;
    let target = Target::find(order.output, order.config.dead_letter.as_deref(), &order.config.folder)?;
    target.check(order.input, &input)?;
    let store = EmbeddedStore::open(&order.config.folder)?;
    let recipe = Recipe::of(order.config);
    recipe.check(&store)?;
    retire(order, &store)?;
    match target.output {
        Some(path) => to_file(order, input, &store, &recipe, path, target.rejects),
        None => to_stream(order, input, &store, &recipe, target.stream, target.rejects),
    }?
    .run(order, tell)
}

/// Drops the weeks whose events would be rejected as old. Undated events say nothing about weeks.
fn retire(order: &Order<'_>, store: &EmbeddedStore) -> Result<(), PipeError> {
    if *order.config.keys.extraction.time() != TimeRecipe::None {
        let (first_kept, _) = order.config.bounds.weeks(order.clock.now());
        for week in store.retire(first_kept)? {
            tracing::info!(%week, "claims of a week were dropped");
        }
    }
    Ok(())
}

/// Everything ready for the first window.
struct Ready<'a> {
    input: Input,
    settler: Settler<'a>,
    /// Its number in the store.
    scope: u32,
    went_on: bool,
    output_name: String,
}

fn to_file<'a>(
    order: &Order<'a>,
    mut input: Input,
    store: &'a EmbeddedStore,
    recipe: &Recipe<'_>,
    path: PathBuf,
    rejects: PathBuf,
) -> Result<Ready<'a>, PipeError> {
    let unread = |source| PipeError::Input { name: input.mark.name().into(), source };
    let asked = Asked {
        input: &input.mark,
        input_file: input.is_file().then_some(&input.file),
        rejects: &rejects,
        scope: order.config.scope.as_str(),
        recipe: &recipe.text,
        recipe_digest: &recipe.digest,
        accept_recipe: order.config.keys.accept_change,
    };
    let name = Job::name(&path);
    let recorded = store.note(&name)?.map(|record| Job::read(&path, &record)).transpose()?;
    let (from, finished, mark, rejects_mark) = match &recorded {
        Some(job) => (job.goes_on(&asked)?, job.finished, Some(&job.output), job.rejects.as_ref()),
        None => (From::Beginning { read_before: 0 }, true, None, None),
    };
    let file = mark.map(|mark| KeptFile::reopen(&path, mark, finished)).transpose()?.flatten();
    let rejects = Rejects::kept(rejects.clone(), rejects_mark, finished)?;
    let file = file.map_or_else(|| KeptFile::make(&path), Ok)?;
    if file.cut > 0 {
        tracing::info!(output = %path.display(), bytes = file.cut, "cut off what was not committed");
    }
    let mut job = match (from, recorded) {
        (From::Recorded, Some(job)) => job.meaning(&asked),
        (From::Beginning { read_before }, _) => Job::new(&asked, read_before, file.mark()),
        (From::Recorded, None) => Job::new(&asked, 0, file.mark()),
    };
    job.rejects = rejects.mark();
    let before = match job.place.position {
        0 => Before::default(),
        position => Before::read(&input.file, position).map_err(unread)?,
    };
    let mut draft = store.draft(order.clock.now())?;
    let scope = draft.scope(&order.config.scope);
    draft.note(&name, &job.write());
    draft.note(&recipe.name(), &recipe.record());
    draft.commit()?;
    let position = job.place.position;
    if input.is_file() {
        input
            .file
            .seek(SeekFrom::Start(position))
            .map_err(|source| PipeError::Input { name: input.mark.name().into(), source })?;
    }
    let settler = Settler {
        store,
        clock: order.clock.clone(),
        input: topic(&input.mark),
        output: Box::new(file),
        output_path: path.clone(),
        rejects,
        job: Some((name, job)),
        before,
        causes: Causes::default(),
        scratch: Scratch::default(),
    };
    Ok(Ready { input, settler, scope, went_on: position > 0, output_name: path.display().to_string() })
}

fn to_stream<'a>(
    order: &Order<'a>,
    input: Input,
    store: &'a EmbeddedStore,
    recipe: &Recipe<'_>,
    path: Option<PathBuf>,
    rejects: PathBuf,
) -> Result<Ready<'a>, PipeError> {
    let name = path.as_ref().map_or("standard output".into(), |path| path.display().to_string());
    let opened = path.as_deref().map_or_else(Stream::standard_output, Stream::open);
    let stream = opened.map_err(|source| NotOurs::Io { path: PathBuf::from(&name), source })?;
    let mut draft = store.draft(order.clock.now())?;
    let scope = draft.scope(&order.config.scope);
    draft.note(&recipe.name(), &recipe.record());
    draft.commit()?;
    let settler = Settler {
        store,
        clock: order.clock.clone(),
        input: topic(&input.mark),
        output: Box::new(stream),
        output_path: PathBuf::from(&name),
        rejects: Rejects::appended(rejects),
        job: None,
        before: Before::default(),
        causes: Causes::default(),
        scratch: Scratch::default(),
    };
    Ok(Ready { input, settler, scope, went_on: false, output_name: name })
}

/// What `semel why` names as a claim's origin.
fn topic(input: &InputMark) -> Arc<str> {
    input.name().into()
}

impl Ready<'_> {
    fn run(self, order: &Order<'_>, tell: &mut dyn FnMut(Progress)) -> Result<Summary, PipeError> {
        let Ready { input, mut settler, scope: scope_number, went_on, output_name } = self;
        let begin = Instant::now();
        let (name, length) = (input.mark.name().to_owned(), input.length);
        let job = settler.job.as_ref().map(|(_, job)| job);
        let (place, too_long) = job.map_or((lines::Place::START, None), |job| (job.place, job.too_long));
        let limits = Limits { lines_max: order.config.messages_max, bytes_max: order.config.bytes_max };
        let keyer = Keyer::new(order.config, order.clock.clone(), scope_number);
        let (mut counts, mut bytes) = (Counts::default(), 0);
        // A reader that waits for a quiet stream must hear of an error on this side.
        let over = AtomicBool::new(false);
        let stop = || over.load(Ordering::Relaxed) || (order.stop)();
        let mut settle_all = |arriving: Receiver<io::Result<Window>>, giving_back: Sender<Vec<u8>>| {
            for window in arriving {
                let window = window.map_err(|source| PipeError::Input { name: name.clone(), source })?;
                counts.add(&settler.settle(&window)?);
                bytes += window.length() as u64;
                tell(Progress { position: window.ends.position, length, counts });
                let Window { bytes: buffer, ends, then, .. } = window;
                match then {
                    Then::More => drop(giving_back.try_send(buffer)),
                    Then::End => return Ok(false),
                    Then::Interrupted => return Ok(true),
                    Then::Stop(source) => {
                        let (line, position) = (ends.line, ends.position);
                        return Err(PipeError::Stopped { input: name.clone(), line, position, source });
                    }
                }
            }
            Ok(true)
        };
        let interrupted = std::thread::scope(|scope| {
            let (windows, arriving) = bounded(1);
            let (giving_back, used) = bounded(2);
            let reader = Reader::new(input, place, too_long, &keyer, limits, &stop);
            let name = "reader".to_owned();
            let started =
                std::thread::Builder::new().name(name).spawn_scoped(scope, move || reader.run(&windows, &used));
            started.map_err(PipeError::Thread)?;
            let ended = settle_all(arriving, giving_back);
            over.store(true, Ordering::Relaxed);
            ended
        })?;
        let in_all = settler.job.as_ref().filter(|_| went_on).map(|(_, job)| job.counts);
        Ok(Summary {
            input: name,
            output: output_name,
            rejects: settler.rejects.path().display().to_string(),
            counts,
            bytes,
            took: begin.elapsed(),
            in_all,
            causes: settler.causes,
            interrupted,
        })
    }
}
