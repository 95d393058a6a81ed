//! The record of a job: which input goes to which output, and how far it came.
//!
//! It is kept in the store under the output's path and written in the batch that holds the window's claims, so that
//! claims, output and position can never disagree by more than what a restart cuts off.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{Before, GIVE_UP, Identity, Mark};
use super::lines::{Place, TooLong};
use super::report::Counts;

const FORMAT: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    format: u32,
    pub input: InputMark,
    /// Up to here the input is done.
    pub place: Place,
    /// Where that is inside a line that is too long.
    pub too_long: Option<TooLong>,
    /// Digest of the input's last bytes before the place.
    pub before: String,
    pub output: Mark,
    pub rejects: Option<Mark>,
    /// The input was read to its end.
    pub finished: bool,
    /// Up to this position the same input was read to its end before: rejected and unclaimed lines, of which no claim
    /// tells, have had their turn. A kill between the last commit and the exit makes it so, for example.
    pub read_before: u64,
    pub scope: String,
    /// How ids and times are picked, and the digest of that.
    pub recipe: String,
    pub recipe_digest: String,
    /// Since the input's beginning.
    pub counts: Counts,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputMark {
    /// Cannot be read again from a position.
    Stream {
        name: String,
    },
    File {
        path: String,
        identity: Identity,
    },
}

impl InputMark {
    pub fn name(&self) -> &str {
        match self {
            InputMark::Stream { name } => name,
            InputMark::File { path, .. } => path,
        }
    }

    fn same_input(&self, other: &InputMark) -> bool {
        match (self, other) {
            (InputMark::File { identity, .. }, InputMark::File { identity: other, .. }) => identity == other,
            (InputMark::Stream { .. }, InputMark::Stream { .. }) => true,
            _ => false,
        }
    }
}

/// Why the input is not read.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error(
        "{output} is the output of an unfinished job that reads {recorded} (line {line} is next); {given} is another \
         input{}: finish that job first; to give it up, {GIVE_UP}",
        replaced(recorded, given)
    )]
    OtherInput { output: String, recorded: String, given: String, line: u64 },
    #[error(
        "{input} was changed: what stands before byte {position}, up to where it was read, is not what was read; \
         restore it to go on; to read it from its beginning, {GIVE_UP}"
    )]
    InputChanged { input: String, position: u64 },
    #[error(
        "{output} was made with the {what} `{recorded}`, not with `{given}`: what was claimed so far means something \
         else; name another output, or {way_out}"
    )]
    OtherMeaning { output: String, what: &'static str, recorded: String, given: String, way_out: String },
    #[error(
        "the unfinished job that writes {output} has rejected lines in {recorded}, not in {given}: finish it as it was \
         begun, with --dead-letter {recorded}; to give it up, {GIVE_UP}"
    )]
    OtherRejects { output: String, recorded: String, given: String },
    #[error("the record of the job that writes {output} cannot be read; name another output")]
    Unreadable { output: String, source: serde_json::Error },
    #[error("the record of the job that writes {output} is of another version of semel; name another output")]
    Version { output: String },
}

/// One name, two files.
fn replaced(recorded: &str, given: &str) -> &'static str {
    if recorded == given { " (the file that was read had this name too, and was replaced)" } else { "" }
}

/// What a job is asked to do.
#[derive(Debug)]
pub struct Asked<'a> {
    pub input: &'a InputMark,
    /// None for a stream.
    pub input_file: Option<&'a File>,
    pub rejects: &'a Path,
    pub scope: &'a str,
    pub recipe: &'a str,
    pub recipe_digest: &'a str,
    /// The operator says that another recipe is meant.
    pub accept_recipe: bool,
}

/// Where to read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum From {
    /// A new feed, from the input's beginning: what was claimed before is a duplicate. Up to `read_before` the same input
    /// was read before.
    Beginning { read_before: u64 },
    /// The same feed, from where it stood.
    Recorded,
}

impl Job {
    /// The name of its record. `output`: absolute, links resolved.
    pub fn name(output: &Path) -> Vec<u8> {
        [b"pipe\0", output.as_os_str().as_bytes()].concat()
    }

    pub fn new(asked: &Asked<'_>, read_before: u64, output: Mark) -> Job {
        Job {
            format: FORMAT,
            input: asked.input.clone(),
            place: Place::START,
            too_long: None,
            before: Before::default().digest(),
            output,
            rejects: None,
            finished: false,
            read_before,
            scope: asked.scope.into(),
            recipe: asked.recipe.into(),
            recipe_digest: asked.recipe_digest.into(),
            counts: Counts::default(),
        }
    }

    /// The same job with ids and times picked as is asked for.
    pub fn meaning(self, asked: &Asked<'_>) -> Job {
        Job { recipe: asked.recipe.into(), recipe_digest: asked.recipe_digest.into(), ..self }
    }

    pub fn read(output: &Path, record: &[u8]) -> Result<Job, Refused> {
        let output = || output.display().to_string();
        let job: Job =
            serde_json::from_slice(record).map_err(|source| Refused::Unreadable { output: output(), source })?;
        if job.format == FORMAT { Ok(job) } else { Err(Refused::Version { output: output() }) }
    }

    pub fn write(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record of plain values is written")
    }

    /// Whether what is asked goes on with this job, begins the next feed of its output, or is refused.
    pub fn goes_on(&self, asked: &Asked<'_>) -> Result<From, Refused> {
        let output = || self.output.path.clone();
        let other = |what, recorded: &str, given: &str, way_out| Refused::OtherMeaning {
            output: output(),
            what,
            recorded: recorded.into(),
            given: given.into(),
            way_out,
        };
        if self.scope != asked.scope {
            return Err(other("scope", &self.scope, asked.scope, format!("say --scope {}", self.scope)));
        }
        if self.recipe_digest != asked.recipe_digest && !asked.accept_recipe {
            let accept = format!("accept the change with --accept-recipe {}", asked.recipe_digest);
            return Err(other("event id and time", &self.recipe, asked.recipe, accept));
        }
        let same_input = self.input.same_input(asked.input);
        let unchanged = |file| Before::read(file, self.place.position).is_ok_and(|now| now.digest() == self.before);
        if self.finished {
            let again = same_input && asked.input_file.is_some_and(unchanged);
            let read_before = if again { self.read_before.max(self.place.position) } else { 0 };
            return Ok(From::Beginning { read_before });
        }
        if !same_input {
            let (recorded, given) = (self.input.name().into(), asked.input.name().into());
            return Err(Refused::OtherInput { output: output(), recorded, given, line: self.place.line });
        }
        if let Some(rejects) = self.rejects.as_ref().filter(|mark| !mark.is_of(asked.rejects)) {
            let (recorded, given) = (rejects.path.clone(), asked.rejects.display().to_string());
            return Err(Refused::OtherRejects { output: output(), recorded, given });
        }
        match asked.input_file {
            // A stream begins where it begins: whoever sends it again sends what was claimed too.
            None => Ok(From::Beginning { read_before: 0 }),
            Some(file) if unchanged(file) => Ok(From::Recorded),
            Some(_) => {
                let input = asked.input.name().into();
                Err(Refused::InputChanged { input, position: self.place.position })
            }
        }
    }
}

/// The path under which an output is known: absolute, links resolved, whether or not it exists.
pub fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    if let Ok(resolved) = path.canonicalize() {
        return Ok(resolved);
    }
    let name = path.file_name().ok_or_else(|| std::io::Error::other("it names no file"))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(folder.canonicalize()?.join(name))
}
