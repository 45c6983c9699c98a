use axum::http::StatusCode;
use serde::Deserialize;
use turnlock::{Client, Error};
use turnlock_core::error_chain;

use super::feed::Feed;
use crate::commands::fields::kind_name;
use crate::commands::lock_view::{LockView, mode_name};
use crate::commands::unlock::{cannot_unlock, release};
use crate::escape::{escape, escape_message};

/// A request to release a lock by force: what the viewer saw and confirmed.
#[derive(Debug, Deserialize)]
pub(super) struct UnlockRequest {
    name: String,
    kind: String,
    owner: String,
    mode: String,
    token: Option<u64>,
    /// When a query first found the hold. Owners repeat: those of Redisson are a client and a thread.
    seen_ms: u64,
}

impl UnlockRequest {
    /// Releases the hold, if it is still the one that the viewer confirmed. Returns a sentence.
    pub(super) async fn perform(&self, client: &Client, feed: &Feed) -> (StatusCode, String) {
        match self.try_perform(client, feed).await {
            Ok(Ok(done)) => (StatusCode::OK, done),
            Ok(Err(reason)) => (StatusCode::CONFLICT, reason),
            Err(error) => (StatusCode::BAD_GATEWAY, escape_message(&error_chain(&error))),
        }
    }

    async fn try_perform(&self, client: &Client, feed: &Feed) -> Result<Result<String, String>, Error> {
        let name = escape(&self.name);
        let Some(mut lock) = client.inspect(&self.name).await? else {
            return Ok(Err(format!("{name} is not held")));
        };
        if let Some(reason) = cannot_unlock(&lock) {
            return Ok(Err(reason));
        }
        let kind = kind_name(lock.kind);
        // One owner can hold both sides of a read-write lock.
        lock.holders
            .retain(|holder| holder.owner.as_str() == self.owner && mode_name(holder.role) == self.mode);
        if lock.holders.is_empty() || form(kind) != form(&self.kind) {
            return Ok(Err(format!(
                "{name} has changed: it is a {kind} with another holder, of another kind, or held in another mode"
            )));
        }
        let views = LockView::load(client, vec![lock.clone()]).await?;
        let is_confirmed = |view: &LockView| {
            // Not every reading has a token: see `form`.
            let has_other_token = self.token.zip(view.token).is_some_and(|(shown, now)| shown != now);
            !has_other_token && view.holders.iter().all(|holder| feed.has_hold(view, holder, self.seen_ms))
        };
        if !views.iter().all(is_confirmed) {
            return Ok(Err(format!(
                "this owner has acquired {name} again, or it is not known that it has not: look at the lock again"
            )));
        }
        release(client, &lock, true).await
    }
}

/// The kind as far as Redis tells it: a fair lock has the form of a lock without waiters, and a fenced lock without its token too.
fn form(kind: &str) -> &str {
    if matches!(kind, "fair-lock" | "fenced-lock") { "lock" } else { kind }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_body_is_what_was_sent_or_refused(
            texts: [[char; 3]; 4], token: Option<u64>, seen: u64, cut in 0..200_usize, at in 0..200_usize, byte: u8,
        ) {
            let texts = texts.map(String::from_iter);
            let [name, kind, owner, mode] = &texts;
            let body = json!({ "name": name, "kind": kind, "owner": owner, "mode": mode, "token": token, "seen_ms": seen });
            let body = body.to_string();
            let read: UnlockRequest = serde_json::from_slice(body.as_bytes()).unwrap();
            prop_assert_eq!(([read.name, read.kind, read.owner, read.mode], read.token, read.seen_ms), (texts, token, seen));
            let mut bytes = body.into_bytes();
            let len = bytes.len();
            // Only the whole object is a request.
            prop_assert!(serde_json::from_slice::<UnlockRequest>(&bytes[..cut % len]).is_err());
            bytes[at % len] = byte;
            let _ = serde_json::from_slice::<UnlockRequest>(&bytes);
        }
    }
}
