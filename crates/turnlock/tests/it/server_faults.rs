//! Server faults: restarts, lost data, missing memory or rights, foreign keys, pauses and demotion.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use turnlock::{Client, Error, LostReason, TryAcquire};
use turnlock_testkit::{RedisServer, eventually, in_time, within};

use crate::fixture::{Fixture, Kind, NO_POLL, ONE_POLL, PROMPT, ms, until_waiting};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    holders_are_notified_of_a_restart_and_waiters_survive_it,
    a_restart_with_older_data_is_reported_after_loading,
    a_release_lost_in_a_restart_is_replayed,
    a_forced_unlock_after_a_harmless_reconnect_is_reported_as_taken,
    flushed_scripts_are_loaded_again,
    at_maxmemory_releases_and_renewals_still_work,
    a_key_of_another_type_is_left_alone,
    a_foreign_hash_is_an_error_at_once,
    a_lock_without_an_expiry_is_polled_and_not_overwritten,
    a_busy_server_is_retried,
    a_paused_server_leaves_no_lock_behind,
    a_user_without_channel_rights_can_still_release,
    a_user_without_pexpire_leaves_no_lock_behind,
    an_unreachable_server_is_an_error_in_time,
    a_password_is_never_shown,
    an_unlock_does_not_block_on_an_unreachable_store,
    a_demoted_master_is_retried_with_pauses,
];

/// Returns the cases that also run for other kinds of locks. Readers do not wait for readers.
pub(crate) fn kind_cases(kind: Kind) -> impl Iterator<Item = Case> {
    let all: &[Case] = cases![
        holders_are_notified_of_a_restart_and_waiters_survive_it,
        a_release_lost_in_a_restart_is_replayed,
        flushed_scripts_are_loaded_again,
        at_maxmemory_releases_and_renewals_still_work,
        a_list_is_not_a_lock_and_is_left_alone,
        a_foreign_hash_is_an_error_at_once,
        a_paused_server_leaves_no_lock_behind,
    ];
    let has_waiter = |name: &str| name == "holders_are_notified_of_a_restart_and_waiters_survive_it";
    all.iter().copied().filter(move |(name, _)| kind != Kind::Read || !has_waiter(name))
}

async fn holders_are_notified_of_a_restart_and_waiters_survive_it(mut fixture: Fixture) {
    let client = fixture.client().await;
    let other = fixture.client().await;
    let (renewed, fixed) = (client.lock("renewed"), client.lock("fixed").with_lease(ms(60_000)));
    let guards = [renewed.lock().await.expect("free"), fixed.lock().await.expect("free")];
    let waiting = other.lock("renewed");
    let waiter = tokio::spawn(async move { waiting.lock().await });
    until_waiting(&other.lock("renewed"), 1).await;
    fixture.server_mut().restart().await;
    for guard in &guards {
        let reason = within(PROMPT, "the check after the reconnect detects the loss", guard.lost()).await;
        assert_eq!(reason, LostReason::GoneAfterReconnect, "{}", guard.name());
    }
    let next = within(PROMPT, "the waiter acquires", waiter).await.expect("no panic").expect("acquired");
    assert!(next.is_valid());
    next.unlock().await.expect("held");
    client
        .lock("renewed")
        .lock()
        .await
        .expect("the same client can lock again")
        .unlock()
        .await
        .expect("held");
}

async fn a_forced_unlock_after_a_harmless_reconnect_is_reported_as_taken(fixture: Fixture) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(4_500)).poll_interval(NO_POLL)).await;
    let guard = client.lock("x").lock().await.expect("free");
    let connections =
        fixture.server().query::<i64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    assert!(connections.expect("killed") >= 1);
    let end = guard.valid_until();
    // Confirmed once after the reconnect, and then renewed.
    eventually("it is renewed", ms(15_000), async || guard.valid_until() > end + ms(2_700)).await;
    assert!(fixture.client().await.lock("x").force_unlock().await.expect("a reply"));
    assert_eq!(within(ms(4_500), "the next renewal detects the loss", guard.lost()).await, LostReason::Taken);
}

/// A server that loads its data refuses the first check of a hold. The check is repeated, for a fixed lease
/// too.
async fn a_restart_with_older_data_is_reported_after_loading(_: Fixture) {
    let slowly = ["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"];
    let mut server = RedisServer::start_with(&slowly).await;
    // More than it can load before the delay is removed.
    let fill = "for i = 1, 40000 do redis.call('SET', 'filling:' .. i, i) end";
    server.query::<()>(&["EVAL", fill, "0"]).await.expect("filled");
    server.query::<()>(&["SAVE"]).await.expect("saved");
    // The next regular check comes after 22 s at the earliest, a repeated one after 3 s.
    let client =
        Client::builder().watchdog_timeout(ms(90_000)).poll_interval(NO_POLL).connect(&server.url()).await;
    let client = client.expect("a server");
    let (renewed, fixed) = (client.lock("renewed"), client.lock("fixed").with_lease(ms(90_000)));
    let read = client.read_write_lock("read").reader().with_lease(ms(90_000));
    let mut guards = Vec::new();
    for lock in [renewed, fixed, read] {
        guards.push(lock.lock().await.expect("free"));
    }
    server.restart().await;
    eventually("a check was refused", ms(20_000), async || {
        let errors: String = server.query(&["INFO", "errorstats"]).await.expect("counts");
        errors.contains("errorstat_LOADING")
    })
    .await;
    tokio::time::sleep(ms(500)).await;
    server.query::<()>(&["CONFIG", "SET", "key-load-delay", "0"]).await.expect("a setting");
    for guard in &guards {
        let reason = within(ms(10_000), "a repeated check detects the loss", guard.lost()).await;
        assert_eq!(reason, LostReason::GoneAfterReconnect, "{}", guard.name());
    }
}

/// A server restarts with older data, which has the hold but not its release. So does a promoted replica.
async fn a_release_lost_in_a_restart_is_replayed(mut fixture: Fixture) {
    let client = fixture.client().await;
    let guard = client.lock("x").with_lease(ms(60_000)).lock().await.expect("free");
    let mut connection = fixture.raw_connection().await;
    let _: () = connection.set("saved", 1).await.expect("set");
    let _: () = redis::cmd("SAVE").query_async(&mut connection).await.expect("saved");
    guard.unlock().await.expect("held");
    fixture.server_mut().restart().await;
    let connection = fixture.raw_connection().await;
    assert!(
        connection.clone().exists::<_, bool>("saved").await.expect("a reply"),
        "the server has its old data"
    );
    let is_free = async || !connection.clone().exists::<_, bool>("x").await.expect("a reply");
    eventually("the release is replayed", ms(10_000), is_free).await;
}

async fn flushed_scripts_are_loaded_again(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let mut flush = async || {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut connection).await.unwrap();
    };
    flush().await;
    let guard = client.lock("a").lock().await.expect("free");
    let end = guard.valid_until();
    flush().await;
    eventually("it is renewed", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    flush().await;
    assert!(client.lock("a").is_locked().await.expect("a reply"));
    flush().await;
    guard.unlock().await.expect("held");
    assert!(!client.lock("a").is_locked().await.expect("a reply"));
    flush().await;
    assert!(!client.lock("a").force_unlock().await.expect("a reply"));
}

async fn at_maxmemory_releases_and_renewals_still_work(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client = fixture
        .client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL).retry_for(ms(200)))
        .await;
    let guard = client.lock("held").lock().await.expect("free");
    let inner = match fixture.kind {
        Kind::Plain => None,
        _ => Some(guard.reenter().await.expect("held")),
    };
    let mut limit = async |bytes: u64| {
        let _: () = redis::cmd("CONFIG")
            .arg("SET")
            .arg("maxmemory")
            .arg(bytes)
            .query_async(&mut connection)
            .await
            .unwrap();
    };
    limit(1).await;
    let error = client.lock("new").lock().await.expect_err("no memory");
    assert!(
        matches!(&error, Error::Unavailable { .. }) && turnlock_testkit::error_chain(&error).contains("OOM"),
        "{error}"
    );
    let end = guard.valid_until();
    eventually("it is renewed", PROMPT, async || guard.valid_until() > end + ms(200)).await;
    if let Some(inner) = inner {
        inner.unlock().await.expect("the inner guard is released although the server refuses writes");
    }
    assert!(client.lock("held").is_locked().await.expect("a reply"));
    guard.unlock().await.expect("released");
    assert!(!client.lock("held").is_locked().await.expect("a reply"));
    limit(0).await;
    client.lock("new").lock().await.expect("memory is available again").unlock().await.expect("held");
}

async fn a_key_of_another_type_is_left_alone(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client = fixture.client().await;
    let _: () = connection.set("text", "precious").await.unwrap();
    let _: () = connection.rpush("list", "precious").await.unwrap();
    let _: () = connection.hset("hash", "field", "precious").await.unwrap();
    for (key, found) in [("text", "string"), ("list", "list")] {
        let lock = client.lock(key);
        for outcome in [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.force_unlock().await.map(drop),
            lock.inspect().await.map(drop),
        ] {
            let error = outcome.expect_err("not a lock");
            let named =
                matches!(&error, Error::NotALock { key: k, found: f, .. } if k == key && f.contains(found));
            assert!(named, "{error}");
        }
    }
    assert!(matches!(client.lock("hash").inspect().await, Err(Error::NotALock { .. })));
    // A hold whose count is overwritten.
    let guard = client.lock("mine").lock().await.expect("free");
    let _: () = connection.hset("mine", guard.owner_id().as_str(), "many").await.unwrap();
    assert!(matches!(guard.reenter().await, Err(Error::NotALock { .. })));
    assert_eq!(connection.hget::<_, _, String>("mine", guard.owner_id().as_str()).await.unwrap(), "many");
    assert_eq!(connection.get::<_, String>("text").await.unwrap(), "precious");
    assert_eq!(connection.lrange::<_, Vec<String>>("list", 0, -1).await.unwrap(), ["precious"]);
    assert_eq!(connection.hget::<_, _, String>("hash", "field").await.unwrap(), "precious");
}

/// A list is not a key of any kind of lock, nor an auxiliary key.
async fn a_list_is_not_a_lock_and_is_left_alone(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(900)).poll_interval(NO_POLL)).await;
    let _: () = connection.rpush("list", "precious").await.expect("pushed");
    let lock = client.lock("list");
    for outcome in [
        lock.lock().await.map(drop),
        lock.try_lock().await.map(drop),
        lock.try_lock_for(ms(50)).await.map(drop),
        lock.force_unlock().await.map(drop),
        lock.inspect().await.map(drop),
    ] {
        let error = outcome.expect_err("not a lock");
        assert!(
            matches!(&error, Error::NotALock { key, found, .. } if key == "list" && found.contains("list")),
            "{error}"
        );
    }
    // A list that replaces a held lock.
    let guard = client.lock("mine").lock().await.expect("free");
    let _: () = redis::pipe()
        .atomic()
        .del("mine")
        .rpush("mine", "precious")
        .query_async(&mut connection)
        .await
        .expect("pushed");
    within(PROMPT, "it cannot be renewed and is lost", guard.lost()).await;
    assert!(guard.unlock().await.is_err());
    for key in ["list", "mine"] {
        assert_eq!(connection.lrange::<_, Vec<String>>(key, 0, -1).await.expect("a reply"), ["precious"]);
    }
}

/// A hash without a holder never becomes free, so an acquire that waited for it would never end.
async fn a_foreign_hash_is_an_error_at_once(fixture: Fixture) {
    const OWNER: &str = "07070707-0707-4707-8707-070707070707:12";
    let mut connection = fixture.raw_connection().await;
    let client = fixture.client().await;
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
    let _: () = foreign.query_async(&mut connection).await.expect("set");
    let before = fixture.server().calls().await;
    for key in ["text", "number", "no count", "colon", "mode", "ends", "large"] {
        let found: std::collections::BTreeMap<String, String> =
            connection.hgetall(key).await.expect("a reply");
        let lock = client.lock(key);
        for outcome in [
            within(ms(5_000), "it does not wait", lock.lock()).await.map(drop),
            lock.try_lock().await.map(drop),
            lock.try_lock_for(ms(60_000)).await.map(drop),
        ] {
            let error = outcome.expect_err(key);
            assert!(matches!(&error, Error::NotALock { key: named, .. } if named == key), "{error}");
        }
        assert_eq!(found, connection.hgetall(key).await.expect("a reply"), "{key} was changed");
        assert_eq!(auxiliary_keys(&mut connection, key).await, Vec::<String>::new());
    }
    let spent = fixture.server().calls().await.since(&before);
    if fixture.kind != Kind::Plain {
        // The test itself makes two calls per key. A large hash is not read.
        assert!(spent.of("hgetall") <= 2 * 7 + 3 * 6, "{spent:?}");
    }
    // A hash that a lock library wrote is a hold, also without an expiry, for every kind of lock.
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
            let _: () = connection.hset(key, "mode", mode).await.expect("set");
            let reads = format!("{{{key}}}:{OWNER}:rwlock_timeout:1");
            let _: () = connection.set(reads, 1).await.expect("set");
        }
        let _: () = connection.hset(key, field, 1).await.expect("set");
        let outcome = client.lock(key).try_lock_for(ms(50)).await;
        match (fixture.kind, key) {
            (Kind::Read, "reading") => assert!(outcome.expect("a reply").acquired().is_some()),
            (Kind::Plain, _) => assert!(outcome.is_err(), "{key}: {outcome:?}"),
            (Kind::Read | Kind::Write, key) if key.starts_with("exclusive") => {
                assert!(
                    matches!(outcome, Err(Error::WrongKind { found: turnlock::Kind::Lock, .. })),
                    "{key}: {outcome:?}"
                );
            }
            _ => assert!(outcome.expect("a reply").is_busy(), "{key}"),
        }
    }
}

/// Returns the auxiliary keys of the lock at this key.
async fn auxiliary_keys(connection: &mut redis::aio::MultiplexedConnection, key: &str) -> Vec<String> {
    let keys: Vec<String> = connection.keys(format!("*{{{key}}}*")).await.expect("keys");
    keys.into_iter().filter(|key| !key.starts_with("redisson_lock_token")).collect()
}

async fn a_lock_without_an_expiry_is_polled_and_not_overwritten(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let lock = fixture.client_with(Client::builder()).await.lock("endless");
    let _: () = connection.hset("endless", "stranger:1", 1).await.unwrap();
    let seen = lock.inspect().await.expect("a reply");
    assert!(seen.is_locked() && seen.ttl.is_none());
    assert!(lock.try_lock_for(ms(50)).await.expect("a reply").is_busy());
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(&lock, 1).await;
    // Deleted without a message.
    let _: () = connection.del("endless").await.unwrap();
    within(ONE_POLL, "the waiter polls", task).await.expect("no panic").unlock().await.expect("held");
}

async fn a_busy_server_is_retried(_: Fixture) {
    let server = RedisServer::start_with(&["--busy-reply-threshold", "50"]).await;
    let client = Client::builder().poll_interval(NO_POLL).connect(&server.url()).await.expect("a server");
    let mut stuck = server.client().await;
    let endless = tokio::spawn(async move {
        let script = "while true do end";
        redis::cmd("EVAL").arg(script).arg(0).query_async::<()>(&mut stuck).await
    });
    eventually("the server is busy", ms(20_000), async || {
        let error =
            client.lock("x").try_lock().await.err().map(|error| turnlock_testkit::error_chain(&error));
        error.is_some_and(|error| error.contains("BUSY"))
    })
    .await;
    let lock = client.lock("x");
    let waiter = tokio::spawn(async move { lock.lock().await.expect("acquired") });
    let mut killer = server.client().await;
    tokio::time::sleep(ms(100)).await;
    assert!(!waiter.is_finished());
    let _: () = redis::cmd("SCRIPT").arg("KILL").query_async(&mut killer).await.expect("killed");
    let guard = within(PROMPT, "the waiter acquires", waiter).await.expect("no panic");
    assert!(endless.await.expect("no panic").is_err());
    guard.unlock().await.expect("held");
}

/// A paused server executes buffered requests when it resumes. By then their callers have returned.
async fn a_paused_server_leaves_no_lock_behind(fixture: Fixture) {
    let builder = || {
        Client::builder()
            .response_timeout(ms(100))
            // The wait of each request below is shorter.
            .retry_for(ms(20_000))
            .connect_timeout(ms(1_500))
            .poll_interval(NO_POLL)
    };
    let client = fixture.client_with(builder()).await;
    let mut connection = fixture.raw_connection().await;
    fixture.server().pause();
    let mut tasks = Vec::new();
    for number in 0..20 {
        let lock = client.lock(&format!("paused:{number}"));
        tasks.push(tokio::spawn(async move { lock.try_lock_for(ms(300)).await }));
    }
    for task in tasks {
        let outcome = task.await.expect("no panic");
        assert!(matches!(outcome, Err(Error::Unavailable { .. })), "{outcome:?}");
    }
    fixture.server().resume();
    eventually("every key is free", PROMPT, async || {
        // The pattern does not match the last token of a fenced lock, which stays.
        let keys: Vec<String> = connection.clone().keys("paused*").await.unwrap();
        keys.is_empty()
    })
    .await;
    // Check again later: no key reappears.
    tokio::time::sleep(ms(300)).await;
    let keys: Vec<String> = connection.keys("paused*").await.unwrap();
    assert_eq!(keys, Vec::<String>::new());
    client.lock("paused:1").lock().await.expect("free").unlock().await.expect("held");
}

async fn user(fixture: &Fixture, rules: &[&str]) -> String {
    let mut connection = fixture.raw_connection().await;
    let mut cmd = redis::cmd("ACL");
    cmd.arg("SETUSER").arg("worker").arg("reset").arg("on").arg(">pass").arg(rules);
    let _: () = cmd.query_async(&mut connection).await.expect("a user");
    format!("redis://worker:pass@127.0.0.1:{}", fixture.server().port())
}

async fn a_user_without_channel_rights_can_still_release(fixture: Fixture) {
    let url = user(&fixture, &["~*", "+@all", "resetchannels"]).await;
    let client = Client::connect(&url).await.expect("a server");
    let guard = client.lock("quiet").lock().await.expect("free");
    let other = fixture.client_with(Client::builder()).await;
    let waiting = client.lock("quiet");
    let waiter = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(&client.lock("quiet"), 1).await;
    guard.unlock().await.expect("the release itself is allowed");
    let guard = within(ONE_POLL, "no message, but the waiter polls", waiter).await.expect("no panic");
    guard.unlock().await.expect("held");
    assert!(!other.lock("quiet").is_locked().await.expect("a reply"));
}

async fn a_user_without_pexpire_leaves_no_lock_behind(fixture: Fixture) {
    let url = user(&fixture, &["~*", "+@all", "-pexpire", "allchannels"]).await;
    let client = Client::connect(&url).await.expect("a server");
    let error = client.lock("forever").lock().await.expect_err("denied");
    assert!(matches!(error, Error::Denied { .. }), "{error}");
    assert!(!fixture.client().await.lock("forever").is_locked().await.expect("a reply"));
}

async fn an_unreachable_server_is_an_error_in_time(mut fixture: Fixture) {
    let url = fixture.server().url();
    let client = fixture.client_with(Client::builder().retry_for(ms(300))).await;
    let lock = client.lock("x");
    let guard = lock.lock().await.expect("free");
    fixture.server_mut().stop().await;
    let start = Instant::now();
    let error =
        Client::builder().connect_timeout(ms(500)).connect(&url).await.expect_err("the server is down");
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    assert!(turnlock_testkit::error_chain(&error).contains("127.0.0.1"), "{error}");
    for outcome in [
        client.lock("y").try_lock().await.map(drop),
        client.lock("y").lock().await.map(drop),
        client.lock("y").try_lock_for(ms(20)).await.map(drop),
        client.lock("y").try_lock_for(ms(600)).await.map(drop),
        client.lock("y").is_locked().await.map(drop),
    ] {
        let error = outcome.expect_err("the server is down");
        assert!(
            matches!(&error, Error::Unavailable { .. })
                && turnlock_testkit::error_chain(&error).contains('y'),
            "{error}"
        );
    }
    let error = guard.unlock().await.expect_err("the server is down");
    assert!(matches!(&error, Error::InDoubt { .. }), "{error}");
    in_time("each call fails", start, Duration::from_secs(10));
    fixture.server_mut().restart().await;
    eventually("the server is back", ms(20_000), async || {
        matches!(lock.try_lock().await, Ok(TryAcquire::Acquired(_)))
    })
    .await;
}

async fn a_password_is_never_shown(fixture: Fixture) {
    let password = "c4n4ry-pa55";
    let port = fixture.server().port();
    let url = format!("redis://:{password}@127.0.0.1:{port}");
    // The server has no password, so a wrong one is refused.
    let wrong = Client::connect(&url).await.expect_err("a wrong password");
    assert!(matches!(wrong, Error::Denied { .. }), "{wrong}");
    let mut connection = fixture.raw_connection().await;
    let _: () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg(password)
        .query_async(&mut connection)
        .await
        .unwrap();
    let client = Client::connect(&url).await.expect("the right password");
    let lock = client.lock("x");
    let guard = lock.lock().await.expect("free");
    let bad_url = Client::connect(&format!("redis://:{password}@127.0.0.1:{port}/nodb"))
        .await
        .expect_err("no database");
    let no_server =
        Client::connect(&format!("redis://:{password}@127.0.0.1:1")).await.expect_err("no server");
    let missing = Client::connect(&fixture.server().url()).await.expect_err("no password");
    assert!(matches!(missing, Error::Denied { .. }), "{missing}");
    let builder = Client::builder();
    for text in [
        format!("{wrong} {wrong:?}"),
        format!("{bad_url} {bad_url:?}"),
        format!("{no_server} {no_server:?}"),
        format!("{missing} {missing:?}"),
        format!("{client:?} {lock:?} {guard:?} {builder:?}"),
    ] {
        assert!(!text.contains(password), "{text}");
        assert!(!text.is_empty());
    }
    guard.unlock().await.expect("held");
    let _: () = redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(!fixture.client().await.lock("x").is_locked().await.expect("a reply"));
}

async fn an_unlock_does_not_block_on_an_unreachable_store(mut fixture: Fixture) {
    let client = fixture.client_with(Client::builder().retry_for(ms(300)).connect_timeout(ms(1_500))).await;
    let owner = client.owner();
    let lock = client.lock("x").with_owner(&owner);
    let (one, two, three) =
        (lock.lock().await.unwrap(), lock.lock().await.unwrap(), lock.lock().await.unwrap());
    fixture.server_mut().stop().await;
    // Its release is retried in the background until the lease would have ended.
    drop(one);
    let start = Instant::now();
    assert!(matches!(lock.try_lock().await, Err(Error::Unavailable { .. })));
    assert!(matches!(lock.try_lock_for(ms(100)).await, Err(Error::Unavailable { .. })));
    assert!(matches!(two.reenter().await, Err(Error::Unavailable { .. })));
    let error = two.unlock().await.expect_err("the server is down");
    assert!(matches!(&error, Error::InDoubt { .. }), "{error}");
    in_time("each call fails", start, Duration::from_secs(10));
    assert!(three.is_valid(), "its lease has not ended");
}

async fn a_demoted_master_is_retried_with_pauses(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let client = fixture.client().await;
    let mut follow = async |host: &str, port: &str| {
        let _: () =
            redis::cmd("REPLICAOF").arg(host).arg(port).query_async(&mut connection).await.expect("a reply");
    };
    follow("127.0.0.1", "1").await;
    let error = client.lock("x").try_lock().await.expect_err("a replica refuses writes");
    assert!(
        matches!(&error, Error::Unavailable { .. })
            && turnlock_testkit::error_chain(&error).to_uppercase().contains("READONLY"),
        "{error}"
    );
    let lock = client.lock("x");
    let waiter = tokio::spawn(async move { lock.lock().await.expect("acquired") });
    let (before, start) = (fixture.server().calls().await, Instant::now());
    // Each retry uses a new connection, which may lead to the new master, after a pause.
    let spent = async || fixture.server().calls().await.since(&before);
    eventually("it retries", PROMPT, async || spent().await.of("role") >= 1).await;
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    let spent = spent().await;
    let most = 12 * (1 + u64::try_from(start.elapsed().as_millis()).unwrap() / 300);
    assert!(spent.of("role") <= most && spent.of("evalsha") == 0, "{spent:?}");
    follow("NO", "ONE").await;
    within(PROMPT, "the waiter acquires", waiter).await.expect("no panic").unlock().await.expect("held");
}
