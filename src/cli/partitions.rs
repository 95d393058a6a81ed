//! `semel partitions`: the weeks of the claim store, made ahead and retired by hand where no instance does it.

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::flags::Listed;
use super::table::{Table, known};
use super::{Subcommand, operator};
use crate::clock::{Clock, SystemClock};
use crate::config::CONFIG;
use crate::config::retention::{RETENTION_WEEKS, WEEKS_AHEAD};
use crate::config::store::STORE;
use crate::pipeline::operator::Claims;
use crate::protocol::event::Week;
use crate::store::Room;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const SETTINGS: Listed = Listed { needed: &[&STORE], read: &[&RETENTION_WEEKS, &WEEKS_AHEAD, &CONFIG] };

fn declare() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command = Command::new("partitions")
        .about("Lists the weeks that claims are kept in, with estimates of their sizes")
        .arg(flag("ensure", "Make the weeks that are missing, up to SEMEL_WEEKS_AHEAD"))
        .arg(flag("retire", "Drop the weeks, with their claims, that are older than SEMEL_RETENTION_WEEKS"));
    operator::with_settings(command, &SETTINGS)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let config = operator::config(matches)?;
    let now = SystemClock.now();
    let (first_kept, last) = config.retention.bounds.weeks(now);
    let claims = Claims::open(&config.store)?;
    let rooms = || claims.ask(|store| async move { store.rooms().await });
    let before = rooms()?;
    if matches.get_flag("ensure") {
        claims.ask(|store| async move { store.ensure_weeks(first_kept, last).await })?;
        let made = missing(&before, first_kept, last);
        made.iter().for_each(|week| println!("made the week of {week}"));
    }
    let outlived = before.iter().any(|room| is_outlived(room, first_kept));
    if matches.get_flag("retire") && outlived {
        let retired = claims.ask(|store| async move { store.retire_weeks(first_kept).await })?;
        retired.iter().for_each(|week| println!("retired the week of {week}"));
        if retired.is_empty() {
            println!("nothing was retired: another process is at it");
        }
    }
    let rooms = rooms()?;
    let mut table = Table::new(["week", "claims (about)", "size", "state"]);
    for room in &rooms {
        let week =
            if room.first == room.last { room.first.to_string() } else { format!("{} to {}", room.first, room.last) };
        table.row([
            week,
            known(room.claims_estimate),
            room.bytes.map_or("-".to_owned(), size),
            state(room, first_kept, Week::of(now)).to_owned(),
        ]);
    }
    print!("{table}");
    let missing = missing(&rooms, first_kept, last);
    if !missing.is_empty() {
        let weeks: Vec<String> = missing.iter().map(Week::to_string).collect();
        println!("\nnot made: {}. `semel run` makes them at its start, and so does --ensure", weeks.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

fn is_outlived(room: &Room, first_kept: Week) -> bool {
    room.last < first_kept && room.last != Week::UNDATED
}

fn state(room: &Room, first_kept: Week, present: Week) -> &'static str {
    match room {
        _ if room.first == Week::UNDATED => "undated, kept for ever",
        _ if is_outlived(room, first_kept) => "older than what is kept: to be retired",
        _ if room.last < present => "kept",
        _ if room.first <= present => "present",
        _ => "ahead",
    }
}

fn missing(rooms: &[Room], first: Week, last: Week) -> Vec<Week> {
    let wanted = std::iter::successors(Some(first), |week| Some(week.plus(1))).take_while(|week| *week <= last);
    wanted.filter(|week| !rooms.iter().any(|room| (room.first..=room.last).contains(week))).collect()
}

fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let steps = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", bytes as f64 / f64::from(2_f32.powi(10 * steps as i32)), UNITS[steps as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB")];
        for (bytes, right) in cases {
            assert_eq!(size(bytes), right);
        }
    }

    #[test]
    fn what_a_week_is_to_the_operator() {
        let present = Week::from_day_number(20_458).expect("a Monday");
        let room = |first: i32, last: i32| {
            let (first, last) = (present.plus(first), present.plus(last));
            Room { first, last, claims_estimate: None, bytes: None }
        };
        let cases = [
            (room(-6, -6), "older than what is kept: to be retired", "before the first week kept"),
            (room(-7, -5), "kept", "its last week is kept"),
            (room(-5, -5), "kept", "the first week kept"),
            (room(0, 0), "present", "this week"),
            (room(-1, 1), "present", "an earlier guard's, around this week"),
            (room(1, 1), "ahead", "next week"),
            (Room { first: Week::UNDATED, last: Week::UNDATED, ..room(0, 0) }, "undated, kept for ever", "no time"),
        ];
        for (room, right, why) in cases {
            assert_eq!(state(&room, present.plus(-5), present), right, "{why}");
        }
        let made = [room(-1, 0), room(2, 2)];
        assert_eq!(missing(&made, present.plus(-1), present.plus(3)), [present.plus(1), present.plus(3)]);
    }
}
