use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use turnlock_store::{Failure, Sent, StepReply, clock};

use super::{Denial, Server, World, denied, in_doubt};

/// A request to the directory of a server.
pub(in crate::sim) trait Question<T>: Fn(&mut Server) -> T + Clone + Send + 'static {}

impl<T, Q: Fn(&mut Server) -> T + Clone + Send + 'static> Question<T> for Q {}

impl World {
    /// Sends a request to the directory, and waits for the reply. It meets the same faults as steps.
    pub(in crate::sim) async fn ask<T: Send + 'static>(
        self: Arc<Self>,
        link: usize,
        limit: Duration,
        question: impl Question<T>,
    ) -> Result<StepReply<T>, Failure> {
        self.connect(link, limit).await?;
        let (at, deadline) = (clock::now(), Instant::now() + limit);
        let (connection, arrival, copy) = {
            let mut state = self.0.lock();
            let Some(connection) = state.links[link].connection else {
                return Err(Failure::unavailable("the connection was lost"));
            };
            let arrival = state.arrival(link);
            (connection, arrival, state.copy_of(arrival, true))
        };
        if let Some(copied) = copy {
            let (world, question) = (Arc::clone(&self), question.clone());
            tokio::spawn(async move {
                sleep_until(copied).await;
                world.answer(link, &question);
            });
        }
        let (sender, receiver) = oneshot::channel();
        let world = Arc::clone(&self);
        tokio::spawn(async move {
            sleep_until(arrival).await;
            let (is_lost, delay) = {
                let mut state = world.0.lock();
                (state.links[link].connection != Some(connection) && state.rng.bool(), state.delay())
            };
            let answer = if is_lost { None } else { world.answer(link, &question) };
            sleep(delay).await;
            if let Some(answer) = answer.filter(|_| world.0.lock().links[link].connection == Some(connection))
            {
                // Its caller may be gone.
                let _ = sender.send(answer);
            }
        });
        let sent = Sent { connection, at };
        match timeout_at(deadline, receiver).await {
            Ok(Ok(answer)) => Ok(StepReply::new(answer?, sent)),
            Ok(Err(_)) => Err(in_doubt("the connection broke", sent)),
            Err(_) => Err(in_doubt("no reply in time", sent)),
        }
    }

    /// Executes a request. `None` if the server is down: it replies nothing.
    fn answer<T>(&self, link: usize, question: &impl Question<T>) -> Option<Result<T, Failure>> {
        let mut state = self.0.lock();
        let is_denied = state.links[link].denial == Denial::All;
        let server = state.server(link);
        if server.is_down {
            return None;
        }
        if is_denied {
            return Some(Err(denied()));
        }
        Some(server.check_ready().map(|()| question(server)))
    }
}
