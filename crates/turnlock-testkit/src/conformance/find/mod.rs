//! `find`, `inspect` and `force_unlock` for all kinds and holders.

mod force_unlock;

use std::collections::BTreeMap;

use crate::conformance::{Case, Fixture, cases, ms, until_waiting};
use turnlock::{Client, Error, Glob, Guard, Kind, OwnerId, Permits, Role};

/// The cases for every store.
pub const CASES: &[&[Case]] = &[
    cases![
        everything_held_is_found needs Kind(Permits) Kind(Semaphore) Kind(Latch) Kind(Fenced) Kind(Plain) Kind(Read) Kind(Write),
        a_fair_lock_is_known_by_its_queue needs Kind(Fair),
        readers_and_writers_are_distinguished needs Kind(Read) Kind(Write),
        a_pattern_finds_the_matching_names,
        hostile_names_are_found_inspected_and_unlocked,
        the_limit_is_applied_and_reported,
        a_key_prefix_is_not_part_of_the_name,
        inspect_takes_names_literally needs Kind(Fenced) Kind(Plain) Kind(Read) Kind(Write) Kind(Permits),
        inspect_shows_tokens_and_counts_without_a_holder needs Kind(Fenced) Kind(Semaphore) Kind(Latch),
        the_blocking_interface_finds_the_same_locks,
    ],
    force_unlock::CASES,
];

/// One held lock of each kind that `find` shows, and permits.
#[derive(Debug)]
pub struct HeldLocks {
    pub locks: BTreeMap<String, (Kind, Guard)>,
    pub permits: Permits,
}

impl HeldLocks {
    pub async fn new(fixture: &Fixture, client: &Client) -> Self {
        let rw = |name: &str| client.read_write_lock(name);
        let mut locks = BTreeMap::new();
        for (suffix, kind) in [
            ("lock", Kind::Lock),
            ("fenced", Kind::Fenced),
            ("plain", Kind::Plain),
            ("read", Kind::Read),
            ("write", Kind::Write),
        ] {
            let name = fixture.named(suffix);
            let lock = match kind {
                Kind::Fenced => client.fenced_lock(&name),
                Kind::Plain => client.plain_lock(&name),
                Kind::Read => rw(&name).reader(),
                Kind::Write => rw(&name).writer(),
                _ => client.lock(&name),
            };
            locks.insert(name, (kind, lock.lock().await.expect("free")));
        }
        let permits = client.permit_semaphore(&fixture.named("permits"));
        permits.set_permits(3).await.expect("set");
        let permits = permits.acquire(2).await.expect("free");
        Self { locks, permits }
    }
}

pub fn names(found: &turnlock::Found) -> Vec<&str> {
    found.items.iter().map(|item| item.name.as_str()).collect()
}

async fn everything_held_is_found(fixture: Fixture) {
    let (client, all) = (fixture.client().await, fixture.named("*"));
    let found = client.find(&all, 100).await.expect("a reply");
    assert!(found.items.is_empty() && found.is_complete, "{found:?}");
    let held = HeldLocks::new(&fixture, &client).await;
    // Primitives without holders are not found.
    client.semaphore(&fixture.named("semaphore")).try_set_permits(2).await.expect("set");
    client.latch(&fixture.named("latch")).try_set_count(2).await.expect("set");
    client.permit_semaphore(&fixture.named("idle")).set_permits(3).await.expect("set");
    let other = fixture.client().await;
    let found = other.find(&all, 100).await.expect("a reply");
    assert!(found.is_complete);
    let mut expected: Vec<_> = held.locks.keys().cloned().chain([fixture.named("permits")]).collect();
    expected.sort();
    assert_eq!(names(&found), expected, "sorted, and each once");
    for item in &found.items {
        let Some((kind, guard)) = held.locks.get(&item.name) else {
            assert_eq!((item.kind, item.holders.len(), item.available), (Kind::Permits, 2, Some(1)));
            continue;
        };
        assert_eq!((item.kind, &item.holders[0].owner), (*kind, guard.owner_id()));
        assert!(item.ttl.is_some_and(|ttl| ttl > ms(1_000)) && !item.holders[0].is_mine, "{item:?}");
        assert_eq!(item.token, guard.token());
    }
    let own = client.find(&fixture.named("lock"), 1).await.expect("a reply");
    assert!(own.items[0].holders[0].is_mine && own.is_complete);
    for (_, guard) in held.locks.into_values() {
        guard.unlock().await.expect("held");
    }
    held.permits.release().await.expect("held");
    let found = other.find(&all, 100).await.expect("a reply");
    assert!(found.items.is_empty() && found.is_complete, "{found:?}");
}

async fn a_fair_lock_is_known_by_its_queue(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let lock = client.fair_lock(&name);
    let guard = lock.lock().await.expect("free");
    let task = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    until_waiting(&lock, 1).await;
    let found = client.find(&name, 10).await.expect("a reply");
    assert_eq!((found.items[0].kind, found.items[0].queue.len()), (Kind::Fair, 1));
    let seen = client.inspect(&name).await.expect("a reply").expect("it is held");
    assert_eq!(
        seen,
        client.fair_lock(&name).inspect().await.map(|other| same_ttl(other, &seen)).expect("a reply")
    );
    guard.unlock().await.expect("held");
    task.await.expect("no panic").expect("acquired").unlock().await.expect("held");
}

/// Returns `seen` with the ttl of `other`, so that they can be compared.
fn same_ttl(seen: turnlock::Inspection, other: &turnlock::Inspection) -> turnlock::Inspection {
    let mut seen = seen;
    seen.ttl = other.ttl;
    seen
}

async fn readers_and_writers_are_distinguished(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let lock = client.read_write_lock(&name);
    let writer = lock.writer().lock().await.expect("free");
    let under = lock.reader().lock_with(&writer).await.expect("the same owner");
    let found = client.find(&name, 10).await.expect("a reply").items.remove(0);
    assert_eq!(found.kind, Kind::Write);
    let mut roles: Vec<_> = found.holders.iter().map(|holder| (&holder.owner, holder.role)).collect();
    roles.sort_by_key(|(_, role)| *role == Role::Writer);
    assert_eq!(roles, [(under.owner_id(), Role::Reader), (writer.owner_id(), Role::Writer)]);
    writer.unlock().await.expect("held");
    let more = lock.reader().lock().await.expect("readers share the lock");
    let found = client.find(&name, 10).await.expect("a reply").items.remove(0);
    assert_eq!((found.kind, found.holders.len()), (Kind::Read, 2));
    drop((under, more));
}

async fn a_pattern_finds_the_matching_names(fixture: Fixture) {
    let client = fixture.client().await;
    let mut guards = Vec::new();
    for suffix in ["a1", "a2", "b1", "ö1", "a*"] {
        guards.push(client.lock(&fixture.named(suffix)).lock().await.expect("free"));
    }
    for (pattern, suffixes) in [
        ("*", &["a*", "a1", "a2", "b1", "ö1"][..]),
        ("a?", &["a*", "a1", "a2"]),
        ("?1", &["a1", "b1", "ö1"]),
        ("[ab]1", &["a1", "b1"]),
        ("[^a]1", &["b1", "ö1"]),
        ("[a-n]?", &["a*", "a1", "a2", "b1"]),
        ("a\\*", &["a*"]),
        ("a", &[]),
        ("", &[]),
        ("*2*", &["a2"]),
    ] {
        let found = client.find(&fixture.named(pattern), 100).await.expect("a reply");
        let expected: Vec<_> = suffixes.iter().map(|suffix| fixture.named(suffix)).collect();
        assert_eq!(names(&found), expected, "{pattern}");
    }
    drop(guards);
}

/// Returns names with control characters, patterns and other special text.
fn hostile_names(fixture: &Fixture) -> Vec<String> {
    let suffixes = [
        " ",
        "a b",
        "a\nb",
        "\r\n",
        "\u{1b}[31mred",
        "*",
        "?",
        "[ab]",
        "[",
        "]",
        "\\",
        "a\\*",
        "^",
        "😀",
        "\0",
        "a\0b",
        "\u{202e}x",
        "%s",
        "'\"",
        "--",
        "-",
    ];
    let mut names: Vec<_> = suffixes.iter().map(|suffix| fixture.named(suffix)).collect();
    names.push(fixture.named(&"x".repeat(4_096 - fixture.named("").len())));
    names
}

async fn hostile_names_are_found_inspected_and_unlocked(fixture: Fixture) {
    let (client, bystander) = (fixture.client().await, fixture.named("ab"));
    let _bystander = client.lock(&bystander).lock().await.expect("free");
    let mut guards = Vec::new();
    for name in hostile_names(&fixture) {
        assert_eq!(client.inspect(&name).await.expect("a reply"), None, "{name:?} does not exist yet");
        guards.push(client.lock(&name).lock().await.expect("free"));
    }
    let found = client.find(&fixture.named("*"), 100).await.expect("a reply");
    let mut expected: Vec<_> = hostile_names(&fixture).into_iter().chain([bystander.clone()]).collect();
    expected.sort();
    assert_eq!(names(&found), expected);
    for guard in guards {
        let name = guard.name().to_owned();
        let found = client.find(&Glob::escape(&name), 100).await.expect("a reply");
        assert_eq!(names(&found), [&name]);
        let seen = client.inspect(&name).await.expect("a reply").expect("it is held");
        assert_eq!((&seen.name, &seen.holders[0].owner), (&name, guard.owner_id()));
        assert!(client.force_unlock(seen.kind, &name, Some(guard.owner_id())).await.expect("a reply"));
        assert!(client.inspect(&name).await.expect("a reply").is_none(), "{name:?} is free");
    }
    assert!(client.lock(&bystander).is_locked().await.expect("a reply"), "no other lock was affected");
}

async fn the_limit_is_applied_and_reported(fixture: Fixture) {
    let client = fixture.client().await;
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.lock(&fixture.named(&number.to_string())).lock().await.expect("free"));
    }
    for (limit, count, is_complete) in [(0, 0, false), (10, 10, false), (29, 29, false), (30, 30, true)] {
        let found = client.find(&fixture.named("*"), limit).await.expect("a reply");
        assert_eq!((found.items.len(), found.is_complete), (count, is_complete), "{limit}");
        assert!(found.items.is_sorted_by(|one, two| one.name < two.name));
    }
    drop(guards);
}

async fn a_key_prefix_is_not_part_of_the_name(fixture: Fixture) {
    let outside = fixture.client().await;
    let inside = fixture.client_with(Client::builder().key_prefix(fixture.named("app*:"))).await;
    let guard = inside.lock("orders").lock().await.expect("free");
    let _other = outside.lock(&fixture.named("apple:orders")).lock().await.expect("free");
    let found = inside.find("*", 10).await.expect("a reply");
    assert_eq!((names(&found), &found.items[0].key), (vec!["orders"], &fixture.named("app*:orders")));
    assert_eq!(inside.inspect("orders").await.expect("a reply").expect("held").name, "orders");
    let found = outside.find(&fixture.named("app\\**"), 10).await.expect("a reply");
    assert_eq!(names(&found), [fixture.named("app*:orders")]);
    assert!(inside.force_unlock(Kind::Lock, "orders", None).await.expect("a reply"));
    guard.lost().await;
}

async fn inspect_takes_names_literally(fixture: Fixture) {
    let client = fixture.client().await;
    let held = HeldLocks::new(&fixture, &client).await;
    for (name, (kind, guard)) in &held.locks {
        let seen = client.inspect(name).await.expect("a reply").expect("it is held");
        assert_eq!((seen.kind, &seen.name, &seen.holders[0].owner), (*kind, name, guard.owner_id()));
        assert!(seen.holders[0].is_mine);
    }
    let seen = client.inspect(&fixture.named("permits")).await.expect("a reply").expect("permits are out");
    assert_eq!((seen.kind, seen.holders.len()), (Kind::Permits, 2));
    for unused in ["*", "nothing", "loc?", "[l]ock"] {
        assert!(client.inspect(&fixture.named(unused)).await.expect("a reply").is_none(), "{unused}");
    }
    assert!(matches!(client.inspect("").await, Err(Error::BadName(_))));
    assert!(matches!(client.inspect(&"x".repeat(5_000)).await, Err(Error::BadName(_))));
}

async fn inspect_shows_tokens_and_counts_without_a_holder(fixture: Fixture) {
    let client = fixture.client().await;
    let name = fixture.named("fenced");
    let guard = client.fenced_lock(&name).lock().await.expect("free");
    let token = guard.token();
    guard.unlock().await.expect("held");
    let seen = client.inspect(&name).await.expect("a reply").expect("the token exists");
    assert_eq!((seen.kind, seen.is_locked(), seen.token), (Kind::Fenced, false, token));
    let name = fixture.named("semaphore");
    client.semaphore(&name).try_set_permits(7).await.expect("set");
    let seen = client.inspect(&name).await.expect("a reply").expect("the number exists");
    assert_eq!((seen.kind, seen.is_locked(), seen.available), (Kind::Semaphore, false, Some(7)));
    let name = fixture.named("latch");
    client.latch(&name).try_set_count(3).await.expect("set");
    let seen = client.inspect(&name).await.expect("a reply").expect("the count exists");
    // Redis cannot distinguish the two: both are a number.
    let kind = if fixture.store().has_untyped_counters() { Kind::Semaphore } else { Kind::Latch };
    assert_eq!((seen.kind, seen.available), (kind, Some(3)));
}

async fn the_blocking_interface_finds_the_same_locks(fixture: Fixture) {
    let client = fixture.blocking_client();
    let (name, all) = (fixture.name(), fixture.named("*"));
    let work = move || {
        let guard = client.lock(&name).lock().expect("free");
        let found = client.find(&all, 10).expect("a reply");
        assert_eq!(names(&found), [&name]);
        let seen = client.inspect(&name).expect("a reply").expect("it is held");
        assert_eq!(seen.holders, found.items[0].holders);
        assert!(!client.lock(&name).force_unlock_of(&OwnerId::from_wire("unknown")).expect("a reply"));
        assert!(client.force_unlock(seen.kind, &name, Some(guard.owner_id())).expect("a reply"));
        guard.wait_lost();
    };
    tokio::task::spawn_blocking(work).await.expect("no panic");
}
