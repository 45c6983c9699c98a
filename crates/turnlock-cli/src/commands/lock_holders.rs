use std::time::{Duration, SystemTime};

use serde::{Serialize, Serializer};
use turnlock::{Client, Error, Inspection};

use super::lock_view::{HolderView, LockView};
use super::owner_name;
use crate::duration::format_short;
use crate::escape::escape;

/// The longest time to query the holders of a lock that was not granted.
const QUERY_LIMIT: Duration = Duration::from_secs(1);

/// The holders of a lock that was not granted to a run.
///
/// Serializes to the list of holders of `--json`, as in `docs/program-json.md`.
#[derive(Debug)]
pub(crate) struct LockHolders(LockView);

impl LockHolders {
    /// Queries the holders. `None` if the store does not reply in time, or with an error.
    pub(crate) async fn query(
        client: &Client,
        inspection: impl Future<Output = Result<Inspection, Error>>,
    ) -> Option<Self> {
        let query = async { LockView::load(client, vec![inspection.await.ok()?]).await.ok()?.pop() };
        tokio::time::timeout(QUERY_LIMIT, query).await.ok().flatten().map(Self)
    }

    /// Formats who is in the way, in one line. `None` if the lock is free.
    pub(crate) fn text(&self, now: SystemTime) -> Option<String> {
        let has_queue = !self.0.queue.is_empty();
        self.held_by(now).or_else(|| has_queue.then(|| "others are in the queue".to_owned()))
    }

    /// Formats the holders in one line. `None` if there is none.
    pub(crate) fn held_by(&self, now: SystemTime) -> Option<String> {
        match &self.0.holders[..] {
            [] => None,
            [one] => Some(holder_text(one, now)),
            [one, others @ ..] => Some(format!("{} and {} more", holder_text(one, now), others.len())),
        }
    }
}

impl Serialize for LockHolders {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.holders.serialize(serializer)
    }
}

/// Formats a holder as `held by host:pid (label) for 2m 13s`, or by its id if nothing else is known.
fn holder_text(holder: &HolderView, now: SystemTime) -> String {
    if holder.kept_until.is_some() {
        return holder.line(now);
    }
    let identity = owner_name::identity(holder.host.as_deref(), holder.pid, holder.label.as_deref());
    let holder_name = identity.unwrap_or_else(|| escape(&holder.owner));
    // The clock of the holder may be ahead.
    match holder.since.and_then(|since| now.duration_since(since).ok()) {
        Some(held_for) => format!("held by {holder_name} for {}", format_short(held_for)),
        None => format!("held by {holder_name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lock_view::WaiterView;
    use super::super::lock_view::tests::{held, kept};
    use super::*;

    fn text(lock: LockView) -> Option<String> {
        LockHolders(lock).text(SystemTime::UNIX_EPOCH + Duration::from_secs(135))
    }

    #[test]
    fn holders_are_named_in_one_line() {
        let mut lock = held("nightly");
        assert_eq!(text(lock.clone()).as_deref(), Some("held by web-1:42 (deploy.sh) for 2m 13s"));
        assert_eq!(text(kept("nightly")).as_deref(), Some("kept until 00:03:20Z (deploy.sh)"));
        lock.holders[0].since = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(3_600));
        lock.holders.extend([lock.holders[0].clone(), lock.holders[0].clone()]);
        assert_eq!(text(lock.clone()).as_deref(), Some("held by web-1:42 (deploy.sh) and 2 more"));
        lock.holders.truncate(1);
        (lock.holders[0].host, lock.holders[0].owner) = (None, "java\u{1b}:1".to_owned());
        assert_eq!(text(lock).as_deref(), Some(r"held by java\u{1b}:1"));
    }

    #[test]
    fn control_characters_of_other_clients_are_escaped() {
        let hostile = "\x1b[2J\n\r\t\u{202e}\u{7}\u{9b}";
        let mut identified = held("nightly");
        let mut kept = kept("nightly");
        for holder in [&mut identified.holders[0], &mut kept.holders[0]] {
            holder.owner = hostile.to_owned();
            (holder.host, holder.label) = (Some(hostile.to_owned()), Some(hostile.to_owned()));
        }
        let mut unidentified = identified.clone();
        unidentified.holders[0].host = None;
        for lock in [identified, kept, unidentified] {
            let text = text(lock).expect("a holder");
            let is_printable = |character: char| !character.is_control() && character != '\u{202e}';
            assert!(text.chars().all(is_printable), "{text:?}");
        }
    }

    #[test]
    fn a_free_lock_has_no_holder_to_name() {
        assert_eq!(text(LockView::absent("nightly")), None);
        let queue = vec![WaiterView { owner: "java:1".into(), host: None, pid: None, label: None }];
        let lock = LockView { queue, ..LockView::absent("nightly") };
        assert_eq!(text(lock).as_deref(), Some("others are in the queue"));
    }

    #[test]
    fn holders_are_a_list_in_json() {
        let json = serde_json::to_value(LockHolders(held("nightly"))).unwrap();
        assert_eq!(json, serde_json::to_value(held("nightly")).unwrap()["holders"]);
    }
}
