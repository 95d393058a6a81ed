//! Time, chance, and who goes on next. One thread polls the instances in an order that follows from the seed; time
//! moves only between polls.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use semel::pipeline::leased::Machine;

use crate::random::Random;

#[derive(Debug)]
struct State {
    now: Duration,
    random: Random,
    /// Of the poll under way: something waits to be polled again, or until when.
    again: bool,
    until: Option<Duration>,
}

/// Shared by everything in a world.
#[derive(Debug, Clone)]
pub struct Simulated(Arc<Mutex<State>>);

impl Simulated {
    pub fn new(seed: u64) -> Simulated {
        let state = State { now: Duration::ZERO, random: Random::new(seed), again: false, until: None };
        Simulated(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    pub fn time(&self) -> Duration {
        self.state().now
    }

    pub fn set(&self, now: Duration) {
        self.state().now = now;
    }

    pub fn percent(&self, chance: u32) -> bool {
        chance > 0 && self.state().random.percent(chance)
    }

    pub fn among(&self, range: std::ops::Range<u64>) -> u64 {
        self.state().random.among(range)
    }

    pub fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.among(range))
    }

    /// Lets others go on, and time pass, as often as chance has it.
    pub async fn others(&self) {
        if self.percent(50) {
            self.wait(self.millis(1..30)).await;
        }
        for _ in 0..self.among(0..2) {
            Again { machine: self, polled: false }.await;
        }
    }

    pub async fn wait(&self, time: Duration) {
        let until = self.time() + time;
        Until { machine: self, until }.await;
    }

    /// When it is to be polled again; None once it has ended.
    pub fn poll<T>(&self, future: Pin<&mut (dyn Future<Output = T> + '_)>) -> Result<T, Duration> {
        {
            let mut state = self.state();
            state.again = false;
            state.until = None;
        }
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => Ok(ended),
            Poll::Pending => {
                let state = self.state();
                Err(if state.again { state.now } else { state.until.expect("everything waits for something") })
            }
        }
    }
}

struct Again<'a> {
    machine: &'a Simulated,
    polled: bool,
}

impl Future for Again<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.polled, true) {
            return Poll::Ready(());
        }
        self.machine.state().again = true;
        Poll::Pending
    }
}

struct Until<'a> {
    machine: &'a Simulated,
    until: Duration,
}

impl Future for Until<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        let mut state = self.machine.state();
        if state.now >= self.until {
            return Poll::Ready(());
        }
        state.until = Some(state.until.map_or(self.until, |until| until.min(self.until)));
        Poll::Pending
    }
}

#[async_trait]
impl Machine for Simulated {
    fn now(&self) -> Duration {
        self.time()
    }

    async fn sleep(&self, time: Duration) {
        self.wait(time).await;
    }

    fn random(&self) -> Result<u64, getrandom::Error> {
        Ok(self.state().random.next())
    }
}
