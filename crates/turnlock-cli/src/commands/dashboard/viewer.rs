use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::Event;
use futures_util::Stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::feed::{Feed, Message};

/// One open page: a stream of server-sent events.
///
/// A page that reads slowly holds up no other: it misses messages, and then gets a new snapshot.
pub(super) struct Viewer {
    feed: Arc<Feed>,
    messages: Receiver<Arc<Message>>,
    /// The version of the state that the page has. `None` before the first snapshot, and after a missed message.
    version: Option<u64>,
    _permit: OwnedSemaphorePermit,
}

impl Viewer {
    /// `None` if there are too many.
    pub(super) fn new(feed: &Arc<Feed>) -> Option<Self> {
        let (messages, permit) = feed.subscribe()?;
        Some(Self { feed: Arc::clone(feed), messages, version: None, _permit: permit })
    }

    /// Returns the events for the page, until the program ends.
    pub(super) fn into_events(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures_util::stream::unfold(self, |mut viewer| async move {
            let event = viewer.next().await?;
            Some((Ok(event), viewer))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.version.is_none()
                && let Some(snapshot) = self.feed.snapshot()
            {
                self.version = Some(snapshot.version);
                return Some(event(&snapshot));
            }
            match self.messages.recv().await {
                // The first snapshot contains it.
                Ok(message) if self.version.is_some_and(|version| message.version <= version) => {}
                Ok(message) if message.event == "outage" => return Some(event(&message)),
                Ok(message) if self.version.is_some() => return Some(event(&message)),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => self.version = None,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn event(message: &Message) -> Event {
    Event::default().event(message.event).data(&message.data)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use axum::response::IntoResponse;
    use axum::response::sse::Sse;
    use futures_util::StreamExt;

    use super::*;
    use crate::commands::dashboard::observation::Observation;

    /// More messages than the server keeps for a viewer.
    const MESSAGES: usize = 40;

    /// Reads the next message, as a browser gets it.
    async fn next(body: &mut (impl Stream<Item = Result<axum::body::Bytes, axum::Error>> + Unpin)) -> String {
        let chunk = tokio::time::timeout(Duration::from_secs(30), body.next()).await.expect("a message");
        String::from_utf8(chunk.unwrap().unwrap().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_viewer_that_does_not_read_holds_up_no_other_and_gets_a_new_list() {
        let feed = Arc::new(Feed::new());
        let viewer = || {
            let events = Viewer::new(&feed).expect("room").into_events();
            Sse::new(events).into_response().into_body().into_data_stream()
        };
        let (mut slow, mut other) = (pin!(viewer()), pin!(viewer()));
        feed.publish(Ok(Observation::default()));
        for viewer in [&mut slow, &mut other] {
            assert!(next(viewer).await.starts_with("event: snapshot"));
        }
        for _ in 0..MESSAGES {
            feed.publish(Ok(Observation::default()));
            assert!(next(&mut other).await.starts_with("event: change"));
        }
        assert!(next(&mut slow).await.starts_with("event: snapshot"));
    }
}
