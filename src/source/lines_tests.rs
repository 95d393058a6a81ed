use std::io::Write;
use std::time::Duration;

use super::*;

/// A source of this text.
fn source(text: &[u8], prefetch: usize) -> (LinesSource, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("in.ndjson");
    File::create(&path).and_then(|mut file| file.write_all(text)).expect("written");
    (LinesSource::new(LinesOptions { path: Some(path), prefetch }), folder)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts").block_on(future)
}

const GATHER: Gather = Gather {
    messages_max: 100,
    bytes_max: 1 << 30,
    wait: Duration::from_millis(200),
    linger: Duration::from_millis(5),
};

/// None at the end.
async fn lines(source: &mut LinesSource, gather: Gather) -> Option<Vec<(Tag, String)>> {
    match source.receive(gather).await.expect("lines") {
        Received::End => None,
        Received::Deliveries(taken) => {
            let text = |message: Message| String::from_utf8(message.value.expect("a value").to_vec()).expect("text");
            Some(taken.into_iter().map(|delivery| (delivery.tag, text(delivery.message))).collect())
        }
    }
}

fn texts(lines: &[(Tag, String)]) -> Vec<&str> {
    lines.iter().map(|(_, text)| text.as_str()).collect()
}

fn tags(lines: &[(Tag, String)]) -> Vec<Tag> {
    lines.iter().map(|(tag, _)| *tag).collect()
}

#[test]
fn lines_come_once_and_end() {
    run(async {
        let (mut source, _folder) = source(b"{\"a\":1}\r\n\n  \n{\"b\":2}\nlast", 100);
        let came = lines(&mut source, GATHER).await.expect("lines");
        assert_eq!(texts(&came), ["{\"a\":1}", "{\"b\":2}", "last"], "blank ones are nothing");
        assert_eq!(lines(&mut source, GATHER).await.map(|none| none.len()), Some(0), "what is out may come back");
        source.hand_back(&tags(&came[1..2])).await.expect("handed back");
        source.acknowledge(&tags(&came)).await.expect("acknowledged");
        let again = lines(&mut source, GATHER).await.expect("lines");
        assert_eq!(texts(&again), ["{\"b\":2}"]);
        source.acknowledge(&tags(&came)).await.expect("its old tag does nothing");
        source.pause().await.expect("paused");
        let last = lines(&mut source, GATHER).await.expect("lines");
        assert_eq!(texts(&last), ["{\"b\":2}"], "a pause hands it back");
        source.acknowledge(&tags(&last)).await.expect("acknowledged");
        assert_eq!(lines(&mut source, GATHER).await, None, "the end");
    });
}

#[test]
fn no_more_than_its_limits() {
    run(async {
        let text: String = (0..10).map(|n| format!("line {n}\n")).collect();
        let (mut source, _folder) = source(text.as_bytes(), 4);
        let came = lines(&mut source, GATHER).await.expect("lines");
        assert_eq!(texts(&came), ["line 0", "line 1", "line 2", "line 3"], "its prefetch");
        assert!(lines(&mut source, GATHER).await.expect("lines").is_empty());
        source.acknowledge(&tags(&came[..2])).await.expect("acknowledged");
        let few = lines(&mut source, Gather { messages_max: 1, ..GATHER }).await.expect("lines");
        assert_eq!(texts(&few), ["line 4"], "no more than are asked for");
        let small = lines(&mut source, Gather { bytes_max: 1, ..GATHER }).await.expect("lines");
        assert_eq!(texts(&small), ["line 5"], "a single message may be larger");
    });
}

#[test]
fn a_line_that_is_too_long_is_an_error_behind_the_lines_before_it() {
    run(async {
        let mut text = b"one\ntwo\n".to_vec();
        text.resize(text.len() + LINE_BYTES_MAX + 1, b'x');
        let (mut source, _folder) = source(&text, 100);
        let came = lines(&mut source, GATHER).await.expect("lines");
        assert_eq!(texts(&came), ["one", "two"]);
        let told = source.receive(Gather { wait: Duration::from_secs(20), ..GATHER }).await;
        let Err(SourceError::Refused(cause)) = told else { panic!("{told:?}") };
        assert!(cause.to_string().ends_with("line 3 is longer than 16 MiB"), "{cause}");
    });
    run(async {
        let mut text = vec![b'x'; LINE_BYTES_MAX - 1];
        text.push(b'\n');
        let (mut source, _folder) = source(&text, 100);
        let came = lines(&mut source, Gather { wait: Duration::from_secs(20), ..GATHER }).await.expect("lines");
        assert_eq!(came[0].1.len(), LINE_BYTES_MAX - 1, "with its end it is just as long as may be");
    });
}

#[test]
fn a_file_that_is_not_there() {
    run(async {
        let (mut source, folder) = source(b"", 1);
        drop(folder);
        let told = source.receive(GATHER).await;
        assert!(matches!(told, Err(SourceError::Refused(_))), "{told:?}");
    });
}
