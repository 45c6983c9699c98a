//! What cannot work is refused with words that say what to do, and nothing is written.

use std::time::Duration;

use turnlock::{Client, Error, LeaseError, MemoryStore, NameError};

use crate::rig::{Kind, Rig, ms};
use crate::{Case, cases};

pub(super) const CASES: &[Case] = cases![
    bad_names_are_refused,
    odd_names_work,
    bad_leases_are_refused,
    a_response_time_out_must_fit_the_lease,
    bad_settings_are_named,
    an_owner_of_another_client_is_refused,
    without_a_runtime_there_is_no_async_client,
];

async fn bad_names_are_refused(rig: Rig) {
    let client = rig.client().await;
    let long = "x".repeat(5_000);
    for (name, expected) in [("", NameError::Empty), (long.as_str(), NameError::TooLong(5_000))] {
        let lock = client.lock(name);
        for outcome in [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.try_lock_for(ms(1)).await.map(drop),
            lock.run(|_| async {}).await,
            lock.is_locked().await.map(drop),
            lock.force_unlock().await.map(drop),
        ] {
            let error = outcome.expect_err("a name that cannot be");
            assert!(matches!(&error, Error::BadName(why) if *why == expected), "{error}");
        }
    }
}

async fn odd_names_work(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let long = "x".repeat(4_096 - rig.named("").len());
    for end in ["a}b", "a{", "{x}", "with space", "new\nline", "*", "ümlaut ☃", "\0", &long] {
        let name = &rig.named(end);
        // In a cluster the keys of such a name could be on one server and its channel on another; a plain lock has one key.
        if rig.is_cluster() && rig.kind != Kind::Plain && ["a}b", "a{"].contains(&end) {
            let refused = one.lock(name).lock().await.map(drop);
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{name:?}: {refused:?}");
            continue;
        }
        let guard = one.lock(name).lock().await.expect("free");
        assert!(two.lock(name).try_lock().await.expect("an answer").is_none(), "{name:?}");
        guard.unlock().await.expect("held");
        assert!(two.lock(name).try_lock().await.expect("an answer").is_some(), "{name:?}");
    }
}

async fn bad_leases_are_refused(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    for (lease, expected) in [
        (Duration::ZERO, LeaseError::Zero),
        (Duration::from_nanos(5), LeaseError::TooShort(Duration::from_nanos(5))),
        (Duration::MAX, LeaseError::TooLong(Duration::MAX)),
    ] {
        let error = lock.lease(lease).lock().await.expect_err("a lease that cannot be");
        assert!(matches!(&error, Error::BadLease(why) if *why == expected), "{error}");
    }
    assert!(!lock.is_locked().await.expect("an answer"), "nothing was written");
    // A wait may be as long as it likes.
    assert!(lock.try_lock_for(Duration::MAX).await.expect("an answer").is_some());
}

async fn a_response_time_out_must_fit_the_lease(rig: Rig) {
    let client = rig.client_with(Client::builder().response_timeout(ms(400))).await;
    let lock = client.lock(&rig.name());
    let error = lock.lease(ms(1_200)).lock().await.expect_err("a third of 1.2 s is not above 400 ms");
    assert!(matches!(error, Error::BadConfiguration { setting: "response_timeout", .. }), "{error}");
    assert!(lock.lease(ms(1_201)).lock().await.is_ok());
    let error = Client::builder().watchdog(ms(1_000)).response_timeout(ms(500)).connect("memory://").await;
    assert!(matches!(error, Err(Error::BadConfiguration { setting: "response_timeout", .. })));
}

async fn bad_settings_are_named(_: Rig) {
    let zero = Duration::ZERO;
    for (builder, name) in [
        (Client::builder().watchdog(zero), "watchdog"),
        (Client::builder().response_timeout(zero), "response_timeout"),
        (Client::builder().connect_timeout(zero), "connect_timeout"),
        (Client::builder().retry_for(zero), "retry_for"),
        (Client::builder().poll(zero), "poll"),
        (Client::builder().hand_over_window(ms(3_001)), "hand_over_window"),
        (Client::builder().watchdog(ms(900)).hand_over_window(ms(91)), "hand_over_window"),
    ] {
        let error = builder.connect("memory://").await.expect_err("a bad setting");
        assert!(matches!(&error, Error::BadConfiguration { setting, .. } if *setting == name), "{error}");
    }
    for url in ["", "orders", "http://127.0.0.1", "redis://", "redis://host:port", "redis://h/notanumber"] {
        let error = Client::connect(url).await.expect_err("no store");
        assert!(matches!(&error, Error::BadConfiguration { setting: "url", .. }), "{url}: {error}");
    }
}

async fn an_owner_of_another_client_is_refused(rig: Rig) {
    let (one, two) = (rig.client().await, rig.client().await);
    let stranger = two.owner();
    let error = one.lock(&rig.name()).owned_by(&stranger).lock().await.expect_err("a stranger");
    assert!(matches!(error, Error::BadConfiguration { setting: "owner", .. }), "{error}");
}

async fn without_a_runtime_there_is_no_async_client(_: Rig) {
    let alone = std::thread::spawn(|| Client::builder().memory(&MemoryStore::new()).map(drop)).join();
    let alone = alone.expect("no panic");
    assert!(matches!(alone, Err(Error::BadConfiguration { setting: "runtime", .. })), "{alone:?}");
}
