//! The only place that sees source, store and sink together.

pub(crate) mod causes;
pub mod ingest;
pub mod leased;
pub mod operator;
pub mod pipe;
pub mod preflight;
pub mod retention;
pub mod settled;
mod slots;
pub mod transactional;

/// `1 claim`, `2 claims`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// An error and its causes in one line, for the log.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}
