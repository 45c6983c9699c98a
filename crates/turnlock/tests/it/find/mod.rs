//! Finding what is held, whatever it is and whoever holds it.

mod foreign;
mod taking_away;

use std::collections::BTreeMap;

use turnlock::{Client, Error, Glob, Guard, Kind, OwnerId, Permits, Role};

use crate::rig::{Rig, ms, until_waiting};
use crate::{Case, cases};

pub(crate) use foreign::CASES as REDIS_CASES;

/// The cases for every store.
pub(crate) const CASES: &[&[Case]] = &[
    cases![
        all_that_is_held_is_found,
        a_fair_lock_is_known_by_its_queue,
        readers_and_writers_are_told_apart,
        a_pattern_finds_what_matches_it,
        a_hostile_name_is_a_name,
        a_bound_is_kept_and_told,
        a_key_prefix_is_no_part_of_a_name,
        a_name_is_looked_up_as_it_is,
        what_was_left_behind_is_looked_up,
        the_blocking_interface_finds_the_same,
    ],
    taking_away::CASES,
];

/// One of each that can be found.
pub(super) struct Held {
    pub(super) locks: BTreeMap<String, (Kind, Guard)>,
    pub(super) permits: Permits,
}

impl Held {
    pub(super) async fn new(rig: &Rig, client: &Client) -> Self {
        let rw = |name: &str| client.read_write_lock(name);
        let mut locks = BTreeMap::new();
        for (end, kind) in [
            ("lock", Kind::Lock),
            ("fenced", Kind::Fenced),
            ("plain", Kind::Plain),
            ("read", Kind::Read),
            ("write", Kind::Write),
        ] {
            let name = rig.named(end);
            let lock = match kind {
                Kind::Fenced => client.fenced_lock(&name),
                Kind::Plain => client.plain_lock(&name),
                Kind::Read => rw(&name).read(),
                Kind::Write => rw(&name).write(),
                _ => client.lock(&name),
            };
            locks.insert(name, (kind, lock.lock().await.expect("free")));
        }
        let permits = client.permit_semaphore(&rig.named("permits"));
        permits.set_permits(3).await.expect("set");
        let permits = permits.acquire(2).await.expect("free");
        Self { locks, permits }
    }
}

fn names(found: &turnlock::Found) -> Vec<&str> {
    found.things.iter().map(|thing| thing.name.as_str()).collect()
}

async fn all_that_is_held_is_found(rig: Rig) {
    let (client, all) = (rig.client().await, rig.named("*"));
    let found = client.find(&all, 100).await.expect("an answer");
    assert!(found.things.is_empty() && found.is_complete, "{found:?}");
    let held = Held::new(&rig, &client).await;
    // Bare numbers.
    client.semaphore(&rig.named("semaphore")).try_set_permits(2).await.expect("set");
    client.latch(&rig.named("latch")).try_set_count(2).await.expect("set");
    client.permit_semaphore(&rig.named("idle")).set_permits(3).await.expect("set");
    let other = rig.client().await;
    let found = other.find(&all, 100).await.expect("an answer");
    assert!(found.is_complete);
    let mut expected: Vec<_> = held.locks.keys().cloned().chain([rig.named("permits")]).collect();
    expected.sort();
    assert_eq!(names(&found), expected, "sorted, and each once");
    for thing in &found.things {
        let Some((kind, guard)) = held.locks.get(&thing.name) else {
            assert_eq!((thing.kind, thing.holders.len(), thing.available), (Kind::Permits, 2, Some(1)));
            continue;
        };
        assert_eq!((thing.kind, &thing.holders[0].owner), (*kind, guard.owner_id()));
        assert!(thing.ttl.is_some_and(|ttl| ttl > ms(1_000)) && !thing.holders[0].is_mine, "{thing:?}");
        assert_eq!(thing.token, guard.token());
    }
    let mine = client.find(&rig.named("lock"), 1).await.expect("an answer");
    assert!(mine.things[0].holders[0].is_mine && mine.is_complete);
    for (_, guard) in held.locks.into_values() {
        guard.unlock().await.expect("held");
    }
    held.permits.release().await.expect("held");
    let found = other.find(&all, 100).await.expect("an answer");
    assert!(found.things.is_empty() && found.is_complete, "{found:?}");
}

async fn a_fair_lock_is_known_by_its_queue(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let lock = client.fair_lock(&name);
    let guard = lock.lock().await.expect("free");
    let task = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await }
    });
    until_waiting(&lock, 1).await;
    let found = client.find(&name, 10).await.expect("an answer");
    assert_eq!((found.things[0].kind, found.things[0].queue.len()), (Kind::Fair, 1));
    let seen = client.look_up(&name).await.expect("an answer").expect("it is held");
    assert_eq!(
        seen,
        client.fair_lock(&name).inspect().await.map(|other| same_ttl(other, &seen)).expect("an answer")
    );
    guard.unlock().await.expect("held");
    task.await.expect("no panic").expect("a turn").unlock().await.expect("held");
}

fn same_ttl(seen: turnlock::Inspection, other: &turnlock::Inspection) -> turnlock::Inspection {
    let mut seen = seen;
    seen.ttl = other.ttl;
    seen
}

async fn readers_and_writers_are_told_apart(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let lock = client.read_write_lock(&name);
    let writer = lock.write().lock().await.expect("free");
    let under = lock.read().lock_with(&writer).await.expect("its own");
    let found = client.find(&name, 10).await.expect("an answer").things.remove(0);
    assert_eq!(found.kind, Kind::Write);
    let mut roles: Vec<_> = found.holders.iter().map(|holder| (&holder.owner, holder.role)).collect();
    roles.sort_by_key(|(_, role)| *role == Role::Writer);
    assert_eq!(roles, [(under.owner_id(), Role::Reader), (writer.owner_id(), Role::Writer)]);
    writer.unlock().await.expect("held");
    let more = lock.read().lock().await.expect("readers go together");
    let found = client.find(&name, 10).await.expect("an answer").things.remove(0);
    assert_eq!((found.kind, found.holders.len()), (Kind::Read, 2));
    drop((under, more));
}

async fn a_pattern_finds_what_matches_it(rig: Rig) {
    let client = rig.client().await;
    let mut guards = Vec::new();
    for end in ["a1", "a2", "b1", "ö1", "a*"] {
        guards.push(client.lock(&rig.named(end)).lock().await.expect("free"));
    }
    for (pattern, ends) in [
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
        let found = client.find(&rig.named(pattern), 100).await.expect("an answer");
        let expected: Vec<_> = ends.iter().map(|end| rig.named(end)).collect();
        assert_eq!(names(&found), expected, "{pattern}");
    }
    drop(guards);
}

/// What people and programs put into names.
fn hostile_names(rig: &Rig) -> Vec<String> {
    let ends = [
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
    let mut names: Vec<_> = ends.iter().map(|end| rig.named(end)).collect();
    names.push(rig.named(&"x".repeat(4_096 - rig.named("").len())));
    names
}

async fn a_hostile_name_is_a_name(rig: Rig) {
    let (client, bystander) = (rig.client().await, rig.named("ab"));
    let _bystander = client.lock(&bystander).lock().await.expect("free");
    let mut guards = Vec::new();
    for name in hostile_names(&rig) {
        assert_eq!(client.look_up(&name).await.expect("an answer"), None, "{name:?} is not there yet");
        guards.push(client.lock(&name).lock().await.expect("free"));
    }
    let found = client.find(&rig.named("*"), 100).await.expect("an answer");
    let mut expected: Vec<_> = hostile_names(&rig).into_iter().chain([bystander.clone()]).collect();
    expected.sort();
    assert_eq!(names(&found), expected);
    for guard in guards {
        let name = guard.name().to_owned();
        let found = client.find(&Glob::escape(&name), 100).await.expect("an answer");
        assert_eq!(names(&found), [&name]);
        let seen = client.look_up(&name).await.expect("an answer").expect("it is held");
        assert_eq!((&seen.name, &seen.holders[0].owner), (&name, guard.owner_id()));
        assert!(client.force_unlock(seen.kind, &name, Some(guard.owner_id())).await.expect("an answer"));
        assert!(client.look_up(&name).await.expect("an answer").is_none(), "{name:?} is free");
    }
    assert!(client.lock(&bystander).is_locked().await.expect("an answer"), "nobody else was hit");
}

async fn a_bound_is_kept_and_told(rig: Rig) {
    let client = rig.client().await;
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(client.lock(&rig.named(&number.to_string())).lock().await.expect("free"));
    }
    for (at_most, count, is_complete) in [(0, 0, false), (10, 10, false), (29, 29, false), (30, 30, true)] {
        let found = client.find(&rig.named("*"), at_most).await.expect("an answer");
        assert_eq!((found.things.len(), found.is_complete), (count, is_complete), "{at_most}");
        assert!(found.things.is_sorted_by(|one, two| one.name < two.name));
    }
    drop(guards);
}

async fn a_key_prefix_is_no_part_of_a_name(rig: Rig) {
    let outside = rig.client().await;
    let inside = rig.client_with(Client::builder().key_prefix(rig.named("app*:"))).await;
    let guard = inside.lock("orders").lock().await.expect("free");
    let _other = outside.lock(&rig.named("apple:orders")).lock().await.expect("free");
    let found = inside.find("*", 10).await.expect("an answer");
    assert_eq!((names(&found), &found.things[0].key), (vec!["orders"], &rig.named("app*:orders")));
    assert_eq!(inside.look_up("orders").await.expect("an answer").expect("held").name, "orders");
    let found = outside.find(&rig.named("app\\**"), 10).await.expect("an answer");
    assert_eq!(names(&found), [rig.named("app*:orders")]);
    assert!(inside.force_unlock(Kind::Lock, "orders", None).await.expect("an answer"));
    guard.lost().await;
}

async fn a_name_is_looked_up_as_it_is(rig: Rig) {
    let client = rig.client().await;
    let held = Held::new(&rig, &client).await;
    for (name, (kind, guard)) in &held.locks {
        let seen = client.look_up(name).await.expect("an answer").expect("it is held");
        assert_eq!((seen.kind, &seen.name, &seen.holders[0].owner), (*kind, name, guard.owner_id()));
        assert!(seen.holders[0].is_mine);
    }
    let seen = client.look_up(&rig.named("permits")).await.expect("an answer").expect("some are out");
    assert_eq!((seen.kind, seen.holders.len()), (Kind::Permits, 2));
    for nothing in ["*", "nothing", "loc?", "[l]ock"] {
        assert!(client.look_up(&rig.named(nothing)).await.expect("an answer").is_none(), "{nothing}");
    }
    assert!(matches!(client.look_up("").await, Err(Error::BadName(_))));
    assert!(matches!(client.look_up(&"x".repeat(5_000)).await, Err(Error::BadName(_))));
}

async fn what_was_left_behind_is_looked_up(rig: Rig) {
    let client = rig.client().await;
    let name = rig.named("fenced");
    let guard = client.fenced_lock(&name).lock().await.expect("free");
    let token = guard.token();
    guard.unlock().await.expect("held");
    let seen = client.look_up(&name).await.expect("an answer").expect("its token is there");
    assert_eq!((seen.kind, seen.is_locked(), seen.token), (Kind::Fenced, false, token));
    let name = rig.named("semaphore");
    client.semaphore(&name).try_set_permits(7).await.expect("set");
    let seen = client.look_up(&name).await.expect("an answer").expect("its number is there");
    assert_eq!((seen.kind, seen.is_locked(), seen.available), (Kind::Semaphore, false, Some(7)));
    let name = rig.named("latch");
    client.latch(&name).try_set_count(3).await.expect("set");
    let seen = client.look_up(&name).await.expect("an answer").expect("its count is there");
    // On Redis, a number is a number.
    let kind = if rig.is_embedded() { Kind::Latch } else { Kind::Semaphore };
    assert_eq!((seen.kind, seen.available), (kind, Some(3)));
}

async fn the_blocking_interface_finds_the_same(rig: Rig) {
    let client = rig.blocking_client();
    let (name, all) = (rig.name(), rig.named("*"));
    let work = move || {
        let guard = client.lock(&name).lock().expect("free");
        let found = client.find(&all, 10).expect("an answer");
        assert_eq!(names(&found), [&name]);
        let seen = client.look_up(&name).expect("an answer").expect("it is held");
        assert_eq!(seen.holders, found.things[0].holders);
        assert!(!client.lock(&name).force_unlock_of(&OwnerId::from_wire("nobody")).expect("an answer"));
        assert!(client.force_unlock(seen.kind, &name, Some(guard.owner_id())).expect("an answer"));
        guard.wait_lost();
    };
    tokio::task::spawn_blocking(work).await.expect("no panic");
}
