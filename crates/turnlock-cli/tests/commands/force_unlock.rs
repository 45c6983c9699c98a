//! `unlock --force`.

use std::time::Duration;

use turnlock_testkit::within;

use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    unlock_releases_the_lock,
    without_a_terminal_yes_is_required,
    if_owner_unlocks_only_this_owner,
    readers_are_unlocked_together_or_one_by_one,
    permits_are_released_by_id_or_all,
];

async fn unlock_releases_the_lock(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let guard = client.lock("orders").lock().await.unwrap();
    fixture.until_identified(&[&client]).await;
    let ended = fixture.run(&["unlock", "--force", "--yes", "orders"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("(holder)") && ended.err.contains(guard.owner_id().as_str()), "{ended:?}");
    assert!(!client.lock("orders").is_locked().await.unwrap());
    let ended = fixture.run(&["unlock", "--force", "--yes", "orders"]).await;
    assert_eq!(ended.code, Some(1), "already unlocked: {ended:?}");
    assert!(ended.err.contains("orders is not held"), "{ended:?}");
}

async fn without_a_terminal_yes_is_required(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    let ended = fixture.run(&["unlock", "--force", "orders"]).await;
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("--yes"), "{ended:?}");
    let ended = fixture.run(&["unlock", "--yes", "orders"]).await;
    assert_eq!(ended.code, Some(64), "{ended:?}");
    assert!(ended.err.contains("--force"), "{ended:?}");
    assert!(client.lock("orders").is_locked().await.unwrap());
}

async fn if_owner_unlocks_only_this_owner(fixture: Fixture) {
    let client = fixture.client("holder").await;
    for lock in [client.lock("a"), client.fair_lock("b"), client.fenced_lock("c"), client.plain_lock("d")] {
        let name = lock.name();
        let guard = lock.lock().await.unwrap();
        let other = fixture.run(&["unlock", "--force", "--yes", name, "--if-owner", "another:1"]).await;
        assert_eq!(other.code, Some(1), "{other:?}");
        assert!(lock.is_locked().await.unwrap(), "{name}");
        let owner = guard.owner_id().as_str();
        let this = fixture.run(&["unlock", "--force", "--yes", name, "--if-owner", owner]).await;
        assert_eq!(this.code, Some(0), "{this:?}");
        assert!(!lock.is_locked().await.unwrap(), "{name}");
    }
}

async fn readers_are_unlocked_together_or_one_by_one(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let lock = client.read_write_lock("prices");
    let first = lock.reader().lock().await.unwrap();
    let second = lock.reader().lock().await.unwrap();
    let owner = first.owner_id().as_str();
    let ended = fixture.run(&["unlock", "--force", "--yes", "prices", "--if-owner", owner]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let holders = lock.inspect().await.unwrap().holders;
    assert_eq!(holders.iter().map(|holder| &holder.owner).collect::<Vec<_>>(), [second.owner_id()]);
    let _third = lock.reader().lock().await.unwrap();
    let ended = fixture.run(&["unlock", "--force", "--yes", "prices"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!lock.inspect().await.unwrap().is_locked());
    let write = lock.writer().lock().await.unwrap();
    let ended = fixture.run(&["unlock", "--force", "--yes", "prices"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!lock.inspect().await.unwrap().is_locked());
    drop((second, write));
}

async fn permits_are_released_by_id_or_all(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let semaphore = client.permit_semaphore("slots");
    semaphore.try_set_permits(2).await.unwrap();
    let [one, _other] = [semaphore.acquire(1).await.unwrap(), semaphore.acquire(1).await.unwrap()];
    let id = &one.ids()[0];
    let ended = fixture.run(&["unlock", "--force", "--yes", "slots", "--if-owner", id]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let next = within(Duration::from_secs(10), "the freed permit", semaphore.acquire(1)).await.unwrap();
    let ended = fixture.run(&["unlock", "--force", "--yes", "slots"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(semaphore.available().await.unwrap(), 2, "all permits are available");
    drop((one, next));
}
