//! A TCP proxy before Kafka, PostgreSQL or any other server that can lose what a network loses, at the worst moment.
//!
//! It cuts all connections, refuses new ones, or stalls; and it reads along: [`Proxy::on`] acts on the n-th sight of a
//! request: before it is passed on (surely not carried out), while it is under way (in doubt), or when it was carried
//! out and its answer is at hand (done, and the client never learns it). An act may end a process, and says whether the
//! connection then lives on.
//!
//! Kafka's clients are told in its answers where the brokers are; the proxy puts itself in their place (`kafka.rs`), so
//! that one broker needs no listener of its own for each proxy. Plain text only. A connection that is cut is closed on
//! both sides; what the server had already read, it carries out.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::broker::wait_until;

mod kafka;
mod postgres;
mod wire;

pub use kafka::Api;

/// What is looked out for.
#[derive(Clone, Copy)]
pub enum Sight {
    /// A request of Kafka's.
    Kafka(Api),
    /// A round trip to PostgreSQL that executes a statement whose text is like this.
    Sql(fn(&str) -> bool),
}

/// The statement that claims a window.
pub const CLAIM: Sight = Sight::Sql(|sql| {
    let sql = sql.to_ascii_lowercase();
    sql.contains("insert into") && sql.contains("processed_kafka_events")
});

/// The statement that writes an owner's token.
pub const TAKE: Sight = Sight::Sql(|sql| sql.to_ascii_lowercase().contains("insert into semel_streams"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The request is not passed on yet.
    Before,
    /// It is passed on, and may or may not have been carried out.
    During,
    /// It was carried out, and the answer is not passed on yet.
    After,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Pass,
    Cut,
}

type Act = Box<dyn FnOnce() -> Then + Send>;

struct Watch {
    sight: Sight,
    moment: Moment,
    /// Sights still to be let pass.
    skip: usize,
    act: Act,
    fired: Arc<Fired>,
}

/// A watch that has seen its sight, until its moment.
struct Armed {
    moment: Moment,
    act: Act,
    fired: Arc<Fired>,
}

impl Armed {
    fn fire(self) -> Then {
        let then = (self.act)();
        self.fired.tell();
        then
    }
}

/// Whether a watch has acted.
#[derive(Default)]
pub struct Fired {
    done: Mutex<bool>,
    told: Condvar,
}

impl Fired {
    fn tell(&self) {
        *self.done.lock().expect("no panic while locked") = true;
        self.told.notify_all();
    }

    /// As [`Fired::wait`], and calls `meanwhile` now and then: to keep what is waited for coming.
    pub fn wait_while(&self, within: Duration, what: &str, mut meanwhile: impl FnMut()) {
        wait_until(&format!("{what} is seen"), within, || {
            meanwhile();
            *self.done.lock().expect("no panic while locked")
        });
    }

    /// Waits until the watch has acted, and fails the test if it does not.
    pub fn wait(&self, within: Duration, what: &str) {
        let done = self.done.lock().expect("no panic while locked");
        let (done, _) = self.told.wait_timeout_while(done, within, |done| !*done).expect("no panic while locked");
        assert!(*done, "{what} was not seen within {within:?}");
    }
}

/// State that all connections of a proxy share.
struct Shared {
    speaks: Speaks,
    port: u16,
    upstream: u16,
    watches: Mutex<Vec<Watch>>,
    /// Both ends of every connection that was accepted; closed ones are harmless.
    open: Mutex<Vec<TcpStream>>,
    refuses: AtomicBool,
    stalls: AtomicBool,
    ended: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Kafka,
    Postgres,
    /// Nothing that is read along.
    Anything,
}

pub struct Proxy {
    shared: Arc<Shared>,
}

impl Proxy {
    /// Before the Kafka broker on this port of 127.0.0.1.
    pub fn of_kafka(upstream: u16) -> Proxy {
        Proxy::start(Speaks::Kafka, upstream)
    }

    pub fn of_postgres(upstream: u16) -> Proxy {
        Proxy::start(Speaks::Postgres, upstream)
    }

    /// Before any server: it cuts, refuses and stalls, and sees nothing.
    pub fn of_anything(upstream: u16) -> Proxy {
        Proxy::start(Speaks::Anything, upstream)
    }

    fn start(speaks: Speaks, upstream: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let shared = Arc::new(Shared {
            speaks,
            port: listener.local_addr().expect("an address").port(),
            upstream,
            watches: Mutex::default(),
            open: Mutex::default(),
            refuses: AtomicBool::new(false),
            stalls: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Proxy { shared }
    }

    pub fn port(&self) -> u16 {
        self.shared.port
    }

    /// Closes all connections; new ones are taken.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Closes all connections and takes no new ones, or takes them again.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, Ordering::SeqCst);
        if refuses {
            self.cut();
        }
    }

    /// Passes nothing on, and keeps all connections; or goes on.
    pub fn stall(&self, stalls: bool) {
        self.shared.stalls.store(stalls, Ordering::SeqCst);
    }

    /// Acts once, on the `nth` sight from now, counted from 1.
    pub fn on(
        &self,
        sight: Sight,
        moment: Moment,
        nth: usize,
        act: impl FnOnce() -> Then + Send + 'static,
    ) -> Arc<Fired> {
        let fired = Arc::new(Fired::default());
        let watch = Watch { sight, moment, skip: nth - 1, act: Box::new(act), fired: Arc::clone(&fired) };
        self.shared.watches.lock().expect("no panic while locked").push(watch);
        fired
    }

    /// Waits until a sight was seen, and passes it on.
    pub fn await_sight(&self, sight: Sight, within: Duration, what: &str) {
        self.on(sight, Moment::Before, 1, || Then::Pass).wait(within, what);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.shared.cut();
        drop(TcpStream::connect(("127.0.0.1", self.shared.port))); // Wakes the accepting thread.
    }
}

impl Shared {
    fn cut(&self) {
        for stream in self.open.lock().expect("no panic while locked").drain(..) {
            drop(stream.shutdown(Shutdown::Both));
        }
    }

    /// The watch that this request sets off. Counts it for all others that look out for it.
    fn seen(&self, matches: impl Fn(Sight) -> bool) -> Option<Armed> {
        let mut watches = self.watches.lock().expect("no panic while locked");
        let mut hit = None;
        for (n, watch) in watches.iter_mut().enumerate().filter(|(_, watch)| matches(watch.sight)) {
            if watch.skip > 0 {
                watch.skip -= 1;
            } else if hit.is_none() {
                hit = Some(n);
            }
        }
        let Watch { moment, act, fired, .. } = watches.remove(hit?);
        Some(Armed { moment, act, fired })
    }

    fn wait_while_stalled(&self) {
        let since = Instant::now();
        while self.stalls.load(Ordering::SeqCst) && !self.ended.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
            assert!(since.elapsed() < Duration::from_secs(600), "a stall that nobody ends");
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.ended.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else { continue };
        if shared.refuses.load(Ordering::SeqCst) {
            continue; // Dropped: closed.
        }
        // The server may be away: then the client finds its connection closed.
        if let Ok(server) = TcpStream::connect(("127.0.0.1", shared.upstream)) {
            drop(serve(client, server, shared));
        }
    }
}

fn serve(client: TcpStream, server: TcpStream, shared: &Arc<Shared>) -> io::Result<()> {
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        shared.open.lock().expect("no panic while locked").push(stream.try_clone()?);
    }
    let (up, down) = ((client.try_clone()?, server.try_clone()?), (server, client));
    match shared.speaks {
        Speaks::Kafka => kafka::serve(up, down, shared),
        Speaks::Postgres => postgres::serve(up, down, shared),
        Speaks::Anything => {
            wire::pump(up, shared, wire::copy);
            wire::pump(down, shared, wire::copy);
        }
    }
    Ok(())
}
