//! What a store in a file knows of its machine: the file system that it is on, and the starts of the machine.

use std::time::Duration;

use turnlock::{Client, ClientId};
use turnlock_testkit::eventually;

use crate::rig::{Rig, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_file_system_that_is_not_known_to_be_local_is_refused,
    a_clock_that_began_anew_is_another_start,
    a_clock_that_went_on_is_the_same_start,
];

/// Longer than any case takes, and than the clock may go back by itself.
const LONG: Duration = Duration::from_secs(3_600);

/// The file system of /proc stands for all that are not known to be local.
async fn a_file_system_that_is_not_known_to_be_local_is_refused(rig: Rig) {
    let url = "file:/proc/jobs.locks";
    if cfg!(target_os = "linux") {
        let refused = Client::connect(url).await.expect_err("refused").to_string();
        assert!(refused.contains("any_file_system=yes") && refused.contains("voids the locks"), "{refused}");
        for tried in [
            Client::connect(&format!("{url}?any_file_system=yes")).await,
            Client::builder().any_file_system(true).connect(url).await,
        ] {
            let error = tried.expect_err("no file can be made there").to_string();
            assert!(!error.contains("any_file_system"), "{error}");
        }
    }
    // A link leads elsewhere than the directory that it is in.
    let linked = rig.file().path().with_extension("linked");
    let clients = linked.with_extension("linked.clients");
    if cfg!(target_os = "linux") {
        for (link, target) in [(&linked, "/proc/version"), (&clients, "/proc/self")] {
            std::os::unix::fs::symlink(target, link).expect("a link");
            let refused = Client::connect(&format!("file:{}", linked.display())).await.expect_err("refused");
            assert!(refused.to_string().contains("any_file_system=yes"), "{refused}");
            std::fs::remove_file(link).expect("our link");
        }
    }
    let url = format!("{}?any_file_system=yes", rig.file().url());
    let client = Client::connect(&url).await.expect("the same file");
    let name = rig.name();
    let guard = client.lock(&name).lock().await.expect("free");
    assert!(rig.client().await.lock(&name).try_lock().await.expect("an answer").is_none());
    guard.unlock().await.expect("held");
}

/// As where the system has no boot id: the file has a mark of the clock instead.
async fn a_clock_that_began_anew_is_another_start(rig: Rig) {
    let name = rig.name();
    let seen = mark_after_a_hold_is_kept(&rig, &name).await;
    assert!(seen > 0, "a hold that is kept sets the mark");
    set_mark(&rig, seen + 2 * micros(LONG));
    let after = rig.client().await;
    assert!(after.lock(&name).try_lock().await.expect("an answer").is_some(), "kept before the start");
}

async fn a_clock_that_went_on_is_the_same_start(rig: Rig) {
    let name = rig.name();
    let seen = mark_after_a_hold_is_kept(&rig, &name).await;
    set_mark(&rig, seen);
    let after = rig.client().await;
    assert!(after.lock(&name).try_lock().await.expect("an answer").is_none(), "kept in this start");
}

/// Keeps a hold beyond its client, in a file whose mark is of the clock. The mark, once the client is gone.
async fn mark_after_a_hold_is_kept(rig: &Rig, name: &str) -> u64 {
    let client = rig.client().await;
    set_mark(rig, 0);
    client.lock(name).lock().await.expect("free").keep_for(LONG).await.expect("kept");
    let id = client.id();
    drop(client);
    until_gone(rig, id).await;
    let mark: String =
        rig.file().plain().query_row("SELECT id FROM boot", [], |row| row.get(0)).expect("a mark");
    mark.strip_prefix("clock:").and_then(|micros| micros.parse().ok()).expect("a mark of the clock")
}

fn set_mark(rig: &Rig, micros: u64) {
    let mark = format!("clock:{micros:020}");
    rig.file().plain().execute("UPDATE boot SET id = ?1", [mark]).expect("written");
}

async fn until_gone(rig: &Rig, client: ClientId) {
    let sign = rig.file().path().with_extension("clients").join(client.to_string());
    eventually("it is gone", ms(5_000), async || !sign.exists()).await;
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("not that long")
}
