//! A server that misbehaves.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::{Client, Error, LostReason};
use turnlock_testkit::{RedisServer, eventually, in_time, within};

use crate::rig::{A_SECOND, Kind, NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_restart_is_told_to_holders_and_survived_by_waiters,
    a_restart_with_older_data_is_told_when_it_has_loaded,
    what_a_server_forgets_of_a_release_is_said_again,
    a_reconnect_that_cost_nothing_is_not_blamed_for_a_forced_unlock,
    forgotten_scripts_are_sent_again,
    at_maxmemory_releases_and_renewals_still_work,
    a_key_of_another_type_is_left_alone,
    a_hash_that_no_lock_library_wrote_is_an_error_at_once,
    a_lock_without_an_expiry_is_polled_and_not_overwritten,
    a_busy_server_is_waited_for,
    a_paused_server_leaves_no_lock_behind,
    who_may_not_publish_still_releases,
    who_may_not_set_an_expiry_leaves_no_lock_behind,
    a_server_that_is_not_there_is_an_error_in_time,
    a_password_is_never_shown,
    an_unlock_does_not_wait_behind_a_store_that_is_away,
    a_demoted_master_is_waited_for,
];

/// The cases that other kinds of locks have to go through as well. Readers do not wait for readers.
pub(crate) fn kind_cases(kind: Kind) -> impl Iterator<Item = Case> {
    let all: &[Case] = cases![
        a_restart_is_told_to_holders_and_survived_by_waiters,
        what_a_server_forgets_of_a_release_is_said_again,
        forgotten_scripts_are_sent_again,
        at_maxmemory_releases_and_renewals_still_work,
        a_list_is_no_lock_and_is_left_alone,
        a_hash_that_no_lock_library_wrote_is_an_error_at_once,
        a_paused_server_leaves_no_lock_behind,
    ];
    let waits = |name: &str| name == "a_restart_is_told_to_holders_and_survived_by_waiters";
    all.iter().copied().filter(move |(name, _)| kind != Kind::Read || !waits(name))
}

async fn a_restart_is_told_to_holders_and_survived_by_waiters(mut rig: Rig) {
    let client = rig.client().await;
    let other = rig.client().await;
    let (renewed, fixed) = (client.lock("renewed"), client.lock("fixed").lease(ms(60_000)));
    let guards = [renewed.lock().await.expect("free"), fixed.lock().await.expect("free")];
    let waiting = other.lock("renewed");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    until_waiting(&other.lock("renewed"), 1).await;
    rig.server_mut().restart().await;
    for guard in &guards {
        let reason = within(PROMPT, "a new connection confirms what is held", guard.lost()).await;
        assert_eq!(reason, LostReason::GoneAfterReconnect, "{}", guard.name());
    }
    let next = within(PROMPT, "the waiter goes on", waiter).await.expect("no panic").expect("a turn");
    assert!(next.is_valid());
    next.unlock().await.expect("held");
    client.lock("renewed").lock().await.expect("the same client goes on").unlock().await.expect("held");
}

async fn a_reconnect_that_cost_nothing_is_not_blamed_for_a_forced_unlock(rig: Rig) {
    let client = rig.client_with(Client::builder().watchdog(ms(4_500)).poll(NO_POLL)).await;
    let guard = client.lock("x").lock().await.expect("free");
    let connections = rig.server().ask::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    assert!(connections.expect("killed") >= 1);
    let end = guard.valid_until();
    // Confirmed once by the reconnect, and then renewed.
    eventually("it is renewed", ms(15_000), async || guard.valid_until() > end + ms(2_700)).await;
    assert!(rig.client().await.lock("x").force_unlock().await.expect("an answer"));
    assert_eq!(within(ms(4_500), "the next renewal tells", guard.lost()).await, LostReason::Taken);
}

/// A server that loads its data refuses the first look at what is held. The look is repeated: at a fixed lease too.
async fn a_restart_with_older_data_is_told_when_it_has_loaded(_: Rig) {
    let slowly = ["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"];
    let mut server = RedisServer::start_with(&slowly).await;
    // More than it can load before it is told to be quick.
    let fill = "for i = 1, 40000 do redis.call('SET', 'filling:' .. i, i) end";
    server.ask::<()>(&["EVAL", fill, "0"]).await.expect("filled");
    server.ask::<()>(&["SAVE"]).await.expect("saved");
    // The next look comes by itself after 22 s at the earliest, a repeated one after 3 s.
    let client = Client::builder().watchdog(ms(90_000)).poll(NO_POLL).connect(&server.url()).await;
    let client = client.expect("a server");
    let (renewed, fixed) = (client.lock("renewed"), client.lock("fixed").lease(ms(90_000)));
    let read = client.read_write_lock("read").read().lease(ms(90_000));
    let mut guards = Vec::new();
    for lock in [renewed, fixed, read] {
        guards.push(lock.lock().await.expect("free"));
    }
    server.restart().await;
    eventually("a look was refused", ms(20_000), async || {
        let errors: String = server.ask(&["INFO", "errorstats"]).await.expect("counts");
        errors.contains("errorstat_LOADING")
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    server.ask::<()>(&["CONFIG", "SET", "key-load-delay", "0"]).await.expect("a setting");
    for guard in &guards {
        let reason = within(ms(10_000), "a repeated look finds out", guard.lost()).await;
        assert_eq!(reason, LostReason::GoneAfterReconnect, "{}", guard.name());
    }
}

/// A server comes back with what it had a moment ago: the hold, and not its end. So does a replica that is promoted.
async fn what_a_server_forgets_of_a_release_is_said_again(mut rig: Rig) {
    let client = rig.client().await;
    let guard = client.lock("x").lease(ms(60_000)).lock().await.expect("free");
    let mut plain = rig.plain().await;
    let _: () = plain.set("saved", 1).await.expect("set");
    let _: () = redis::cmd("SAVE").query_async(&mut plain).await.expect("saved");
    guard.unlock().await.expect("held");
    rig.server_mut().restart().await;
    let plain = rig.plain().await;
    assert!(
        plain.clone().exists::<_, bool>("saved").await.expect("an answer"),
        "the server has its old data"
    );
    let is_free = async || !plain.clone().exists::<_, bool>("x").await.expect("an answer");
    eventually("it is given back again", ms(10_000), is_free).await;
}

async fn forgotten_scripts_are_sent_again(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let mut flush = async || {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut plain).await.unwrap();
    };
    flush().await;
    let guard = client.lock("a").lock().await.expect("free");
    let end = guard.valid_until();
    flush().await;
    eventually("it is renewed all the same", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    flush().await;
    assert!(client.lock("a").is_locked().await.expect("an answer"));
    flush().await;
    guard.unlock().await.expect("held");
    assert!(!client.lock("a").is_locked().await.expect("an answer"));
    flush().await;
    assert!(!client.lock("a").force_unlock().await.expect("an answer"));
}

async fn at_maxmemory_releases_and_renewals_still_work(rig: Rig) {
    let mut plain = rig.plain().await;
    let client =
        rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL).retry_for(ms(200))).await;
    let guard = client.lock("held").lock().await.expect("free");
    let inner = match rig.kind {
        Kind::Plain => None,
        _ => Some(guard.reenter().await.expect("held")),
    };
    let mut limit = async |bytes: u64| {
        let _: () = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(bytes)
            .query_async(&mut plain)
            .await
            .unwrap();
    };
    limit(1).await;
    let error = client.lock("new").lock().await.expect_err("no room");
    assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains("OOM"), "{error}");
    let end = guard.valid_until();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    if let Some(inner) = inner {
        inner.unlock().await.expect("the count is ours, whatever the server can write down");
    }
    assert!(client.lock("held").is_locked().await.expect("an answer"));
    guard.unlock().await.expect("released");
    assert!(!client.lock("held").is_locked().await.expect("an answer"));
    limit(0).await;
    client.lock("new").lock().await.expect("room again").unlock().await.expect("held");
}

async fn a_key_of_another_type_is_left_alone(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client().await;
    let _: () = plain.set("text", "precious").await.unwrap();
    let _: () = plain.rpush("list", "precious").await.unwrap();
    let _: () = plain.hset("hash", "field", "precious").await.unwrap();
    for (key, found) in [("text", "string"), ("list", "list")] {
        let lock = client.lock(key);
        for outcome in [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.force_unlock().await.map(drop),
            lock.inspect().await.map(drop),
        ] {
            let error = outcome.expect_err("no lock");
            let named =
                matches!(&error, Error::Corrupt { key: k, found: f } if k == key && f.contains(found));
            assert!(named, "{error}");
        }
    }
    assert!(matches!(client.lock("hash").inspect().await, Err(Error::Corrupt { .. })));
    // A hold whose count was overwritten.
    let guard = client.lock("mine").lock().await.expect("free");
    let _: () = plain.hset("mine", guard.owner_id().as_str(), "many").await.unwrap();
    assert!(matches!(guard.reenter().await, Err(Error::Corrupt { .. })));
    assert_eq!(plain.hget::<_, _, String>("mine", guard.owner_id().as_str()).await.unwrap(), "many");
    assert_eq!(plain.get::<_, String>("text").await.unwrap(), "precious");
    assert_eq!(plain.lrange::<_, Vec<String>>("list", 0, -1).await.unwrap(), ["precious"]);
    assert_eq!(plain.hget::<_, _, String>("hash", "field").await.unwrap(), "precious");
}

/// A key that no kind of lock has, nor any that is beside it.
async fn a_list_is_no_lock_and_is_left_alone(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client_with(Client::builder().watchdog(ms(900)).poll(NO_POLL)).await;
    let _: () = plain.rpush("list", "precious").await.expect("pushed");
    let lock = client.lock("list");
    for outcome in [
        lock.lock().await.map(drop),
        lock.try_lock().await.map(drop),
        lock.try_lock_for(ms(50)).await.map(drop),
        lock.force_unlock().await.map(drop),
        lock.inspect().await.map(drop),
    ] {
        let error = outcome.expect_err("no lock");
        assert!(
            matches!(&error, Error::Corrupt { key, found } if key == "list" && found.contains("list")),
            "{error}"
        );
    }
    // One that comes to stand where a lock was.
    let guard = client.lock("mine").lock().await.expect("free");
    let _: () = redis::pipe()
        .atomic()
        .del("mine")
        .rpush("mine", "precious")
        .query_async(&mut plain)
        .await
        .expect("pushed");
    within(PROMPT, "it cannot be renewed, and ends", guard.lost()).await;
    assert!(guard.unlock().await.is_err());
    for key in ["list", "mine"] {
        assert_eq!(plain.lrange::<_, Vec<String>>(key, 0, -1).await.expect("an answer"), ["precious"]);
    }
}

/// A hash without a holder never becomes free: an acquire that waited for it would wait without end.
async fn a_hash_that_no_lock_library_wrote_is_an_error_at_once(rig: Rig) {
    const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";
    let mut plain = rig.plain().await;
    let client = rig.client().await;
    let mut foreign = redis::pipe();
    foreign
        .hset("text", "f", "v")
        .hset("number", "f", 1)
        .hset("no count", OWNER, "v")
        .hset("colon", "a:b", 1);
    foreign.hset("mode", "mode", "write").hset("mode", "color", "red").hset("ends", "f", "v");
    foreign.pexpire("ends", 60_000);
    (0..5_000).for_each(|field| {
        foreign.hset("large", format!("{OWNER}{field}"), 1).ignore();
    });
    let _: () = foreign.query_async(&mut plain).await.expect("set");
    let before = rig.server().calls().await;
    for key in ["text", "number", "no count", "colon", "mode", "ends", "large"] {
        let found: std::collections::BTreeMap<String, String> = plain.hgetall(key).await.expect("an answer");
        let lock = client.lock(key);
        for outcome in [
            within(ms(5_000), "it does not wait", lock.lock()).await.map(drop),
            lock.try_lock().await.map(drop),
            lock.try_lock_for(ms(60_000)).await.map(drop),
        ] {
            let error = outcome.expect_err(key);
            assert!(matches!(&error, Error::Corrupt { key: named, .. } if named == key), "{error}");
        }
        assert_eq!(found, plain.hgetall(key).await.expect("an answer"), "{key} was changed");
        assert_eq!(keys_beside(&mut plain, key).await, Vec::<String>::new());
    }
    let spent = rig.server().calls().await.since(&before);
    if rig.kind != Kind::Plain {
        // Two of the test for each key; none of a large hash.
        assert!(spent.of("hgetall") <= 2 * 7 + 3 * 6, "{spent:?}");
    }
    // What a lock library wrote is a hold, also without an expiry, and whatever kind of lock it is.
    let (writer, in_transaction) = (format!("{OWNER}:write"), format!("{OWNER}:0a1b2c3d"));
    for (key, field) in [
        ("exclusive", OWNER),
        ("exclusive:negative", "07070707-0707-4707-8707-070707070707:-12"),
        ("exclusive:transaction", &in_transaction),
        ("writing", &writer),
        ("reading", OWNER),
    ] {
        if !key.starts_with("exclusive") {
            let mode = if key == "writing" { "write" } else { "read" };
            let _: () = plain.hset(key, "mode", mode).await.expect("set");
            let reads = format!("{{{key}}}:{OWNER}:rwlock_timeout:1");
            let _: () = plain.set(reads, 1).await.expect("set");
        }
        let _: () = plain.hset(key, field, 1).await.expect("set");
        let outcome = client.lock(key).try_lock_for(ms(50)).await;
        match (rig.kind, key) {
            (Kind::Read, "reading") => assert!(outcome.expect("an answer").is_some()),
            (Kind::Plain, _) => assert!(outcome.is_err(), "{key}: {outcome:?}"),
            (Kind::Read | Kind::Write, key) if key.starts_with("exclusive") => {
                assert!(matches!(outcome, Err(Error::Corrupt { .. })), "{key}: {outcome:?}");
            }
            _ => assert!(outcome.expect("an answer").is_none(), "{key}"),
        }
    }
}

/// The keys that belong to the lock at this key.
async fn keys_beside(plain: &mut redis::aio::MultiplexedConnection, key: &str) -> Vec<String> {
    let keys: Vec<String> = plain.keys(format!("*{{{key}}}*")).await.expect("keys");
    keys.into_iter().filter(|beside| !beside.starts_with("redisson_lock_token")).collect()
}

async fn a_lock_without_an_expiry_is_polled_and_not_overwritten(rig: Rig) {
    let mut plain = rig.plain().await;
    let lock = rig.client_with(Client::builder()).await.lock("endless");
    let _: () = plain.hset("endless", "stranger:1", 1).await.unwrap();
    let seen = lock.inspect().await.expect("an answer");
    assert!(seen.is_locked() && seen.ttl.is_none());
    assert!(lock.try_lock_for(ms(50)).await.expect("an answer").is_none());
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&lock, 1).await;
    // Gone without a message.
    let _: () = plain.del("endless").await.unwrap();
    within(A_SECOND, "it looks by itself", task).await.expect("no panic").unlock().await.expect("held");
}

async fn a_busy_server_is_waited_for(_: Rig) {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "50"]).await;
    let client = Client::builder().poll(NO_POLL).connect(&server.url()).await.expect("a server");
    let mut stuck = server.client().await;
    let endless = tokio::spawn(async move {
        let script = "while true do end";
        redis::cmd("EVAL").arg(script).arg(0).query_async::<()>(&mut stuck).await
    });
    eventually("the server is busy", ms(20_000), async || {
        let error = client.lock("x").try_lock().await.err().map(|error| error.to_string());
        error.is_some_and(|error| error.contains("BUSY"))
    })
    .await;
    let lock = client.lock("x");
    let waiter = tokio::spawn(async move { lock.lock().await.expect("a turn") });
    let mut killer = server.client().await;
    tokio::time::sleep(ms(100)).await;
    assert!(!waiter.is_finished());
    let _: () = redis::cmd("SCRIPT").arg("KILL").query_async(&mut killer).await.expect("killed");
    let guard = within(PROMPT, "it goes on", waiter).await.expect("no panic");
    assert!(endless.await.expect("no panic").is_err());
    guard.unlock().await.expect("held");
}

/// Requests that a frozen server finds in its buffers when it wakes are done late: by then their callers are gone.
async fn a_paused_server_leaves_no_lock_behind(rig: Rig) {
    let builder = || {
        Client::builder()
            .response_timeout(ms(100))
            // The tries below are bounded by their own wait.
            .retry_for(ms(20_000))
            .connect_timeout(ms(1_500))
            .poll(NO_POLL)
    };
    let client = rig.client_with(builder()).await;
    let mut plain = rig.plain().await;
    rig.server().pause();
    let mut tasks = Vec::new();
    for number in 0..20 {
        let lock = client.lock(&format!("paused:{number}"));
        tasks.push(tokio::spawn(async move { lock.try_lock_for(ms(300)).await }));
    }
    for task in tasks {
        let outcome = task.await.expect("no panic");
        assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    }
    rig.server().resume();
    eventually("every key is free", PROMPT, async || {
        // The last token of a fenced lock stays.
        let keys: Vec<String> = plain.clone().keys("paused*").await.unwrap();
        keys.is_empty()
    })
    .await;
    // Again a little later: nothing came back.
    tokio::time::sleep(ms(300)).await;
    let keys: Vec<String> = plain.keys("paused*").await.unwrap();
    assert_eq!(keys, Vec::<String>::new());
    client.lock("paused:1").lock().await.expect("as ever").unlock().await.expect("held");
}

async fn user(rig: &Rig, rules: &[&str]) -> String {
    let mut plain = rig.plain().await;
    let mut cmd = redis::cmd("ACL");
    cmd.arg("SETUSER").arg("worker").arg("reset").arg("on").arg(">pass").arg(rules);
    let _: () = cmd.query_async(&mut plain).await.expect("a user");
    format!("redis://worker:pass@127.0.0.1:{}", rig.server().port())
}

async fn who_may_not_publish_still_releases(rig: Rig) {
    let url = user(&rig, &["~*", "+@all", "resetchannels"]).await;
    let client = Client::connect(&url).await.expect("a server");
    let guard = client.lock("quiet").lock().await.expect("free");
    let other = rig.client_with(Client::builder()).await;
    let waiting = client.lock("quiet");
    let waiter = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&client.lock("quiet"), 1).await;
    guard.unlock().await.expect("the release itself is allowed");
    let guard = within(A_SECOND, "nobody was told, but all look", waiter).await.expect("no panic");
    guard.unlock().await.expect("held");
    assert!(!other.lock("quiet").is_locked().await.expect("an answer"));
}

async fn who_may_not_set_an_expiry_leaves_no_lock_behind(rig: Rig) {
    let url = user(&rig, &["~*", "+@all", "-pexpire", "allchannels"]).await;
    let client = Client::connect(&url).await.expect("a server");
    let error = client.lock("forever").lock().await.expect_err("not allowed");
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(!rig.client().await.lock("forever").is_locked().await.expect("an answer"));
}

async fn a_server_that_is_not_there_is_an_error_in_time(mut rig: Rig) {
    let url = rig.server().url();
    let client = rig.client_with(Client::builder().retry_for(ms(300))).await;
    let lock = client.lock("x");
    let guard = lock.lock().await.expect("free");
    rig.server_mut().stop().await;
    let start = Instant::now();
    let error = Client::builder().connect_timeout(ms(500)).connect(&url).await.expect_err("nobody is there");
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    for outcome in [
        client.lock("y").try_lock().await.map(drop),
        client.lock("y").lock().await.map(drop),
        client.lock("y").try_lock_for(ms(20)).await.map(drop),
        client.lock("y").try_lock_for(ms(600)).await.map(drop),
        client.lock("y").is_locked().await.map(drop),
    ] {
        let error = outcome.expect_err("nobody is there");
        assert!(matches!(&error, Error::Unavailable { .. }) && error.to_string().contains('y'), "{error}");
    }
    let error = guard.unlock().await.expect_err("nobody is there");
    assert!(matches!(&error, Error::InDoubt { .. }), "{error}");
    in_time("an error each", start, Duration::from_secs(10));
    rig.server_mut().restart().await;
    eventually("back again", ms(20_000), async || matches!(lock.try_lock().await, Ok(Some(_)))).await;
}

async fn a_password_is_never_shown(rig: Rig) {
    let canary = "c4n4ry-pa55";
    let port = rig.server().port();
    let url = format!("redis://:{canary}@127.0.0.1:{port}");
    // The server has no password, so a wrong one is refused.
    let wrong = Client::connect(&url).await.expect_err("a wrong password");
    assert!(matches!(wrong, Error::Denied { .. }), "{wrong}");
    let mut plain = rig.plain().await;
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(canary).query_async(&mut plain).await.unwrap();
    let client = Client::connect(&url).await.expect("the right password");
    let lock = client.lock("x");
    let guard = lock.lock().await.expect("free");
    let bad_url =
        Client::connect(&format!("redis://:{canary}@127.0.0.1:{port}/nodb")).await.expect_err("no database");
    let no_server = Client::connect(&format!("redis://:{canary}@127.0.0.1:1")).await.expect_err("no server");
    let missing = Client::connect(&rig.server().url()).await.expect_err("no password");
    assert!(matches!(missing, Error::Denied { .. }), "{missing}");
    let builder = Client::builder();
    for text in [
        format!("{wrong} {wrong:?}"),
        format!("{bad_url} {bad_url:?}"),
        format!("{no_server} {no_server:?}"),
        format!("{missing} {missing:?}"),
        format!("{client:?} {lock:?} {guard:?} {builder:?}"),
    ] {
        assert!(!text.contains(canary), "{text}");
        assert!(!text.is_empty());
    }
    guard.unlock().await.expect("held");
    let _: () =
        redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("").query_async(&mut plain).await.unwrap();
    assert!(!rig.client().await.lock("x").is_locked().await.expect("an answer"));
}

async fn an_unlock_does_not_wait_behind_a_store_that_is_away(mut rig: Rig) {
    let client = rig.client_with(Client::builder().retry_for(ms(300)).connect_timeout(ms(1_500))).await;
    let me = client.owner();
    let lock = client.lock("x").owned_by(&me);
    let (one, two, three) =
        (lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap());
    rig.server_mut().stop().await;
    // Its release goes on in the background for as long as the lease may last.
    drop(one);
    let start = Instant::now();
    assert!(matches!(lock.try_lock().await, Err(Error::Unavailable { .. })));
    assert!(matches!(lock.try_lock_for(ms(100)).await, Err(Error::Unavailable { .. })));
    assert!(matches!(two.reenter().await, Err(Error::Unavailable { .. })));
    let error = two.unlock().await.expect_err("nobody is there");
    assert!(matches!(&error, Error::InDoubt { .. }), "{error}");
    in_time("an error each", start, Duration::from_secs(10));
    assert!(three.is_valid(), "its lease is not over");
}

async fn a_demoted_master_is_waited_for(rig: Rig) {
    let mut plain = rig.plain().await;
    let client = rig.client().await;
    let mut follow = async |host: &str, port: &str| {
        let _: () =
            redis::cmd("REPLICAOF").arg(host).arg(port).query_async(&mut plain).await.expect("an answer");
    };
    follow("127.0.0.1", "1").await;
    let error = client.lock("x").try_lock().await.expect_err("a replica takes no locks");
    assert!(
        matches!(&error, Error::Unavailable { .. }) && error.to_string().to_uppercase().contains("READONLY"),
        "{error}"
    );
    let lock = client.lock("x");
    let waiter = tokio::spawn(async move { lock.lock().await.expect("a turn") });
    let (before, start) = (rig.server().calls().await, Instant::now());
    // Each try is on a new connection, which may lead to the new master; but not without a pause.
    let spent = async || rig.server().calls().await.since(&before);
    eventually("it tries again", PROMPT, async || spent().await.of("role") >= 1).await;
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    let spent = spent().await;
    let most = 12 * (1 + u64::try_from(start.elapsed().as_millis()).unwrap() / 300);
    assert!(spent.of("role") <= most && spent.of("evalsha") == 0, "{spent:?}");
    follow("NO", "ONE").await;
    within(PROMPT, "it goes on", waiter).await.expect("no panic").unlock().await.expect("held");
}
