//! `semel pipe` on one file, from its start to its end, the claims' folder made anew for each run.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::daemon::BINARY;
use crate::support::random::Random;

const LINES: u64 = 1_000_000;
const LINE_BYTES: usize = 300;
const DUPLICATES_PERCENT: u32 = 30;

pub const TITLE: &str = "semel pipe: 1000000 lines of 300 bytes, 30 % duplicates, file to file";

/// One table, with the median of so many runs for each way to find the id.
pub fn run(rounds: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in.ndjson");
    let distinct = write(&input);
    println!(
        "\n## {TITLE}\n\n| event id | lines/s, median | CPU µs per line | memory MiB |\n| --- | --- | --- | --- |"
    );
    for event_id in ["json:/id", "digest"] {
        let mut runs: Vec<_> = (0..rounds).map(|_| once(folder.path(), &input, event_id, distinct)).collect();
        runs.sort_by_key(|(time, _, _)| *time);
        let (time, cpu, memory_kib) = runs[runs.len() / 2];
        let rate = LINES as f64 / time.as_secs_f64();
        let cpu = cpu.as_micros() as f64 / LINES as f64;
        println!("| `{event_id}` | {rate:.0} | {cpu:.1} | {} |", memory_kib / 1024);
    }
}

/// Answers how many distinct lines there are. A repeat is the same line, so that both ways to find the id agree.
fn write(path: &Path) -> u64 {
    let mut out = BufWriter::new(File::create(path).expect("a file"));
    let mut random = Random::new(7);
    let mut distinct = 0;
    for _ in 0..LINES {
        let repeats = distinct > 0 && random.percent(DUPLICATES_PERCENT);
        let event = if repeats { random.among(0..distinct) } else { distinct };
        distinct += u64::from(!repeats);
        let mut line = format!(r#"{{"id":"{:016x}-{event}","note":""#, event.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        line.extend(std::iter::repeat_n('x', LINE_BYTES - line.len() - 3));
        writeln!(out, "{line}\"}}").expect("a line");
    }
    out.into_inner().expect("all lines").sync_all().expect("a file on the disk");
    distinct
}

fn once(folder: &Path, input: &Path, event_id: &str, distinct: u64) -> (Duration, Duration, i64) {
    let (output, claims) = (folder.join("out.ndjson"), folder.join("claims"));
    let store = format!("embedded:{}", claims.display());
    let begun = Instant::now();
    let child = Command::new(BINARY)
        .args(["pipe", "--event-id", event_id, "--store", &store])
        .args([input, &output])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    // SAFETY: plain records that the call fills in; the child is ours and is waited for nowhere else.
    let (status, usage) = unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed::<libc::rusage>());
        assert_eq!(libc::wait4(child.id() as i32, &mut status, 0, &mut usage), child.id() as i32);
        (status, usage)
    };
    let time = begun.elapsed();
    assert_eq!(status, 0, "semel pipe failed");
    let forwarded = std::fs::read(&output).expect("an output").iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(forwarded as u64, distinct, "the output is not what it should be");
    std::fs::remove_file(&output).expect("the output goes");
    std::fs::remove_dir_all(&claims).expect("the claims go");
    let spent = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    (time, spent(usage.ru_utime) + spent(usage.ru_stime), usage.ru_maxrss)
}
