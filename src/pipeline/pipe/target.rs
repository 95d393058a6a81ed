//! Where lines are to go, and whether they may.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::PipeError;
use super::files::{Identity, NotOurs};
use super::input::Input;
use super::job::resolved;
use super::output::Stream;

/// Where rejected lines go beside a stream.
const REJECTS_BESIDE_STREAM: &str = "semel-rejected.ndjson";

/// Where lines go, before anything is opened for writing.
pub struct Target {
    /// A regular file, or one that is to be made.
    pub output: Option<PathBuf>,
    /// Another path that can be written to.
    pub stream: Option<PathBuf>,
    pub rejects: PathBuf,
}

impl Target {
    pub fn find(output: Option<&Path>, rejects: Option<&Path>, store: &Path) -> Result<Target, PipeError> {
        let io = |path: &Path, source| PipeError::File(NotOurs::Io { path: path.into(), source });
        let is_stream = output.is_none_or(|path| std::fs::metadata(path).is_ok_and(|found| !found.is_file()));
        let file = output.filter(|_| !is_stream);
        let file = file.map(|path| resolved(path).map_err(|source| io(path, source))).transpose()?;
        let rejects = match (rejects, &file) {
            (Some(path), _) => path.to_owned(),
            (None, Some(output)) => {
                let mut name = output.clone().into_os_string();
                name.push(".rejected");
                name.into()
            }
            (None, None) => PathBuf::from(REJECTS_BESIDE_STREAM),
        };
        let rejects = resolved(&rejects).map_err(|source| io(&rejects, source))?;
        if let Ok(store) = store.canonicalize()
            && let Some(path) = file.iter().chain([&rejects]).find(|path| path.starts_with(&store))
        {
            return Err(PipeError::InStore { path: path.clone() });
        }
        Ok(Target { output: file, stream: output.filter(|_| is_stream).map(Path::to_owned), rejects })
    }

    /// Refuses one file in two parts.
    pub fn check(&self, input_path: Option<&Path>, input: &Input) -> Result<(), PipeError> {
        let same = |a: &Path, b: &Path| PipeError::SameFile { a: a.into(), b: b.into() };
        let of_path = |path: &PathBuf| std::fs::metadata(path).ok().and_then(|found| regular(&found));
        let output = match &self.output {
            Some(path) => of_path(path),
            None => Stream::standard_output().and_then(|out| out.file().metadata()).ok().and_then(|out| regular(&out)),
        };
        let rejects = of_path(&self.rejects);
        let read = input.file.metadata().ok().and_then(|found| regular(&found));
        let input_path = input_path.unwrap_or(Path::new("standard input"));
        let output_path = self.output.as_deref().unwrap_or(Path::new("standard output"));
        if read.is_some() && read == output {
            return Err(same(input_path, output_path));
        }
        if read.is_some() && read == rejects {
            return Err(same(input_path, &self.rejects));
        }
        if self.output.as_ref() == Some(&self.rejects) || (output.is_some() && output == rejects) {
            return Err(same(output_path, &self.rejects));
        }
        Ok(())
    }
}

fn regular(found: &std::fs::Metadata) -> Option<Identity> {
    found.is_file().then(|| Identity { device: found.dev(), inode: found.ino() })
}
