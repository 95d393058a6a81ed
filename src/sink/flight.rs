//! Messages that were sent and whose answers are still out: bounded, and answered for in the order of sending.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::time::{Instant, timeout_at};

/// The number of the message, and its answer; none where it did not come in time.
pub(super) type Answered<T> = (usize, Option<T>);

pub(super) struct Flight<'a, T> {
    out: VecDeque<(usize, Waiting<'a, T>)>,
    out_max: usize,
    deadline: Instant,
}

enum Waiting<'a, T> {
    For(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
    Over(T),
}

impl<'a, T> Flight<'a, T> {
    pub fn new(out_max: usize, deadline: Instant) -> Flight<'a, T> {
        Flight { out: VecDeque::new(), out_max: out_max.max(1), deadline }
    }

    /// Begins the future at once (some clients queue a message for sending when they are first polled) and keeps it.
    pub fn send(&mut self, number: usize, answer: impl Future<Output = T> + Send + 'a) {
        let mut answer: Pin<Box<dyn Future<Output = T> + Send + 'a>> = Box::pin(answer);
        let waiting = match at_hand(&mut answer) {
            Some(over) => Waiting::Over(over),
            None => Waiting::For(answer),
        };
        self.out.push_back((number, waiting));
    }

    /// The oldest answer, if it is at hand or if no more may be out; none where the next message can be sent.
    pub async fn make_room(&mut self) -> Option<Answered<T>> {
        if self.out.len() >= self.out_max {
            return self.next().await;
        }
        let (_, front) = self.out.front_mut()?;
        if let Waiting::For(answer) = front {
            *front = Waiting::Over(at_hand(answer)?);
        }
        self.next().await
    }

    /// The oldest answer, waited for until the deadline; none where none is out. Behind the deadline each is still
    /// looked at: what came in time counts, however late it is asked for.
    pub async fn next(&mut self) -> Option<Answered<T>> {
        let (number, front) = self.out.pop_front()?;
        Some(match front {
            Waiting::Over(answer) => (number, Some(answer)),
            Waiting::For(answer) => (number, timeout_at(self.deadline, answer).await.ok()),
        })
    }
}

/// What a future that is ready answers. It must be polled again, with a waker, where it is not.
fn at_hand<T>(answer: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(over) => Some(over),
        Poll::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime starts").block_on(future)
    }

    #[test]
    fn answers_come_in_the_order_of_sending_and_in_time() {
        block_on(async {
            let mut flight = Flight::new(3, Instant::now() + Duration::from_millis(50));
            let (first, answer) = oneshot::channel();
            flight.send(0, async { answer.await.expect("an answer") });
            flight.send(1, async { 'b' });
            assert_eq!(flight.make_room().await, None, "the oldest is not there, and there is room");
            first.send('a').expect("it is waited for");
            assert_eq!(flight.make_room().await, Some((0, Some('a'))));
            flight.send(2, std::future::pending());
            flight.send(3, async { 'd' });
            assert_eq!(flight.make_room().await, Some((1, Some('b'))), "three are out");
            assert_eq!(flight.make_room().await, None);
            assert_eq!(flight.next().await, Some((2, None)), "its time is over");
            assert_eq!(flight.next().await, Some((3, Some('d'))), "this one had come in time");
            assert_eq!(flight.next().await, None);
            let mut full = Flight::new(1, Instant::now() + Duration::from_millis(20));
            full.send(0, std::future::pending::<char>());
            assert_eq!(full.make_room().await, Some((0, None)), "no other may be out: it is waited for");
        });
    }
}
