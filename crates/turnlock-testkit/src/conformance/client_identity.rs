//! Client records: the identity that a client writes to the store.

use std::time::SystemTime;

use crate::conformance::{Case, Fixture, KindClient, cases, ms, until_waiting};
use crate::eventually;
use turnlock::{Client, Identity, OwnerId};

pub const CASES: &[Case] = cases![
    holders_and_waiters_are_identified needs Kind(Fair),
    unknown_owners_have_no_identity needs Kind(Permits),
    an_announced_hold_has_a_start_time,
    announced_permits_are_identified needs Kind(Permits),
    a_hold_that_outlasts_its_client_has_an_end_time needs Kind(Permits),
    the_blocking_interface_announces_too,
];

/// The identity of the client of one owner.
pub async fn identity(reader: &Client, owner: &OwnerId) -> Option<Identity> {
    let mut all = reader.identities(std::slice::from_ref(owner)).await.expect("a reply");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The same, once the store has it.
pub async fn written_identity(reader: &Client, owner: &OwnerId) -> Identity {
    eventually("the record is written", ms(5_000), async || identity(reader, owner).await.is_some()).await;
    identity(reader, owner).await.expect("written")
}

async fn client_with_label(fixture: &Fixture, label: &str) -> KindClient {
    fixture.client_with(Client::builder().poll_interval(crate::conformance::NO_POLL).label(label)).await
}

async fn holders_and_waiters_are_identified(fixture: Fixture) {
    let (before, name) = (SystemTime::now() - ms(1), fixture.name());
    let (one, two) =
        (client_with_label(&fixture, "the first").await, client_with_label(&fixture, "the second").await);
    let guard = one.fair_lock(&name).lock().await.expect("free");
    let lock = two.fair_lock(&name);
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&lock, 1).await;
    let waiter = lock.inspect().await.expect("a reply").queue.remove(0);
    let reader = fixture.client().await;
    for (owner, label) in [(guard.owner_id(), "the first"), (&waiter, "the second")] {
        let identity = written_identity(&reader, owner).await;
        assert_eq!((identity.label.as_str(), identity.pid), (label, std::process::id()));
        assert!(
            !identity.host.is_empty() && identity.started >= before && identity.started <= SystemTime::now(),
            "{identity:?}"
        );
        assert_eq!(identity.since_of(owner), None, "it was not announced");
    }
    guard.unlock().await.expect("held");
    task.await.expect("no panic").unlock().await.expect("held");
    let unnamed = fixture.client().await;
    let guard = unnamed.lock(&name).lock().await.expect("free");
    let label = written_identity(&reader, guard.owner_id()).await.label;
    let program = std::env::current_exe().expect("a program");
    assert_eq!(program.file_name().and_then(|name| name.to_str()), Some(&*label), "the name of this program");
}

async fn unknown_owners_have_no_identity(fixture: Fixture) {
    let (client, reader) = (fixture.client().await, fixture.client().await);
    let guard = client.lock(&fixture.name()).lock().await.expect("free");
    let semaphore = client.permit_semaphore(&fixture.name());
    semaphore.set_permits(1).await.expect("set");
    let permits = semaphore.acquire(1).await.expect("free");
    let identity = written_identity(&reader, guard.owner_id()).await;
    let owner = OwnerId::from_wire;
    let owners = [
        owner("07070707-0707-4707-8707-070707070707:1"),
        guard.owner_id().clone(),
        owner(&permits.ids()[0]),
        owner(""),
        owner("*"),
        owner(&format!("{}:77", client.id())),
        owner(&format!("{}", client.id())),
        owner(&"x".repeat(10_000)),
    ];
    let all = reader.identities(&owners).await.expect("a reply");
    assert_eq!(all, [None, Some(identity.clone()), None, None, None, Some(identity), None, None]);
    assert!(reader.identities(&[]).await.expect("a reply").is_empty());
    let many: Vec<_> =
        (0..1_000).map(|number| owner(&format!("07070707-0707-4707-8707-{number:012}:1"))).collect();
    assert_eq!(reader.identities(&many).await.expect("a reply"), vec![None; 1_000]);
}

async fn an_announced_hold_has_a_start_time(fixture: Fixture) {
    let (client, reader) = (fixture.client().await, fixture.client().await);
    let before = SystemTime::now();
    let one = client.lock(&fixture.name()).lock().await.expect("free");
    let after = SystemTime::now();
    tokio::time::sleep(ms(50)).await;
    one.announce().await.expect("written");
    let since = async |owner: &OwnerId| identity(&reader, owner).await.expect("written").since_of(owner);
    let started = since(one.owner_id()).await.expect("announced");
    // Stored in milliseconds.
    assert!(started + ms(1) >= before && started <= after + ms(1), "{before:?} {started:?} {after:?}");
    let two = client.lock(&fixture.name()).lock().await.expect("free");
    assert_eq!(since(two.owner_id()).await, None);
    two.announce().await.expect("written");
    assert_eq!(since(one.owner_id()).await, Some(started), "the first is still announced");
    assert!(since(two.owner_id()).await.is_some());
    let gone = one.owner_id().clone();
    one.unlock().await.expect("held");
    two.announce().await.expect("written");
    assert_eq!(since(&gone).await, None, "a released hold is not announced");
    for _ in 0..100 {
        let guard = client.lock(&fixture.name()).lock().await.expect("free");
        guard.announce().await.expect("written");
        assert!(since(guard.owner_id()).await.is_some(), "however many there are");
    }
    assert!(since(two.owner_id()).await.is_some());
}

async fn announced_permits_are_identified(fixture: Fixture) {
    let client = client_with_label(&fixture, "the holder").await;
    let semaphore = client.permit_semaphore(&fixture.name());
    semaphore.set_permits(4).await.expect("set");
    let before = SystemTime::now() - ms(1);
    let (announced, silent) =
        (semaphore.acquire(3).await.expect("free"), semaphore.acquire(1).await.expect("free"));
    announced.announce().await.expect("written");
    let foreign = ["0123456789abcdef0123456789abcdef", "0123456789ABCDEF", "not an id"].map(str::to_owned);
    let owners = announced.ids().into_iter().chain(silent.ids()).chain(foreign);
    let owners: Vec<_> = owners.map(|id| OwnerId::from_wire(&id)).collect();
    // A file is cleaned up by each client that connects to it.
    for reader in [fixture.client().await, fixture.client().await] {
        let all = reader.identities(&owners).await.expect("a reply");
        for (identity, owner) in all[..3].iter().zip(&owners) {
            let identity = identity.as_ref().expect("announced");
            assert_eq!((identity.label.as_str(), identity.pid), ("the holder", std::process::id()));
            let since = identity.since_of(owner).expect("announced");
            assert!(since >= before && since <= SystemTime::now(), "{before:?} {since:?}");
            assert_eq!(identity.kept_until_of(owner), None);
        }
        assert_eq!(all[3..], [const { None }; 4]);
    }
    silent.announce().await.expect("written");
    assert!(identity(&client, &owners[3]).await.is_some());
    assert!(identity(&client, &owners[0]).await.is_some(), "each hold has a record of its own");
}

async fn a_hold_that_outlasts_its_client_has_an_end_time(fixture: Fixture) {
    let client = client_with_label(&fixture, "the holder").await;
    let (lock, semaphore) = (client.lock(&fixture.name()), client.permit_semaphore(&fixture.name()));
    semaphore.set_permits(1).await.expect("set");
    let (guard, permit) = (lock.lock().await.expect("free"), semaphore.acquire(1).await.expect("free"));
    let owners = [guard.owner_id().clone(), OwnerId::from_wire(&permit.ids()[0])];
    let names = [guard.name().to_owned(), permit.name().to_owned()];
    let before = SystemTime::now();
    let time = ms(600_000);
    guard.unlock_after(time).await.expect("held");
    permit.release_after(time).await.expect("held");
    let after = SystemTime::now();
    assert!(client.shutdown(ms(5_000)).await.is_clean());
    drop((lock, semaphore, client));
    for reader in [fixture.client().await, fixture.client().await] {
        for (owner, name) in owners.iter().zip(&names) {
            let found = reader.inspect(name).await.expect("a reply").expect("held");
            assert_eq!(found.holders[0].owner, *owner);
            let identity = identity(&reader, owner).await.expect("it outlasts its client");
            assert_eq!(identity.label, "the holder");
            let end = identity.kept_until_of(owner).expect("kept");
            assert!(
                end + ms(1) >= before + time && end <= after + time + ms(1),
                "{before:?} {end:?} {after:?}"
            );
            assert!(identity.since_of(owner).is_some_and(|since| since <= after), "also since when");
        }
    }
}

async fn the_blocking_interface_announces_too(fixture: Fixture) {
    let (client, name) = (fixture.blocking_client(), fixture.name());
    let body = move || {
        let guard = client.lock(&name).lock().expect("free");
        guard.announce().expect("written");
        let owner = guard.owner_id().clone();
        let identity =
            client.identities(std::slice::from_ref(&owner)).expect("a reply").remove(0).expect("written");
        assert!(identity.since_of(&owner).is_some() && identity.pid == std::process::id());
    };
    tokio::task::spawn_blocking(body).await.expect("no panic");
}
