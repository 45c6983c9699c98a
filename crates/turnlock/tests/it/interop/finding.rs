//! Java's holds in the results of `find`.

use turnlock::Kind as Found;
use turnlock_testkit::eventually;

use super::{Context, JavaCase, SETUP_LIMIT};
use crate::cases;
use crate::fixture::Kind;

pub(super) const CASES: &[JavaCase] = cases![javas_hold_is_found_without_an_identity];

async fn javas_hold_is_found_without_an_identity(context: Context) {
    let (java, client) = (context.java("one"), context.client().await);
    let kind = match context.kind {
        Kind::Fenced => Found::Fenced,
        Kind::Write => Found::Write,
        // A fair lock is recognized by its queue.
        _ => Found::Lock,
    };
    let ours = client.lock(&context.name()).lock().await.expect("free");
    for name in context.names() {
        java.run(&name, "lock 60000").await;
        java.run(&name, "lock 60000").await;
        let pattern = turnlock::Glob::escape(&name);
        let found = client.find(&pattern, 10).await.expect("a reply");
        let [item] = &found.items[..] else { panic!("{name:?} in {found:?}") };
        assert_eq!((item.kind, &item.name, item.holders.len()), (kind, &name, 1));
        let holder = &item.holders[0];
        assert_eq!((holder.owner.to_string(), holder.count), (context.owner("one").await, 2));
        assert_eq!(client.inspect(&name).await.expect("a reply").expect("held").kind, kind);
        let owners = [holder.owner.clone(), ours.owner_id().clone()];
        eventually("our identity is known, and Java's is not", SETUP_LIMIT, async || {
            let identities = client.identities(&owners).await.expect("a reply");
            identities[0].is_none() && identities[1].is_some()
        })
        .await;
        assert!(client.force_unlock(kind, &name, Some(&holder.owner)).await.expect("a reply"));
        java.expect(&name, "isLocked", "false").await;
        assert_eq!(client.find(&pattern, 10).await.expect("a reply").items, []);
    }
    let all = client.find("*", 1_000).await.expect("a reply");
    assert_eq!(all.items.len(), 1, "only held locks are listed: {all:?}");
}
