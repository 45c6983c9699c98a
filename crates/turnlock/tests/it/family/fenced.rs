//! The fenced lock: a token with every grant, higher than all before it.

use redis::AsyncCommands;
use turnlock::{Client, Error, Lock};
use turnlock_testkit::{FaultProxy, RedisServer, within};

use crate::rig::{NO_POLL, PROMPT, Rig, ms, until_waiting};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    tokens_rise_over_clients_reentries_expiry_and_force,
    tokens_rise_over_a_loss_of_data,
    a_plain_lock_of_the_same_name_excludes_and_has_no_token,
    the_body_of_a_run_sees_its_token,
    a_look_shows_the_last_token,
];

pub(super) const REDIS_CASES: &[Case] = cases![
    more_than_a_thousand_tokens_a_second_rise,
    tokens_rise_over_a_restart,
    a_resent_acquire_has_a_token_that_rises,
    a_token_of_another_make_is_left_alone,
    tokens_go_on_from_where_java_is,
];

/// Cases whose server has a clock of its own.
pub(super) const CLOCK_CASES: &[Case] =
    cases![a_client_that_saw_higher_tokens_lifts_a_server_whose_clock_is_behind];

/// The highest token so far.
#[derive(Debug, Default)]
struct Highest(u64);

impl Highest {
    /// Takes the lock and gives it back.
    async fn take(&mut self, lock: &Lock) {
        let guard = within(ms(5_000), "a turn", lock.lock()).await.expect("a turn");
        self.see(guard.token());
        guard.unlock().await.expect("held");
    }

    #[track_caller]
    fn see(&mut self, token: Option<u64>) {
        let token = token.expect("a token");
        assert!(token > self.0, "{token} does not rise above {}", self.0);
        self.0 = token;
    }
}

async fn tokens_rise_over_clients_reentries_expiry_and_force(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let mut highest = Highest::default();
    for lock in [&one, &two, &two, &one] {
        highest.take(lock).await;
        let outer = lock.lock().await.expect("free");
        highest.see(outer.token());
        let inner = outer.reenter().await.expect("held");
        highest.see(inner.token());
        assert!(outer.token() < inner.token(), "each grant keeps its own");
        inner.unlock().await.expect("held");
        outer.unlock().await.expect("held");
        let short = lock.lease(ms(60)).lock().await.expect("free");
        highest.see(short.token());
        highest.take(&two).await;
        assert!(!short.is_valid());
        let forced = lock.lock().await.expect("free");
        highest.see(forced.token());
        assert!(one.force_unlock().await.expect("an answer"));
        highest.take(&one).await;
        let now_or_never = two.try_lock().await.expect("an answer").expect("free");
        highest.see(now_or_never.token());
        assert!(one.try_lock().await.expect("an answer").is_none());
        now_or_never.unlock().await.expect("held");
    }
    let me = rig.client().await;
    let mine = me.lock(&name).owned_by(&me.owner());
    let guards = [mine.lock().await.expect("free"), mine.lock().await.expect("mine")];
    for guard in &guards {
        highest.see(guard.token());
    }
}

async fn tokens_rise_over_a_loss_of_data(rig: Rig) {
    let name = rig.name();
    let (one, two) = (rig.client().await.lock(&name), rig.client().await.lock(&name));
    let mut highest = Highest::default();
    for _ in 0..5 {
        highest.take(&one).await;
        let held = one.lock().await.expect("free");
        highest.see(held.token());
        rig.lose_data().await;
        highest.take(&two).await;
        assert!(matches!(held.unlock().await, Err(Error::Lost { .. })));
        highest.take(&rig.client().await.lock(&name)).await;
    }
}

async fn a_plain_lock_of_the_same_name_excludes_and_has_no_token(rig: Rig) {
    let (client, name) = (rig.client().await, rig.name());
    let (fenced, plain) = (client.fenced_lock(&name), client.reentrant(&name));
    let mut highest = Highest::default();
    highest.take(&fenced).await;
    let guard = plain.lock().await.expect("free");
    assert_eq!(guard.token(), None);
    assert!(fenced.try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
    let guard = fenced.lock().await.expect("free");
    highest.see(guard.token());
    assert!(plain.try_lock().await.expect("an answer").is_none());
    let waiting = plain.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&plain, 1).await;
    guard.unlock().await.expect("held");
    within(PROMPT, "one is told of the other's end", task)
        .await
        .expect("no panic")
        .unlock()
        .await
        .expect("held");
    highest.take(&fenced).await;
}

async fn the_body_of_a_run_sees_its_token(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let mut highest = Highest::default();
    highest.take(&lock).await;
    highest.see(lock.run(|held| async move { held.token() }).await.expect("a turn"));
    let outcome = lock.try_run_for(ms(500), |held| async move { held.token() }).await.expect("an answer");
    highest.see(outcome.expect("free"));
    highest.take(&lock).await;
}

async fn a_look_shows_the_last_token(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    assert_eq!(lock.inspect().await.expect("an answer").token, None);
    let guard = lock.lock().await.expect("free");
    assert_eq!(lock.inspect().await.expect("an answer").token, guard.token());
    let last = guard.token();
    guard.unlock().await.expect("held");
    assert_eq!(lock.inspect().await.expect("an answer").token, last, "it outlives the hold");
}

/// Tokens follow a clock in microseconds, which more than a thousand grants a second do not overtake. So they rise although
/// the data is lost right after them.
async fn more_than_a_thousand_tokens_a_second_rise(rig: Rig) {
    let mut plain = rig.plain().await;
    let mut micros = async || -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut plain).await.expect("a time");
        seconds * 1_000_000 + micros
    };
    let lock = rig.client().await.lock("fast");
    let mut highest = Highest::default();
    let before = micros().await;
    let mut guards = vec![lock.lock().await.expect("free")];
    highest.see(guards[0].token());
    assert!(highest.0 >= before, "{highest:?} is below the clock, {before}");
    for _ in 0..1_000 {
        let guard = guards[0].reenter().await.expect("held");
        highest.see(guard.token());
        guards.push(guard);
    }
    let after = micros().await;
    assert!(highest.0 <= after, "{highest:?} is ahead of the clock, {after}");
    rig.lose_data().await;
    highest.take(&rig.client().await.lock("fast")).await;
    highest.take(&lock).await;
}

async fn tokens_rise_over_a_restart(mut rig: Rig) {
    let mut highest = Highest::default();
    let client = rig.client().await;
    highest.take(&client.lock("restarted")).await;
    for _ in 0..2 {
        rig.server_mut().restart().await;
        highest.take(&rig.client().await.lock("restarted")).await;
        highest.take(&client.lock("restarted")).await;
    }
}

async fn a_resent_acquire_has_a_token_that_rises(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    let client = Client::builder().poll(NO_POLL).connect(&proxy.url()).await.expect("a server");
    let (lock, other) = (client.fenced_lock("resent"), rig.client().await.lock("resent"));
    let mut highest = Highest::default();
    for _ in 0..5 {
        highest.take(&other).await;
        proxy.swallow_replies_to(b"resent");
        let guard = lock.lock().await.expect("asked again");
        proxy.fired().await;
        highest.see(guard.token());
        proxy.swallow_replies_to(b"resent");
        let inner = guard.reenter().await.expect("asked again");
        proxy.fired().await;
        highest.see(inner.token());
        assert_eq!(other.inspect().await.expect("an answer").token, inner.token());
        inner.unlock().await.expect("held");
        guard.unlock().await.expect("held");
    }
}

async fn a_token_of_another_make_is_left_alone(rig: Rig) {
    let mut plain = rig.plain().await;
    let lock = rig.client().await.lock("odd");
    let key = "redisson_lock_token:{odd}";
    for text in ["precious", "1.5", "12345678901234567890"] {
        let _: () = plain.set(key, text).await.expect("set");
        for outcome in [lock.lock().await.map(drop), lock.try_lock().await.map(drop)] {
            let error = outcome.expect_err("no token");
            assert!(matches!(&error, Error::Corrupt { .. }), "{text}: {error}");
        }
        assert_eq!(plain.get::<_, String>(key).await.expect("an answer"), text);
        assert!(!plain.exists::<_, bool>("odd").await.expect("an answer"), "no lock is left behind");
    }
    let _: () = plain.del(key).await.expect("deleted");
    let _: () = plain.rpush(key, "precious").await.expect("pushed");
    assert!(matches!(lock.lock().await, Err(Error::Corrupt { .. })));
    assert!(matches!(lock.inspect().await, Err(Error::Corrupt { .. })));
    assert_eq!(plain.lrange::<_, Vec<String>>(key, 0, -1).await.expect("an answer"), ["precious"]);
    assert!(!plain.exists::<_, bool>("odd").await.expect("an answer"), "no lock is left behind");
    let _: () = plain.del(key).await.expect("deleted");
    lock.lock().await.expect("as ever").unlock().await.expect("held");
}

async fn tokens_go_on_from_where_java_is(rig: Rig) {
    let mut plain = rig.plain().await;
    let lock = rig.client().await.lock("shared");
    let mut highest = Highest::default();
    highest.take(&lock).await;
    for _ in 0..3 {
        // As Redisson's grant does it.
        let java: u64 = plain.incr("redisson_lock_token:{shared}", 1).await.expect("an answer");
        highest.see(Some(java));
        highest.take(&lock).await;
    }
    let text: String = plain.get("redisson_lock_token:{shared}").await.expect("an answer");
    assert_eq!(text, highest.0.to_string(), "a whole number that Java can count on");
    let ttl: i64 = plain.pttl("redisson_lock_token:{shared}").await.expect("an answer");
    assert_eq!(ttl, -1, "it has no end");
}

/// The data is lost, and the server that comes after has an earlier time. The client saw the tokens of the first.
async fn a_client_that_saw_higher_tokens_lifts_a_server_whose_clock_is_behind(_: Rig) {
    let server = RedisServer::start_with_clock_ahead(-3_600).await;
    let mut plain = server.client().await;
    let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    // What a server with the right time would have come to.
    let _: () = plain.set("redisson_lock_token:{moved}", here.as_micros().to_string()).await.expect("set");
    let client = Client::connect(&server.url()).await.expect("a server");
    let lock = client.fenced_lock("moved");
    let mut highest = Highest::default();
    highest.take(&lock).await;
    assert!(u128::from(highest.0) > here.as_micros());
    for _ in 0..3 {
        let _: () = redis::cmd("FLUSHALL").query_async(&mut plain).await.expect("flushed");
        highest.take(&lock).await;
    }
    // From then on, for everybody.
    highest.take(&Client::connect(&server.url()).await.expect("a server").fenced_lock("moved")).await;
}
