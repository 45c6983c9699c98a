//! Bad input is refused with a clear error, and nothing is written.

use std::time::Duration;

use crate::conformance::{Case, Fixture, Kind, cases, ms};
use turnlock::{Client, Error, LeaseError, MemoryStore, NameError};

pub(super) const CASES: &[Case] = cases![
    bad_names_are_refused,
    unusual_names_work,
    bad_leases_are_refused,
    a_response_time_out_must_fit_the_lease,
    bad_settings_are_named,
    an_owner_of_another_client_is_refused,
    an_async_client_needs_a_runtime,
];

async fn bad_names_are_refused(fixture: Fixture) {
    let client = fixture.client().await;
    let long = "x".repeat(5_000);
    let reserved = "turnlock_waits";
    for (name, expected) in [
        ("", NameError::Empty),
        (long.as_str(), NameError::TooLong(5_000)),
        (reserved, NameError::Reserved(reserved.to_owned())),
    ] {
        let lock = client.lock(name);
        for outcome in [
            lock.lock().await.map(drop),
            lock.try_lock().await.map(drop),
            lock.try_lock_for(ms(1)).await.map(drop),
            lock.run(|_| async {}).await,
            lock.is_locked().await.map(drop),
            lock.force_unlock().await.map(drop),
        ] {
            let error = outcome.expect_err("a bad name");
            assert!(matches!(&error, Error::BadName(why) if *why == expected), "{error}");
        }
    }
}

async fn unusual_names_work(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let long = "x".repeat(4_096 - fixture.named("").len());
    for suffix in ["a}b", "a{", "{x}", "with space", "new\nline", "*", "ümlaut ☃", "\0", &long] {
        let name = &fixture.named(suffix);
        // In a cluster the keys of such a name could be on one server and its channel on another. A plain
        // lock has one key.
        if fixture.store().refuses_single_braces()
            && fixture.kind != Kind::Plain
            && ["a}b", "a{"].contains(&suffix)
        {
            let refused = one.lock(name).lock().await.map(drop);
            assert!(matches!(refused, Err(Error::Unsupported(_))), "{name:?}: {refused:?}");
            continue;
        }
        let guard = one.lock(name).lock().await.expect("free");
        assert!(two.lock(name).try_lock().await.expect("a reply").is_busy(), "{name:?}");
        guard.unlock().await.expect("held");
        assert!(two.lock(name).try_lock().await.expect("a reply").acquired().is_some(), "{name:?}");
    }
}

async fn bad_leases_are_refused(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    for (lease, expected) in [
        (Duration::ZERO, LeaseError::Zero),
        (Duration::from_nanos(5), LeaseError::TooShort(Duration::from_nanos(5))),
        (Duration::MAX, LeaseError::TooLong(Duration::MAX)),
    ] {
        let error = lock.with_lease(lease).lock().await.expect_err("a bad lease");
        assert!(matches!(&error, Error::BadLease(why) if *why == expected), "{error}");
    }
    assert!(!lock.is_locked().await.expect("a reply"), "nothing was written");
    // A wait may have any length.
    assert!(lock.try_lock_for(Duration::MAX).await.expect("a reply").acquired().is_some());
}

async fn a_response_time_out_must_fit_the_lease(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().response_timeout(ms(400))).await;
    let lock = client.lock(&fixture.name());
    let error = lock.with_lease(ms(1_200)).lock().await.expect_err("a third of 1.2 s is not above 400 ms");
    assert!(matches!(error, Error::BadConfiguration { setting: "response_timeout", .. }), "{error}");
    assert!(lock.with_lease(ms(1_201)).lock().await.is_ok());
    let error =
        Client::builder().watchdog_timeout(ms(1_000)).response_timeout(ms(500)).connect("memory://").await;
    assert!(matches!(error, Err(Error::BadConfiguration { setting: "response_timeout", .. })));
}

async fn bad_settings_are_named(_: Fixture) {
    let zero = Duration::ZERO;
    for (builder, name) in [
        (Client::builder().watchdog_timeout(zero), "watchdog_timeout"),
        (Client::builder().response_timeout(zero), "response_timeout"),
        (Client::builder().connect_timeout(zero), "connect_timeout"),
        (Client::builder().retry_for(zero), "retry_for"),
        (Client::builder().poll_interval(zero), "poll_interval"),
        (Client::builder().hand_over_window(ms(3_001)), "hand_over_window"),
        (Client::builder().watchdog_timeout(ms(900)).hand_over_window(ms(91)), "hand_over_window"),
    ] {
        let error = builder.connect("memory://").await.expect_err("a bad setting");
        assert!(matches!(&error, Error::BadConfiguration { setting, .. } if *setting == name), "{error}");
    }
    for url in ["", "orders", "http://127.0.0.1", "redis://", "redis://host:port", "redis://h/notanumber"] {
        let error = Client::connect(url).await.expect_err("a bad URL");
        assert!(matches!(&error, Error::BadConfiguration { setting: "url", .. }), "{url}: {error}");
    }
}

async fn an_owner_of_another_client_is_refused(fixture: Fixture) {
    let (one, two) = (fixture.client().await, fixture.client().await);
    let foreign_owner = two.owner();
    let error = one
        .lock(&fixture.name())
        .with_owner(&foreign_owner)
        .lock()
        .await
        .expect_err("an owner of another client");
    assert!(matches!(error, Error::BadArgument { argument: "owner", .. }), "{error}");
}

async fn an_async_client_needs_a_runtime(_: Fixture) {
    let outcome = std::thread::spawn(|| Client::builder().memory(&MemoryStore::new()).map(drop)).join();
    let outcome = outcome.expect("no panic");
    assert!(matches!(outcome, Err(Error::Unsupported(_))), "{outcome:?}");
}
