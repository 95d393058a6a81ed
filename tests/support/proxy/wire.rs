//! What both protocols need: whole frames in, whole frames out, and an end to both directions at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread;

use super::{Armed, Shared, Then};

pub type In = BufReader<TcpStream>;

/// What goes out is sent when nothing more is at hand, or there is much of it.
const SENT_AT_ONCE: usize = 1 << 16;

/// Runs one direction of a connection to its end; then both ends are closed.
pub fn pump(
    (from, to): (TcpStream, TcpStream),
    shared: &Arc<Shared>,
    mut run: impl FnMut(&mut In, &mut Out) -> io::Result<()> + Send + 'static,
) {
    let mut from = BufReader::with_capacity(SENT_AT_ONCE, from);
    let mut out = Out { to, shared: Arc::clone(shared), waiting: Vec::new() };
    thread::spawn(move || {
        // Errors are ends: the other side, or a cut, closed the connection.
        while run(&mut from, &mut out).and_then(|()| out.send_if(from.buffer().is_empty())).is_ok() {}
        drop(from.get_ref().shutdown(Shutdown::Both));
        drop(out.to.shutdown(Shutdown::Both));
    });
}

pub struct Out {
    to: TcpStream,
    shared: Arc<Shared>,
    waiting: Vec<u8>,
}

impl Out {
    pub fn write(&mut self, frame: &[u8]) {
        self.waiting.extend_from_slice(frame);
    }

    /// Sends what was passed on so far, acts, and ends the connection if that is wished.
    pub fn fire(&mut self, armed: Option<Armed>) -> io::Result<()> {
        let Some(armed) = armed else { return Ok(()) };
        self.send()?;
        match armed.fire() {
            Then::Pass => Ok(()),
            Then::Cut => Err(io::Error::other("cut")),
        }
    }

    fn send_if(&mut self, idle: bool) -> io::Result<()> {
        if idle || self.waiting.len() >= SENT_AT_ONCE { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        self.shared.wait_while_stalled();
        self.to.write_all(&self.waiting)?;
        self.waiting.clear();
        Ok(())
    }
}

/// Passes on what is at hand.
pub fn copy(from: &mut In, out: &mut Out) -> io::Result<()> {
    let bytes = from.fill_buf()?;
    let length = bytes.len();
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    out.write(bytes);
    from.consume(length);
    Ok(())
}

pub fn read_exactly(from: &mut In, length: usize) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; length];
    from.read_exact(&mut frame)?;
    Ok(frame)
}
