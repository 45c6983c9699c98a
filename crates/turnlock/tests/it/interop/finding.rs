//! Java's holds among what is found.

use turnlock::Kind as Found;
use turnlock_testkit::eventually;

use super::{JavaCase, LIMIT, Visit};
use crate::cases;
use crate::rig::Kind;

pub(super) const CASES: &[JavaCase] = cases![javas_hold_is_found_and_nobody_knows_who_it_is];

async fn javas_hold_is_found_and_nobody_knows_who_it_is(visit: Visit) {
    let (java, client) = (visit.java("one"), visit.client().await);
    let kind = match visit.kind {
        Kind::Fenced => Found::Fenced,
        Kind::Write => Found::Write,
        // A fair lock is known by its queue.
        _ => Found::Lock,
    };
    let ours = client.lock(&visit.name()).lock().await.expect("free");
    for name in visit.names() {
        java.does(&name, "lock 60000").await;
        java.does(&name, "lock 60000").await;
        let pattern = turnlock::Glob::escape(&name);
        let found = client.find(&pattern, 10).await.expect("an answer");
        let [thing] = &found.things[..] else { panic!("{name:?} in {found:?}") };
        assert_eq!((thing.kind, &thing.name, thing.holders.len()), (kind, &name, 1));
        let holder = &thing.holders[0];
        assert_eq!((holder.owner.to_string(), holder.count), (visit.owner("one").await, 2));
        assert_eq!(client.look_up(&name).await.expect("an answer").expect("held").kind, kind);
        let owners = [holder.owner.clone(), ours.owner_id().clone()];
        eventually("we are known, and Java is not", LIMIT, async || {
            let who = client.identities(&owners).await.expect("an answer");
            who[0].is_none() && who[1].is_some()
        })
        .await;
        assert!(client.force_unlock(kind, &name, Some(&holder.owner)).await.expect("an answer"));
        java.says(&name, "isLocked", "false").await;
        assert_eq!(client.find(&pattern, 10).await.expect("an answer").things, []);
    }
    let all = client.find("*", 1_000).await.expect("an answer");
    assert_eq!(all.things.len(), 1, "nothing but what is held is shown: {all:?}");
}
