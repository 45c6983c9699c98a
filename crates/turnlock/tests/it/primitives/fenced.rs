//! Fenced locks: each grant has a token higher than all before it.

use redis::AsyncCommands;
use turnlock::{Client, Error, Lock};
use turnlock_testkit::{FaultProxy, RedisServer, within};

use crate::fixture::{Fixture, NO_POLL, PROMPT, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    tokens_rise_across_clients_reentries_expiry_and_forced_unlocks,
    tokens_rise_after_data_loss,
    a_reentrant_lock_of_the_same_name_excludes_and_has_no_token,
    the_body_of_a_run_can_read_its_token,
    inspect_shows_the_last_token,
];

pub(super) const REDIS_CASES: &[Case] = cases![
    a_thousand_quick_tokens_do_not_overtake_the_clock,
    tokens_rise_after_a_restart,
    a_resent_acquire_returns_a_higher_token,
    a_bad_token_key_is_an_error_and_left_alone,
    tokens_continue_from_those_of_java,
];

/// The cases that need a server whose clock can be set.
pub(super) const CLOCK_CASES: &[Case] = cases![a_client_raises_the_tokens_of_a_server_whose_clock_is_behind];

/// Asserts that tokens rise.
#[derive(Debug, Default)]
struct Highest(u64);

impl Highest {
    /// Acquires the lock, checks its token, and releases it.
    async fn lock_once(&mut self, lock: &Lock) {
        let guard = within(ms(5_000), "acquired", lock.lock()).await.expect("acquired");
        self.check(guard.token());
        guard.unlock().await.expect("held");
    }

    #[track_caller]
    fn check(&mut self, token: Option<u64>) {
        let token = token.expect("a token");
        assert!(token > self.0, "{token} does not rise above {}", self.0);
        self.0 = token;
    }
}

async fn tokens_rise_across_clients_reentries_expiry_and_forced_unlocks(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let mut highest = Highest::default();
    for lock in [&one, &two, &two, &one] {
        highest.lock_once(lock).await;
        let outer = lock.lock().await.expect("free");
        highest.check(outer.token());
        let inner = outer.reenter().await.expect("held");
        highest.check(inner.token());
        assert!(outer.token() < inner.token(), "each guard has the token of its own grant");
        inner.unlock().await.expect("held");
        outer.unlock().await.expect("held");
        let short = lock.with_lease(ms(60)).lock().await.expect("free");
        highest.check(short.token());
        highest.lock_once(&two).await;
        assert!(!short.is_valid());
        let forced = lock.lock().await.expect("free");
        highest.check(forced.token());
        assert!(one.force_unlock().await.expect("a reply"));
        highest.lock_once(&one).await;
        let tried = two.try_lock().await.expect("a reply").acquired().expect("free");
        highest.check(tried.token());
        assert!(one.try_lock().await.expect("a reply").is_busy());
        tried.unlock().await.expect("held");
    }
    let client = fixture.client().await;
    let owned = client.lock(&name).with_owner(&client.owner());
    let guards = [owned.lock().await.expect("free"), owned.lock().await.expect("the same owner")];
    for guard in &guards {
        highest.check(guard.token());
    }
}

async fn tokens_rise_after_data_loss(fixture: Fixture) {
    let name = fixture.name();
    let (one, two) = (fixture.client().await.lock(&name), fixture.client().await.lock(&name));
    let mut highest = Highest::default();
    for _ in 0..5 {
        highest.lock_once(&one).await;
        let held = one.lock().await.expect("free");
        highest.check(held.token());
        fixture.lose_data().await;
        highest.lock_once(&two).await;
        assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
        highest.lock_once(&fixture.client().await.lock(&name)).await;
    }
}

async fn a_reentrant_lock_of_the_same_name_excludes_and_has_no_token(fixture: Fixture) {
    let (client, name) = (fixture.client().await, fixture.name());
    let (fenced, reentrant) = (client.fenced_lock(&name), client.reentrant(&name));
    let mut highest = Highest::default();
    highest.lock_once(&fenced).await;
    let guard = reentrant.lock().await.expect("free");
    assert_eq!(guard.token(), None);
    assert!(fenced.try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
    let guard = fenced.lock().await.expect("free");
    highest.check(guard.token());
    assert!(reentrant.try_lock().await.expect("a reply").is_busy());
    let waiting = reentrant.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("acquired") });
    until_waiting(&reentrant, 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "the release of one wakes the waiter of the other", task)
        .await
        .expect("no panic")
        .unlock()
        .await
        .expect("held");
    highest.lock_once(&fenced).await;
}

async fn the_body_of_a_run_can_read_its_token(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let mut highest = Highest::default();
    highest.lock_once(&lock).await;
    highest.check(lock.run(|held| async move { held.token() }).await.expect("acquired"));
    let outcome = lock.try_run_for(ms(500), |held| async move { held.token() }).await.expect("a reply");
    highest.check(outcome.expect("free"));
    highest.lock_once(&lock).await;
}

async fn inspect_shows_the_last_token(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    assert_eq!(lock.inspect().await.expect("a reply").token, None);
    let guard = lock.lock().await.expect("free");
    assert_eq!(lock.inspect().await.expect("a reply").token, guard.token());
    let last = guard.token();
    guard.unlock().await.expect("held");
    assert_eq!(lock.inspect().await.expect("a reply").token, last, "it outlives the hold");
}

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
