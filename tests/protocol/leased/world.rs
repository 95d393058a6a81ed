//! One world: what it is made of, what is known of it, and what must be true.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::clock::FixedClock;
use semel::config::policy::{Duplicates, Oversize, Policies, StoreAway, Unclaimable};
use semel::key::{Bounds, Extraction, Recipe, TimeRecipe};
use semel::pipeline::leased::{self, LeasedError, Options, Outlet, Parts, Status, WindowOptions};
use semel::protocol::event::{EventTime, Scope};
use semel::protocol::lane::StreamId;
use semel::shutdown::Shutdown;
use semel::store::memory::MemoryStore;
use semel::store::slots::SlotStore;

use super::broken::Broken;
use super::machine::Simulated;
use super::queue::{self, Queue};
use super::sink;
use super::store::{self, Statement, now};

pub type Event = usize;

pub const LEASE: Duration = Duration::from_secs(5);
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);
/// The store's leases go by the time that this takes, too: a world is over sooner.
const REAL_TIME: Duration = Duration::from_millis(500);
/// Until then things go wrong.
const GOOD_FROM: Duration = Duration::from_secs(12);
/// By then every message has come.
const LAST_MESSAGE_MS: u64 = 9_000;
/// By then everything is over.
const END: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// Acknowledged and not in the sink.
    Lost(Event),
    /// Twice in the sink without an excuse.
    Doubled(Event),
    /// Left in doubt, and claimed again before the lease was over.
    Hasty(Event),
    /// Not everything is acknowledged in the end.
    Stuck,
    /// A drain that had nothing in its way left claims or a lease behind.
    LeftBehind(String),
    Ended(String),
}

/// Chances in a hundred, by call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub store: u32,
    pub source: u32,
    pub sink: u32,
    /// In a thousand polls.
    pub crashes: u32,
    pub pauses: u32,
    pub drains: u32,
    pub outages: u32,
}

impl Faults {
    /// Most worlds have a few kinds of fault; some have none.
    fn draw(machine: &Simulated) -> Faults {
        let some = |most: u64| if machine.percent(50) { machine.among(1..most + 1) as u32 } else { 0 };
        Faults {
            store: some(12),
            source: some(8),
            sink: some(15),
            crashes: some(4),
            pauses: some(4),
            drains: some(2),
            outages: some(1),
        }
    }
}

/// What is known of a world from outside.
#[derive(Debug)]
pub struct Known {
    machine: Simulated,
    pub faults: Faults,
    copies: Vec<u32>,
    excused: Vec<bool>,
    /// Of each event's latest claim.
    leased_until: Vec<Duration>,
    /// Nobody may claim it before.
    doubt_until: Vec<Duration>,
    wire: Vec<(Duration, Event)>,
    pub late: Vec<(Duration, Statement)>,
    store_away_until: Duration,
    /// Of each slot: a process of it was killed, stood still or could not reach the store since it took the slot.
    troubled: Vec<bool>,
    wrong: Option<Wrong>,
    tells: bool,
}

impl Known {
    pub fn events(&self) -> usize {
        self.copies.len()
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if self.tells {
            println!("{:>9.3} s  {}", self.machine.time().as_secs_f64(), text());
        }
    }

    fn is_wrong(&mut self, wrong: Wrong) {
        self.tell(|| format!("WRONG {wrong:?}"));
        self.wrong.get_or_insert(wrong);
    }

    pub fn is_store_away(&self) -> bool {
        self.machine.time() < self.store_away_until
    }

    pub fn claimed(&mut self, event: Event, lease: Duration) {
        let now = self.machine.time();
        self.tell(|| format!("event {event} is claimed"));
        if now + REAL_TIME < self.doubt_until[event] {
            self.is_wrong(Wrong::Hasty(event));
        }
        self.leased_until[event] = now + lease;
    }

    pub fn stored(&mut self, event: Event) {
        self.tell(|| format!("event {event} is stored"));
        self.copies[event] += 1;
        if self.copies[event] > 1 && !self.excused[event] {
            self.is_wrong(Wrong::Doubled(event));
        }
    }

    /// `told`: the sender hears of the doubt.
    pub fn sent_in_doubt(&mut self, event: Event, arrives: Option<Duration>, told: bool) {
        self.tell(|| format!("event {event} is in doubt, arrives: {arrives:?}"));
        if told {
            self.excused[event] = true;
            self.doubt_until[event] = self.leased_until[event];
        }
        self.wire.extend(arrives.map(|at| (at, event)));
    }

    pub fn acknowledged(&mut self, event: Event) {
        self.tell(|| format!("event {event} is acknowledged"));
        if self.copies[event] == 0 {
            self.is_wrong(Wrong::Lost(event));
        }
    }

    /// A slot was taken without a word from the run that had it. What was unsettled there may come out again, if that
    /// run had a reason to leave it so.
    pub fn taken_from(&mut self, slot: &StreamId, unsettled: &[Event], by_its_own: bool) {
        let n = number(slot);
        self.tell(|| format!("slot {n} is taken, unsettled: {unsettled:?}, troubled: {}", self.troubled[n]));
        if self.troubled[n] {
            unsettled.iter().for_each(|event| self.excused[*event] = true);
        }
        self.troubled[n] &= !by_its_own;
    }
}

fn slot(n: usize) -> StreamId {
    StreamId::slot("pipeline", &n.to_string())
}

fn number(slot: &StreamId) -> usize {
    slot.as_str().rsplit('/').next().and_then(|text| text.parse().ok()).expect("made here")
}

type Ended = Result<(), LeasedError>;

/// A process.
struct Run {
    slot: usize,
    future: Pin<Box<dyn Future<Output = Ended>>>,
    shutdown: Shutdown,
    ready: Duration,
    /// Another was started in its place: it is killed at this time.
    doomed: Option<Duration>,
    /// Another run of its slot was there at the same time.
    has_namesake: bool,
}

struct World {
    machine: Simulated,
    known: Arc<Mutex<Known>>,
    store: Arc<MemoryStore>,
    queue: Arc<Mutex<Queue>>,
    runs: Vec<Run>,
    /// Slots to be started, and when.
    starts: Vec<(Duration, usize)>,
    window: WindowOptions,
    prefetch: usize,
    broken: Option<Broken>,
}

/// What was seen, so that worlds in which nothing happens do not count.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub events: usize,
    pub excused: usize,
    pub doubled: usize,
}

pub fn simulate(seed: u64, broken: Option<Broken>, tells: bool) -> Result<Seen, Wrong> {
    let machine = Simulated::new(seed);
    let (slots, events) = (machine.among(1..4) as usize, machine.among(1..8) as usize);
    let message = |_| (machine.among(0..events as u64) as usize, machine.millis(0..LAST_MESSAGE_MS));
    let messages: Vec<(Event, Duration)> = (0..machine.among(1..40)).map(message).collect();
    let known = Known {
        machine: machine.clone(),
        faults: Faults::draw(&machine),
        copies: vec![0; events],
        excused: vec![false; events],
        leased_until: vec![Duration::ZERO; events],
        doubt_until: vec![Duration::ZERO; events],
        wire: Vec::new(),
        late: Vec::new(),
        store_away_until: Duration::ZERO,
        troubled: vec![false; slots],
        wrong: None,
        tells,
    };
    known.tell(|| format!("{slots} slots, messages {messages:?}, {:?}", known.faults));
    let world = World {
        known: Arc::new(Mutex::new(known)),
        store: Arc::new(MemoryStore::new()),
        queue: Arc::new(Mutex::new(Queue::new(messages))),
        runs: Vec::new(),
        starts: (0..slots).map(|n| (machine.millis(0..300), n)).collect(),
        window: WindowOptions {
            messages_max: machine.among(1..6) as usize,
            bytes_max: 1 << 20,
            linger: Duration::from_millis(5),
        },
        prefetch: machine.among(1..9) as usize,
        machine,
        broken,
    };
    world.run()
}

impl World {
    fn run(mut self) -> Result<Seen, Wrong> {
        let mut is_good = false;
        loop {
            self.arrive();
            if let Some(wrong) = self.known().wrong.clone() {
                return Err(wrong);
            }
            let now = self.machine.time();
            if !is_good && now >= GOOD_FROM {
                is_good = true;
                self.becomes_good();
            }
            if is_good && self.queue.lock().expect("one thread").is_done() {
                self.runs.iter().for_each(|run| run.shutdown.request());
                if self.runs.is_empty() && self.starts.is_empty() {
                    return self.end();
                }
            }
            if now >= END {
                return Err(Wrong::Stuck);
            }
            let ready: Vec<usize> = (0..self.runs.len()).filter(|&n| self.runs[n].ready <= now).collect();
            if ready.is_empty() {
                self.pass(now);
                continue;
            }
            let n = ready[self.machine.among(0..ready.len() as u64) as usize];
            if !self.strike(n) {
                self.poll(n)?;
            }
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().expect("one thread")
    }

    /// What is on its way, and processes that start or are killed.
    fn arrive(&mut self) {
        let now = self.machine.time();
        {
            let mut known = self.known.lock().expect("one thread");
            let (due, wire) = std::mem::take(&mut known.wire).into_iter().partition(|(at, _)| *at <= now);
            known.wire = wire;
            let due: Vec<(Duration, Event)> = due;
            due.iter().for_each(|(_, event)| known.stored(*event));
            let (due, late) = std::mem::take(&mut known.late).into_iter().partition(|(at, _)| *at <= now);
            known.late = late;
            let due: Vec<(Duration, Statement)> = due;
            for (_, statement) in due {
                known.tell(|| format!("late: {statement:?}"));
                drop(statement.carry_out(&self.store, &mut known, true));
            }
        }
        let killed: Vec<Run> = self.runs.extract_if(.., |run| run.doomed.is_some_and(|at| at <= now)).collect();
        for run in killed {
            self.known().tell(|| format!("a replaced run of slot {} is killed", run.slot));
            self.known().troubled[run.slot] = true;
            self.start_again(run.slot, now);
        }
        let (due, starts): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.starts).into_iter().partition(|(at, _)| *at <= now);
        self.starts = starts;
        due.into_iter().for_each(|(_, slot)| self.start(slot));
    }

    /// To when something happens next.
    fn pass(&mut self, now: Duration) {
        let known = self.known();
        let mut times: Vec<Duration> =
            self.runs.iter().flat_map(|run| [Some(run.ready), run.doomed]).flatten().collect();
        times.extend(self.starts.iter().map(|(at, _)| *at));
        times.extend(known.wire.iter().map(|(at, _)| *at));
        times.extend(known.late.iter().map(|(at, _)| *at));
        drop(known);
        let next = times.into_iter().min().unwrap_or(GOOD_FROM).max(now + Duration::from_millis(1));
        self.machine.set(next);
        self.store.advance(next - now);
    }

    fn becomes_good(&mut self) {
        let now = self.machine.time();
        self.known().faults = Faults::default();
        self.known().store_away_until = Duration::ZERO;
        self.known().tell(|| "from now on nothing goes wrong".to_owned());
        self.runs.iter_mut().for_each(|run| run.ready = run.ready.min(now));
    }

    /// Unless it runs, or is about to.
    fn start_again(&mut self, slot: usize, now: Duration) {
        let is_there = self.runs.iter().any(|run| run.slot == slot) || self.starts.iter().any(|start| start.1 == slot);
        if !is_there {
            self.starts.push((now + self.machine.millis(0..3000), slot));
        }
    }

    fn start(&mut self, n: usize) {
        self.known().tell(|| format!("slot {n} starts"));
        let (machine, known) = (self.machine.clone(), Arc::clone(&self.known));
        let store = store::Connected {
            machine: machine.clone(),
            store: Arc::clone(&self.store),
            known: Arc::clone(&known),
            broken: self.broken,
        };
        let source = queue::Connected::new(machine.clone(), Arc::clone(&self.queue), Arc::clone(&known), self.prefetch);
        let sink = sink::Connected { machine: machine.clone(), known, broken: self.broken };
        let shutdown = Shutdown::default();
        let parts = Parts {
            store: Arc::new(store),
            source: Box::new(source),
            sink: Outlet::Plain(Box::new(sink)),
            clock: Arc::new(FixedClock(EventTime::from_millis(1_767_787_200_000))),
            machine: Arc::new(machine),
            shutdown: shutdown.clone(),
            status: Arc::new(Status::default()),
        };
        let future = Box::pin(leased::run(options(n, self.window), parts));
        let ready = self.machine.time();
        let mut run = Run { slot: n, future, shutdown, ready, doomed: None, has_namesake: false };
        for namesake in self.runs.iter_mut().filter(|other| other.slot == n) {
            (namesake.has_namesake, run.has_namesake) = (true, true);
        }
        self.runs.push(run);
    }

    /// Whether something happens to this process instead of its next step.
    fn strike(&mut self, n: usize) -> bool {
        let (machine, faults) = (self.machine.clone(), self.known().faults);
        let happens = |chance: u32| chance > 0 && machine.among(0..1000) < u64::from(chance);
        let (slot, now) = (self.runs[n].slot, machine.time());
        if happens(faults.crashes) {
            self.known().tell(|| format!("slot {slot} is killed"));
            self.known().troubled[slot] = true;
            drop(self.runs.swap_remove(n));
            self.start_again(slot, now);
            return true;
        }
        if happens(faults.pauses) {
            let ready = now + machine.millis(100..10_000);
            self.known().tell(|| format!("slot {slot} stands still until {ready:?}"));
            self.known().troubled[slot] = true;
            self.runs[n].ready = ready;
            let is_alone = self.runs.iter().filter(|run| run.slot == slot).count() == 1;
            if is_alone && machine.percent(40) {
                self.starts.push((now + machine.millis(0..3000), slot));
                self.runs[n].doomed = Some(ready + machine.millis(0..3000));
            }
            return true;
        }
        if happens(faults.drains) {
            self.known().tell(|| format!("slot {slot} is drained"));
            self.runs[n].shutdown.request();
        }
        if happens(faults.outages) {
            let until = now + machine.millis(100..9_000);
            self.known().tell(|| format!("the store is away until {until:?}"));
            let mut known = self.known();
            known.store_away_until = until;
            known.troubled.iter_mut().for_each(|one| *one = true);
        }
        false
    }

    fn poll(&mut self, n: usize) -> Result<(), Wrong> {
        let run = &mut self.runs[n];
        match self.machine.poll(run.future.as_mut()) {
            Err(ready) => run.ready = ready,
            Ok(Err(LeasedError::NameClash { .. })) if run.has_namesake => {
                let (slot, now) = (run.slot, self.machine.time());
                drop(self.runs.swap_remove(n));
                self.known().tell(|| format!("slot {slot} is left to its namesake"));
                self.start_again(slot, now);
            }
            Ok(Err(error)) => return Err(Wrong::Ended(format!("{error:?}"))),
            Ok(Ok(())) => {
                let (slot, now) = (run.slot, self.machine.time());
                drop(self.runs.swap_remove(n));
                self.known().tell(|| format!("slot {slot} has drained"));
                let is_over = now >= GOOD_FROM && self.queue.lock().expect("one thread").is_done();
                if !is_over {
                    self.start_again(slot, now);
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Result<Seen, Wrong> {
        let known = self.known();
        let acknowledged: Vec<Event> =
            self.queue.lock().expect("one thread").messages.iter().map(|one| one.0).collect();
        let lost = acknowledged.iter().find(|event| known.copies[**event] == 0);
        if let Some(lost) = lost {
            return Err(Wrong::Lost(*lost));
        }
        // A run that was drained while it waited for the lease of the one before it had nothing to leave.
        for n in (0..known.troubled.len()).filter(|&n| !known.troubled[n]) {
            let open = now(self.store.slot(&slot(n))).expect("always there").and_then(|slot| slot.open);
            if let Some(open) = open.filter(|open| open.claimed_above || !open.lease_left.is_zero()) {
                return Err(Wrong::LeftBehind(format!("slot {n}: {open:?}")));
            }
        }
        let count = |is: &dyn Fn(usize) -> bool| (0..known.copies.len()).filter(|&event| is(event)).count();
        Ok(Seen {
            events: count(&|event| known.copies[event] > 0),
            excused: count(&|event| known.excused[event]),
            doubled: count(&|event| known.copies[event] > 1),
        })
    }
}

fn options(n: usize, window: WindowOptions) -> Options {
    let unclaimable = Unclaimable::Stop;
    Options {
        slot: slot(n),
        scope: Scope::new("scope").expect("a scope"),
        extraction: Extraction::new(
            Recipe::parse("header:id").expect("a recipe"),
            TimeRecipe::parse("none").expect("a recipe"),
        ),
        bounds: Bounds { weeks_kept: 1, weeks_ahead: 1 },
        policies: Policies {
            missing_id: unclaimable,
            missing_time: unclaimable,
            old_event: unclaimable,
            future_event: unclaimable,
            oversize: Oversize::Stop,
            duplicates: Duplicates::Drop,
            store_away: StoreAway::Block,
            observe: false,
        },
        accept_recipe: None,
        window,
        lease: LEASE,
        publish_timeout: PUBLISH_TIMEOUT,
        hold: Duration::from_secs(20),
    }
}
