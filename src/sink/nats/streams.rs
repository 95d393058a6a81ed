//! The streams that hold the sink's subjects: that they are there, acknowledge, and remember keys for long enough.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{GetStreamByNameErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, Info};

use super::NatsOptions;
use crate::sink::{Cause, SinkError};

/// Of streams that Semel makes.
const OWN_WINDOW: Duration = Duration::from_secs(120);
/// By its description a stream is known for one that Semel made.
const OWN: &str = "made by semel";

/// Asks the server about every subject; makes what is missing where that is wanted, and brings its own streams up to
/// the window that they need. One to three round trips for each subject.
pub(super) async fn check(context: &Context, options: &NatsOptions) -> Result<(), SinkError> {
    if let Some(name) = &options.create {
        create(context, options, name).await?;
    }
    for subject in options.subjects() {
        let stream = holder(context, subject).await?;
        let stream = stream.ok_or_else(|| refused(Problem::NoStream { subject: subject.to_owned() }))?;
        if let Some(right) = options.stream.as_ref().filter(|right| **right != stream) {
            let (subject, right) = (subject.to_owned(), right.clone());
            return Err(refused(Problem::OtherStream { subject, stream, right }));
        }
        judge(context, options, info(context, &stream).await?).await?;
    }
    Ok(())
}

async fn judge(context: &Context, options: &NatsOptions, info: Info) -> Result<(), SinkError> {
    let config = info.config;
    let (stream, window, least) = (config.name.clone(), config.duplicate_window, options.duplicate_window_min());
    if config.no_ack {
        return Err(refused(Problem::Silent { stream }));
    }
    if config.sealed {
        return Err(refused(Problem::Sealed { stream }));
    }
    let own = is_own(&config);
    let right = if own { least.max(OWN_WINDOW) } else { least };
    if window >= right {
        return Ok(());
    }
    if !own {
        return Err(refused(Problem::ShortWindow { stream, window, least, lease: options.lease }));
    }
    tracing::info!(stream, ?window, longer = ?right, "stream remembers keys for longer from now on");
    let update = context.update_stream(Config { duplicate_window: right, ..config }).await;
    update.map(|_| ()).map_err(|source| refused(Problem::Denied { stream, source: source.into() }))
}

/// Makes the stream, or adds to our own one, for the subjects that no stream holds.
async fn create(context: &Context, options: &NatsOptions, name: &str) -> Result<(), SinkError> {
    let mut free = Vec::new();
    for subject in options.subjects() {
        if holder(context, subject).await?.is_none() && !free.contains(&subject) {
            free.push(subject);
        }
    }
    if free.is_empty() {
        return Ok(());
    }
    let denied = |source: Cause| refused(Problem::Denied { stream: name.to_owned(), source });
    let subjects = free.iter().map(|subject| (*subject).to_owned());
    match context.get_stream(name).await {
        Ok(stream) => {
            let mut config = stream.cached_info().config.clone();
            if !is_own(&config) {
                return Err(refused(Problem::Foreign { stream: name.to_owned() }));
            }
            config.subjects.extend(subjects);
            context.update_stream(config).await.map(|_| ()).map_err(|error| denied(error.into()))
        }
        Err(error) if matches!(error.kind(), GetStreamErrorKind::JetStream(_)) => {
            let config = Config {
                name: name.to_owned(),
                description: Some(OWN.to_owned()),
                subjects: subjects.collect(),
                duplicate_window: options.duplicate_window_min().max(OWN_WINDOW),
                num_replicas: 1,
                ..Config::default()
            };
            tracing::info!(stream = name, subjects = ?config.subjects, "stream is made");
            context.create_stream(config).await.map(|_| ()).map_err(|error| denied(error.into()))
        }
        Err(error) => Err(SinkError::Lost(error.into())),
    }
}

async fn holder(context: &Context, subject: &str) -> Result<Option<String>, SinkError> {
    match context.stream_by_subject(subject).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            GetStreamByNameErrorKind::NotFound => Ok(None),
            GetStreamByNameErrorKind::InvalidSubject => {
                Err(SinkError::Refused(format!("{subject} is no subject").into()))
            }
            _ => Err(SinkError::Lost(error.into())),
        },
    }
}

async fn info(context: &Context, stream: &str) -> Result<Info, SinkError> {
    let found = context.get_stream(stream).await.map_err(|error| SinkError::Lost(error.into()))?;
    Ok(found.cached_info().clone())
}

fn is_own(config: &Config) -> bool {
    config.description.as_deref() == Some(OWN)
}

fn refused(problem: Problem) -> SinkError {
    SinkError::Refused(problem.into())
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("no stream holds subject {subject}")]
    NoStream { subject: String },
    #[error("subject {subject} is held by stream {stream} and not by {right}")]
    OtherStream { subject: String, stream: String, right: String },
    #[error("stream {stream} acknowledges nothing (no_ack)")]
    Silent { stream: String },
    #[error("stream {stream} is sealed")]
    Sealed { stream: String },
    #[error(
        "stream {stream} remembers message ids for {window:?}, and twice the lease of {lease:?} and a second is \
         {least:?}: lengthen its duplicate window or shorten the lease"
    )]
    ShortWindow { stream: String, window: Duration, least: Duration, lease: Duration },
    #[error("stream {stream} is there and was not made by semel: its subjects are not changed")]
    Foreign { stream: String },
    #[error("stream {stream} cannot be made or changed")]
    Denied { stream: String, source: Cause },
}
