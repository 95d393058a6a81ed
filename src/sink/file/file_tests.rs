use std::fs;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::message::{Header, Message};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn sink(folder: &TempDir, format: Format) -> FileSink {
    FileSink::new(FileOptions {
        path: folder.path().join("out"),
        format,
        dead_letter: Some(folder.path().join("dead")),
        duplicates: None,
    })
}

fn to(destination: Destination, value: &str) -> Outgoing {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Outgoing { destination, message: Message { value, ..Message::default() }, idempotency_key: None }
}

fn forward(value: &str) -> Outgoing {
    to(Destination::Forward, value)
}

fn text(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join(name)).expect("readable")
}

#[tokio::test]
async fn values_are_lines_and_dead_letters_are_records() {
    let folder = folder();
    let mut sink = sink(&folder, Format::Value);
    let mut dead = to(Destination::DeadLetter, "b\nb");
    dead.message.headers = vec![Header::new("cause", &b"none"[..])];
    dead.message.key = Some(Bytes::from_static(&[0xff]));
    let answers = sink.publish(&[forward("a\r"), dead, forward("")]).await;
    assert_eq!(answers, [Published::Confirmed, Published::Confirmed, Published::Confirmed]);
    assert_eq!(text(&folder, "out"), "a\r\n\n");
    let record = r#"{"key":{"base64":"/w=="},"headers":[["cause","none"]],"value":"b\nb"}"#;
    assert_eq!(text(&folder, "dead"), format!("{record}\n"));
}

#[tokio::test]
async fn what_has_no_line_is_unfit_and_stops_what_is_behind_it() {
    let folder = folder();
    let mut sink = sink(&folder, Format::Value);
    let mut null = forward("");
    null.message.value = None;
    for (unfit, why) in [(forward("a\nb"), "line break"), (null, "null"), (to(Destination::Duplicates, "x"), "no file")]
    {
        assert!(sink.unfit(&unfit).expect("unfit").contains(why));
        let answers = sink.publish(&[forward("before"), unfit, forward("behind")]).await;
        assert_eq!((&answers[0], &answers[2]), (&Published::Confirmed, &Published::NotSent));
        assert!(matches!(&answers[1], Published::Refused(said) if said.contains(why)), "{answers:?}");
    }
    assert_eq!(text(&folder, "out"), "before\nbefore\nbefore\n");
}

/// Of any length, also longer than what is searched at a time.
#[tokio::test]
async fn what_a_crash_tore_is_put_aside() {
    for torn in ["b", &"c".repeat(3 * BLOCK as usize + 1)] {
        for before in ["", "a\n", "a\n\n"] {
            let folder = folder();
            fs::write(folder.path().join("out"), format!("{before}{torn}")).expect("written");
            let answers = sink(&folder, Format::Value).publish(&[forward("new")]).await;
            assert_eq!(answers, [Published::Confirmed]);
            assert_eq!(text(&folder, "out"), format!("{before}new\n"));
            assert_eq!(text(&folder, "out.torn"), format!("{torn}\n"));
        }
    }
}

#[tokio::test]
async fn whole_lines_stay() {
    let folder = folder();
    fs::write(folder.path().join("out"), "a\n").expect("written");
    sink(&folder, Format::Value).publish(&[forward("b")]).await;
    assert_eq!(text(&folder, "out"), "a\nb\n");
    assert!(!folder.path().join("out.torn").exists());
}

#[tokio::test]
async fn another_writer_is_waited_for() {
    let folder = folder();
    let mut first = sink(&folder, Format::Value);
    first.check().await.expect("open");
    let mut second = sink(&folder, Format::Value);
    assert!(matches!(second.check().await, Err(SinkError::Lost(_))));
    assert_eq!(second.publish(&[forward("b")]).await, [Published::NotSent]);
    drop(first);
    assert_eq!(second.publish(&[forward("b")]).await, [Published::Confirmed]);
    assert_eq!(text(&folder, "out"), "b\n");
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_made_anew() {
    let folder = folder();
    let mut sink = sink(&folder, Format::Value);
    sink.publish(&[forward("a")]).await;
    fs::rename(folder.path().join("out"), folder.path().join("out.1")).expect("moved");
    sink.publish(&[forward("b")]).await;
    assert_eq!((text(&folder, "out.1"), text(&folder, "out")), ("a\n".to_owned(), "b\n".to_owned()));
}

/// A device takes the place of a disk without room: it refuses each write, and has no length to cut back to.
#[test]
fn what_cannot_be_cut_back_is_in_doubt() {
    let path = PathBuf::from("/dev/full");
    let file = OpenOptions::new().append(true).open(&path).expect("a device");
    let (kept, failed) = Kept { path, file }.append(b"a\n");
    assert!(kept.is_none());
    assert!(matches!(failed, Some(Published::InDoubt(doubt)) if !doubt.answered && doubt.why.contains("/dev/full")));
}

#[tokio::test]
async fn what_is_no_file_is_refused() {
    let folder = folder();
    fs::create_dir(folder.path().join("out")).expect("a folder in its place");
    assert!(matches!(sink(&folder, Format::Value).check().await, Err(SinkError::Refused(_))));
    let options = FileOptions { path: "/dev/null".into(), format: Format::Value, dead_letter: None, duplicates: None };
    let refused = FileSink::new(options).check().await.expect_err("refused");
    assert!(crate::pipeline::chain(&refused).contains("not a regular file"));
}
