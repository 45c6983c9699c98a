//! Cases for defects that were found in review.

use crate::conformance::{Case, Fixture, PROMPT, cases, ms};
use crate::{eventually, within};
use turnlock::Error;

/// The cases for every store.
pub(super) const CASES: &[Case] = cases![
    names_that_share_a_channel_are_two_locks,
    an_owner_that_downgraded_is_known_as_a_reader needs Kind(Read) Kind(Write),
    a_fair_waiter_that_is_not_polled_is_skipped needs Kind(Fair),
    too_many_permits_at_once_are_refused needs Kind(Permits),
];

/// By Redisson's brace rule, `n` and `{n}` have the same channel and different keys.
async fn names_that_share_a_channel_are_two_locks(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let owner = one.owner();
    let name = fixture.name();
    let names = [name.clone(), format!("{{{name}}}")];
    let [bare, braced] = names.each_ref().map(|name| one.reentrant(name).with_owner(&owner));
    let first = bare.lock().await.expect("free");
    let second = braced.lock().await.expect("another lock");
    assert_eq!((first.hold_count(), second.hold_count(), second.name()), (1, 1, names[1].as_str()));
    assert!(first.is_valid() && second.is_valid());
    assert!(two.reentrant(&names[1]).try_lock().await.expect("a reply").is_busy());
    // Each release wakes the waiter of its own lock, although both receive the message.
    let waiters = names.each_ref().map(|name| {
        let lock = two.reentrant(name);
        tokio::spawn(async move { lock.lock().await.expect("acquired") })
    });
    for name in &names {
        eventually("the waiter waits", ms(20_000), async || {
            two.reentrant(name).inspect().await.is_ok_and(|seen| seen.waiting_here == 1)
        })
        .await;
    }
    let [bare_waiter, braced_waiter] = waiters;
    second.unlock().await.expect("held");
    let braced = within(PROMPT, "the second is woken", braced_waiter).await.expect("no panic");
    assert!(first.is_valid() && braced.is_valid());
    first.unlock().await.expect("held");
    drop(within(PROMPT, "the first is woken", bare_waiter).await.expect("no panic"));
}

async fn an_owner_that_downgraded_is_known_as_a_reader(fixture: Fixture) {
    let client = fixture.client().await;
    let owner = client.owner();
    let lock = client.read_write_lock(&fixture.name()).with_owner(&owner);
    let reader = lock.write().await.expect("free").downgrade().await.expect("held");
    assert!(lock.reader().is_held_by(&owner).await.expect("a reply"));
    let again =
        within(PROMPT, "the owner already reads", lock.reader().lock()).await.expect("the same owner");
    assert_eq!(again.hold_count(), 2);
    let error = within(PROMPT, "the deadlock is detected", lock.writer().lock())
        .await
        .expect_err("it would wait for itself");
    assert!(matches!(error, Error::WouldDeadlock { .. }), "{error}");
    drop((reader, again));
}

/// A future that is not polled, as in a busy `select!` loop, stays in the queue.
async fn a_fair_waiter_that_is_not_polled_is_skipped(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.fair_lock(&name), fixture.client().await.fair_lock(&name));
    let held = one.lock().await.expect("free");
    let mut asleep = Box::pin(two.lock());
    let enter = async {
        while two.inspect().await.expect("a reply").queue.is_empty() {
            assert!(tokio::time::timeout(ms(20), &mut asleep).await.is_err(), "it is held");
        }
    };
    within(ms(20_000), "the waiter waits", enter).await;
    held.unlock().await.expect("held");
    let next = within(ms(15_000), "the next waiter skips it", one.lock()).await.expect("acquired");
    next.unlock().await.expect("held");
    within(ms(15_000), "it queues again", asleep).await.expect("acquired").unlock().await.expect("held");
}

async fn too_many_permits_at_once_are_refused(fixture: Fixture) {
    let semaphore = fixture.client().await.permit_semaphore(&fixture.name());
    for count in [10_001, 2_000_000_000, u32::MAX] {
        let error = semaphore.try_acquire(count).await.expect_err("too many");
        assert!(matches!(error, Error::BadArgument { .. }), "{error}");
    }
}
