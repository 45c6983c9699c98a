//! How much a file store writes.

use std::fs;

use turnlock::Client;
use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![opening_an_unchanged_store_writes_nothing, short_connections_keep_the_log_short];

/// The pages in `SQLite`'s log, with those that it has written back since it was longest.
fn pages_in_log(fixture: &Fixture) -> u64 {
    let mut path = fixture.file().path().into_os_string();
    path.push("-wal");
    fs::metadata(path).expect("a log").len() / (4096 + 24)
}

async fn opening_an_unchanged_store_writes_nothing(fixture: Fixture) {
    let clients = fixture.file().path().with_extension("clients");
    let url = fixture.file().url();
    let connect = async || {
        drop(Client::connect(&url).await.expect("a store"));
        let count = || fs::read_dir(&clients).expect("a directory").count();
        eventually("the client is gone", ms(5_000), async || count() == 0).await;
    };
    connect().await;
    let before = pages_in_log(&fixture);
    connect().await;
    assert_eq!(pages_in_log(&fixture), before);
}

/// The first client after a while reads the whole log.
async fn short_connections_keep_the_log_short(fixture: Fixture) {
    let pair = async |client: &Client| {
        client.lock("short").lock().await.expect("free").unlock().await.expect("held");
    };
    for _ in 0..300 {
        pair(&Client::connect(&fixture.file().url()).await.expect("a store")).await;
    }
    let pages = pages_in_log(&fixture);
    assert!(pages < 500, "{pages} pages");
    // To write it back often would slow down a client that makes many steps.
    let client = fixture.client().await;
    for _ in 0..600 {
        pair(&client).await;
    }
    let pages = pages_in_log(&fixture);
    assert!(pages > 500, "{pages} pages");
}
