//! A file as the sink: its path, and what a line of it is.

use std::path::{Path, PathBuf};

const SCHEME: &str = "file:";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sink {
    pub path: PathBuf,
    /// A line is a JSON object of the whole message, else its value alone.
    pub records: bool,
}

impl Sink {
    /// `file:PATH`, `file:///PATH`, with `?format=value|record`.
    pub(super) fn parse(text: &str) -> Result<Sink, String> {
        let rest = text.strip_prefix(SCHEME).unwrap_or(text);
        let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
        let path = match path.strip_prefix("//") {
            None => path,
            Some(local) if local.starts_with('/') => local,
            Some(_) => return Err("a file is on no host: `file:PATH` or `file:///PATH`".to_owned()),
        };
        check_path(path)?;
        let records = match query {
            None | Some("format=value") => false,
            Some("format=record") => true,
            Some(other) => return Err(format!("`?{other}` is neither `?format=value` nor `?format=record`")),
        };
        Ok(Sink { path: path.into(), records })
    }
}

/// Of a file to append to.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    match Path::new(path).file_name() {
        Some(_) if !path.ends_with('/') => Ok(()),
        _ => Err(format!("`{path}` is no path of a file")),
    }
}
