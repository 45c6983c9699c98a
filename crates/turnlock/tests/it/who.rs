//! Who a client says it is.

use std::time::{Duration, SystemTime};

use redis::AsyncCommands;
use turnlock::{Client, Identity, OwnerId};
use turnlock_testkit::{FaultProxy, eventually, within};

use crate::rig::{KindClient, Rig, keys_of_locks, ms, until_waiting};
use crate::{Case, cases};

/// The cases for every store.
pub(crate) const CASES: &[Case] = cases![
    who_holds_and_who_waits_says_who_it_is,
    those_who_say_nothing_are_nobody,
    an_announced_hold_tells_since_when,
    the_blocking_interface_tells_the_same,
];

/// The cases that need a server.
pub(crate) const REDIS_CASES: &[Case] = cases![
    it_is_said_once,
    it_is_said_beside_every_prefix_and_is_forgotten_in_time,
    a_user_who_may_not_say_it_locks_all_the_same,
    nothing_waits_for_it,
    a_hostile_word_is_nobodys,
];

/// Who the client of one owner is.
async fn identity(asker: &Client, owner: &OwnerId) -> Option<Identity> {
    let mut all = asker.identities(std::slice::from_ref(owner)).await.expect("an answer");
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The same, when the store has heard of it.
async fn known(asker: &Client, owner: &OwnerId) -> Identity {
    eventually("it is told", ms(5_000), async || identity(asker, owner).await.is_some()).await;
    identity(asker, owner).await.expect("told")
}

async fn client_called(rig: &Rig, label: &str) -> KindClient {
    rig.client_with(Client::builder().poll(crate::rig::NO_POLL).label(label)).await
}

async fn who_holds_and_who_waits_says_who_it_is(rig: Rig) {
    let (before, name) = (SystemTime::now() - ms(1), rig.name());
    let (one, two) = (client_called(&rig, "the first").await, client_called(&rig, "the second").await);
    let guard = one.fair_lock(&name).lock().await.expect("free");
    let lock = two.fair_lock(&name);
    let waiting = lock.clone();
    let task = tokio::spawn(async move { waiting.lock().await.expect("a turn") });
    until_waiting(&lock, 1).await;
    let waiter = lock.inspect().await.expect("an answer").queue.remove(0);
    let asker = rig.client().await;
    for (owner, label) in [(guard.owner_id(), "the first"), (&waiter, "the second")] {
        let who = known(&asker, owner).await;
        assert_eq!((who.label.as_str(), who.pid), (label, std::process::id()));
        assert!(!who.host.is_empty() && who.started >= before && who.started <= SystemTime::now(), "{who:?}");
        assert_eq!(who.since_of(owner), None, "it was not announced");
    }
    guard.unlock().await.expect("held");
    task.await.expect("no panic").unlock().await.expect("held");
    let unnamed = rig.client().await;
    let guard = unnamed.lock(&name).lock().await.expect("free");
    let label = known(&asker, guard.owner_id()).await.label;
    assert!(label.starts_with("it-"), "the name of this program, and not {label:?}");
}

async fn those_who_say_nothing_are_nobody(rig: Rig) {
    let (client, asker) = (rig.client().await, rig.client().await);
    let guard = client.lock(&rig.name()).lock().await.expect("free");
    let semaphore = client.permit_semaphore(&rig.name());
    semaphore.set_permits(1).await.expect("set");
    let permits = semaphore.acquire(1).await.expect("free");
    let who = known(&asker, guard.owner_id()).await;
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
    let all = asker.identities(&owners).await.expect("an answer");
    assert_eq!(all, [None, Some(who.clone()), None, None, None, Some(who), None, None]);
    assert!(asker.identities(&[]).await.expect("an answer").is_empty());
    let many: Vec<_> =
        (0..1_000).map(|number| owner(&format!("07070707-0707-4707-8707-{number:012}:1"))).collect();
    assert_eq!(asker.identities(&many).await.expect("an answer"), vec![None; 1_000]);
}

async fn an_announced_hold_tells_since_when(rig: Rig) {
    let (client, asker) = (rig.client().await, rig.client().await);
    let before = SystemTime::now();
    let one = client.lock(&rig.name()).lock().await.expect("free");
    let after = SystemTime::now();
    tokio::time::sleep(ms(50)).await;
    one.announce().await.expect("told");
    let since = async |owner: &OwnerId| identity(&asker, owner).await.expect("told").since_of(owner);
    let told = since(one.owner_id()).await.expect("announced");
    // Told in milliseconds.
    assert!(told + ms(1) >= before && told <= after + ms(1), "{before:?} {told:?} {after:?}");
    let two = client.lock(&rig.name()).lock().await.expect("free");
    assert_eq!(since(two.owner_id()).await, None);
    two.announce().await.expect("told");
    assert_eq!(since(one.owner_id()).await, Some(told), "it is still told of the first");
    assert!(since(two.owner_id()).await.is_some());
    let gone = one.owner_id().clone();
    one.unlock().await.expect("held");
    two.announce().await.expect("told");
    assert_eq!(since(&gone).await, None, "what was given back is not told of");
    for _ in 0..100 {
        let guard = client.lock(&rig.name()).lock().await.expect("free");
        guard.announce().await.expect("told");
        assert!(since(guard.owner_id()).await.is_some(), "however many there were");
    }
    assert!(since(two.owner_id()).await.is_some());
}

async fn the_blocking_interface_tells_the_same(rig: Rig) {
    let (client, name) = (rig.blocking_client(), rig.name());
    let work = move || {
        let guard = client.lock(&name).lock().expect("free");
        guard.announce().expect("told");
        let owner = guard.owner_id().clone();
        let who =
            client.identities(std::slice::from_ref(&owner)).expect("an answer").remove(0).expect("told");
        assert!(who.since_of(&owner).is_some() && who.pid == std::process::id());
    };
    tokio::task::spawn_blocking(work).await.expect("no panic");
}

async fn it_is_said_once(rig: Rig) {
    let client = rig.client().await;
    let before = rig.server().calls().await;
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let lock = client.lock(&format!("lock:{}", number % 20));
            tokio::spawn(async move { lock.lock().await.expect("a turn").unlock().await.expect("held") })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    let guard = client.lock("last").lock().await.expect("free");
    known(&client, guard.owner_id()).await;
    assert_eq!(rig.server().calls().await.since(&before).of("psetex"), 1);
    guard.announce().await.expect("told");
    assert_eq!(rig.server().calls().await.since(&before).of("psetex"), 2);
}

async fn it_is_said_beside_every_prefix_and_is_forgotten_in_time(rig: Rig) {
    let client = rig.client_with(Client::builder().key_prefix("app:")).await;
    let guard = client.lock("orders").lock().await.expect("free");
    let who = known(&*rig.client().await, guard.owner_id()).await;
    let mut plain = rig.plain().await;
    let key = format!("turnlock_client:{}", client.id());
    let ttl: u64 = plain.pttl(&key).await.expect("there");
    assert!((3_590_000..=3_600_000).contains(&ttl), "{ttl}");
    let record: String = plain.get(&key).await.expect("there");
    let expected =
        format!(r#"{{"host":"{}","pid":{},"label":"{}","started_ms":"#, who.host, who.pid, who.label);
    assert!(record.starts_with(&expected), "{record}");
    assert_eq!(keys_of_locks(&mut plain).await, ["app:orders"], "it is the only key beside");
}

async fn a_user_who_may_not_say_it_locks_all_the_same(rig: Rig) {
    let refused = async || {
        let log: Vec<Vec<redis::Value>> = rig.server().ask(&["ACL", "LOG"]).await.expect("an answer");
        log.into_iter()
            .map(|entry| redis::from_redis_value::<u64>(entry[1].clone()).expect("a count"))
            .sum::<u64>()
    };
    let rule = ["ACL", "SETUSER", "some", "reset", "on", ">pass", "&*", "~app:*", "+@all"];
    rig.server().ask::<()>(&rule).await.expect("a user");
    let builder = || Client::builder().user("some").password("pass");
    let client = builder().connect(&rig.server().url()).await.expect("let in");
    for number in 0..20 {
        let guard = client.lock(&format!("app:{number}")).lock().await.expect("free");
        if number == 0 {
            eventually("it was refused", ms(5_000), async || refused().await == 1).await;
            assert_eq!(identity(&client, guard.owner_id()).await, None, "it may not look either");
        }
        guard.unlock().await.expect("held");
    }
    // Once to say it, and once to look.
    assert_eq!(refused().await, 2, "it is not tried again and again");
    let guard = client.lock("app:last").lock().await.expect("free");
    let denied = guard.announce().await;
    assert!(matches!(denied, Err(turnlock::Error::Denied { .. })), "{denied:?}");
    guard.unlock().await.expect("held all the same");
}

async fn nothing_waits_for_it(rig: Rig) {
    let proxy = FaultProxy::start(rig.server().port()).await;
    proxy.swallow_replies_to(b"turnlock_client");
    let builder = Client::builder().response_timeout(Duration::from_secs(8));
    let client = rig.client_at(builder, &format!("redis://127.0.0.1:{}", proxy.port())).await;
    let guard = client.lock("orders").lock().await.expect("free");
    within(ms(5_000), "it is given back", guard.unlock()).await.expect("held, whatever became of the word");
    let left = within(ms(5_000), "it ends", client.shutdown(ms(4_000))).await;
    assert!(left.is_clean(), "{left:?}");
}

async fn a_hostile_word_is_nobodys(rig: Rig) {
    let (client, mut plain) = (rig.client().await, rig.plain().await);
    let guard = client.lock("orders").lock().await.expect("free");
    known(&client, guard.owner_id()).await;
    let key = |number: u32| format!("turnlock_client:07070707-0707-4707-8707-{number:012}");
    let mut keys = redis::pipe();
    keys.set(key(0), "no JSON")
        .set(key(1), "x".repeat(1_000_000))
        .rpush(key(2), "x")
        .set(key(3), b"\xff\xfe");
    keys.hset(key(4), "host", "x").set(key(5), "").set(key(6), r#"{"host":1}"#);
    keys.set(key(7), r#"{"host":"a\u001b[2Jb","pid":1,"label":"x\ny","started_ms":1,"since":{"9":5}}"#);
    let _: () = keys.query_async(&mut plain).await.expect("set");
    let owner = |number: u32| OwnerId::from_wire(&format!("07070707-0707-4707-8707-{number:012}:9"));
    let owners: Vec<_> = (0..8).map(owner).chain([guard.owner_id().clone()]).collect();
    let all = client.identities(&owners).await.expect("an answer");
    assert_eq!(all[..7], [const { None }; 7]);
    let cut = all[7].as_ref().expect("one that can be read");
    assert_eq!((cut.host.as_str(), cut.label.as_str()), ("a\u{fffd}[2Jb", "x\u{fffd}y"));
    assert_eq!(cut.since_of(&owner(7)), Some(SystemTime::UNIX_EPOCH + ms(5)));
    assert!(all[8].is_some(), "the others are known all the same");
}
