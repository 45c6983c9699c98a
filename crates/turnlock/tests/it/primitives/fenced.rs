//! Fenced locks: each grant has a token higher than all before it.

use redis::AsyncCommands;
use turnlock::{Client, Error};
use turnlock_testkit::conformance::primitives::fenced::Highest;
use turnlock_testkit::{FaultProxy, RedisServer};

use crate::fixture::{Fixture, NO_POLL};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    a_thousand_quick_tokens_do_not_overtake_the_clock,
    tokens_rise_after_a_restart,
    a_resent_acquire_returns_a_higher_token,
    a_bad_token_key_is_an_error_and_left_alone,
    tokens_continue_from_those_of_java,
];

/// The cases that need a server whose clock can be set.
pub(super) const CLOCK_CASES: &[Case] = cases![a_client_raises_the_tokens_of_a_server_whose_clock_is_behind];

/// Tokens follow a clock in microseconds, which quick grants do not overtake. So they rise even if the data
/// is lost right after them.
async fn a_thousand_quick_tokens_do_not_overtake_the_clock(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let mut micros = async || -> u64 {
        let (seconds, micros): (u64, u64) =
            redis::cmd("TIME").query_async(&mut connection).await.expect("a time");
        seconds * 1_000_000 + micros
    };
    let lock = fixture.client().await.lock("fast");
    let mut highest = Highest::default();
    let before = micros().await;
    let mut guards = vec![lock.lock().await.expect("free")];
    highest.check(guards[0].token());
    assert!(highest.0 >= before, "{highest:?} is below the clock: {before}");
    for _ in 0..1_000 {
        let guard = guards[0].reenter().await.expect("held");
        highest.check(guard.token());
        guards.push(guard);
    }
    let after = micros().await;
    assert!(highest.0 <= after, "{highest:?} is ahead of the clock: {after}");
    fixture.lose_data().await;
    highest.lock_once(&fixture.client().await.lock("fast")).await;
    highest.lock_once(&lock).await;
}

async fn tokens_rise_after_a_restart(mut fixture: Fixture) {
    let mut highest = Highest::default();
    let client = fixture.client().await;
    highest.lock_once(&client.lock("restarted")).await;
    for _ in 0..2 {
        fixture.server_mut().restart().await;
        highest.lock_once(&fixture.client().await.lock("restarted")).await;
        highest.lock_once(&client.lock("restarted")).await;
    }
}

async fn a_resent_acquire_returns_a_higher_token(fixture: Fixture) {
    let proxy = FaultProxy::start(fixture.server().port()).await;
    let client = Client::builder().poll_interval(NO_POLL).connect(&proxy.url()).await.expect("a server");
    let (lock, other) = (client.fenced_lock("resent"), fixture.client().await.lock("resent"));
    let mut highest = Highest::default();
    for _ in 0..5 {
        highest.lock_once(&other).await;
        proxy.swallow_replies_to(b"resent");
        let guard = lock.lock().await.expect("resent");
        proxy.fired().await;
        highest.check(guard.token());
        proxy.swallow_replies_to(b"resent");
        let inner = guard.reenter().await.expect("resent");
        proxy.fired().await;
        highest.check(inner.token());
        assert_eq!(other.inspect().await.expect("a reply").token, inner.token());
        inner.unlock().await.expect("held");
        guard.unlock().await.expect("held");
    }
}

async fn a_bad_token_key_is_an_error_and_left_alone(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let lock = fixture.client().await.lock("odd");
    let key = "redisson_lock_token:{odd}";
    for text in ["precious", "1.5", "12345678901234567890"] {
        let _: () = connection.set(key, text).await.expect("set");
        for outcome in [lock.lock().await.map(drop), lock.try_lock().await.map(drop)] {
            let error = outcome.expect_err("a bad token");
            assert!(matches!(&error, Error::NotALock { .. }), "{text}: {error}");
        }
        assert_eq!(connection.get::<_, String>(key).await.expect("a reply"), text);
        assert!(!connection.exists::<_, bool>("odd").await.expect("a reply"), "no lock is left behind");
    }
    let _: () = connection.del(key).await.expect("deleted");
    let _: () = connection.rpush(key, "precious").await.expect("pushed");
    assert!(matches!(lock.lock().await, Err(Error::NotALock { .. })));
    assert!(matches!(lock.inspect().await, Err(Error::NotALock { .. })));
    assert_eq!(connection.lrange::<_, Vec<String>>(key, 0, -1).await.expect("a reply"), ["precious"]);
    assert!(!connection.exists::<_, bool>("odd").await.expect("a reply"), "no lock is left behind");
    let _: () = connection.del(key).await.expect("deleted");
    lock.lock().await.expect("free").unlock().await.expect("held");
}

async fn tokens_continue_from_those_of_java(fixture: Fixture) {
    let mut connection = fixture.raw_connection().await;
    let lock = fixture.client().await.lock("shared");
    let mut highest = Highest::default();
    highest.lock_once(&lock).await;
    for _ in 0..3 {
        // As a grant by Redisson does.
        let java: u64 = connection.incr("redisson_lock_token:{shared}", 1).await.expect("a reply");
        highest.check(Some(java));
        highest.lock_once(&lock).await;
    }
    let text: String = connection.get("redisson_lock_token:{shared}").await.expect("a reply");
    assert_eq!(text, highest.0.to_string(), "an integer that Java can increment");
    let ttl: i64 = connection.pttl("redisson_lock_token:{shared}").await.expect("a reply");
    assert_eq!(ttl, -1, "it does not expire");
}

/// The data is lost, and the next server has an earlier time. The client has seen the tokens of the first.
async fn a_client_raises_the_tokens_of_a_server_whose_clock_is_behind(_: Fixture) {
    let server = RedisServer::start_with_clock_ahead(-3_600).await;
    let mut connection = server.client().await;
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    // The token of a server with the right time.
    let _: () =
        connection.set("redisson_lock_token:{moved}", here.as_micros().to_string()).await.expect("set");
    let client = Client::connect(&server.url()).await.expect("a server");
    let lock = client.fenced_lock("moved");
    let mut highest = Highest::default();
    highest.lock_once(&lock).await;
    assert!(u128::from(highest.0) > here.as_micros());
    for _ in 0..3 {
        let _: () = redis::cmd("FLUSHALL").query_async(&mut connection).await.expect("flushed");
        highest.lock_once(&lock).await;
    }
    // From then on, for every client.
    highest.lock_once(&Client::connect(&server.url()).await.expect("a server").fenced_lock("moved")).await;
}
