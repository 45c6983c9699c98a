//! How a file store detects its file system and reboots of the machine.

use std::time::Duration;

use turnlock::{Client, ClientId};
use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    a_file_system_that_is_not_known_to_be_local_is_refused,
    a_clock_that_restarted_means_a_reboot,
    a_clock_that_continued_means_no_reboot,
];

/// Longer than any case takes, and than the tolerance for a clock that runs backwards.
const LONG: Duration = Duration::from_secs(3_600);

/// The file system of /proc represents all that are not known to be local.
async fn a_file_system_that_is_not_known_to_be_local_is_refused(fixture: Fixture) {
    let url = "file:/proc/jobs.locks";
    if cfg!(target_os = "linux") {
        let refused = Client::connect(url).await.expect_err("refused").to_string();
        assert!(
            refused.contains("any_file_system=yes") && refused.contains("ends the locks of the others"),
            "{refused}"
        );
        for tried in [
            Client::connect(&format!("{url}?any_file_system=yes")).await,
            Client::builder().any_file_system(true).connect(url).await,
        ] {
            let error = tried.expect_err("no file can be created there").to_string();
            assert!(!error.contains("any_file_system"), "{error}");
        }
    }
    // A symbolic link may lead to another file system than its directory.
    let linked = fixture.file().path().with_extension("linked");
    let clients = linked.with_extension("linked.clients");
    if cfg!(target_os = "linux") {
        for (link, target) in [(&linked, "/proc/version"), (&clients, "/proc/self")] {
            std::os::unix::fs::symlink(target, link).expect("a link");
            let refused = Client::connect(&format!("file:{}", linked.display())).await.expect_err("refused");
            assert!(turnlock_testkit::error_chain(&refused).contains("any_file_system=yes"), "{refused}");
            std::fs::remove_file(link).expect("the link exists");
        }
    }
    let url = format!("{}?any_file_system=yes", fixture.file().url());
    let client = Client::connect(&url).await.expect("the same file");
    let name = fixture.name();
    let guard = client.lock(&name).lock().await.expect("free");
    assert!(fixture.client().await.lock(&name).try_lock().await.expect("a reply").is_busy());
    guard.unlock().await.expect("held");
}

/// On a system without a boot id, the file stores a mark of the clock instead.
async fn a_clock_that_restarted_means_a_reboot(fixture: Fixture) {
    let name = fixture.name();
    let mark = boot_mark_after_unlock_after(&fixture, &name).await;
    assert!(mark > 0, "unlock_after stores the mark");
    set_mark(&fixture, mark + 2 * micros(LONG));
    let after = fixture.client().await;
    assert!(
        after.lock(&name).try_lock().await.expect("a reply").acquired().is_some(),
        "the hold is from before the reboot"
    );
}

async fn a_clock_that_continued_means_no_reboot(fixture: Fixture) {
    let name = fixture.name();
    let mark = boot_mark_after_unlock_after(&fixture, &name).await;
    set_mark(&fixture, mark);
    let after = fixture.client().await;
    assert!(after.lock(&name).try_lock().await.expect("a reply").is_busy(), "the hold is from this boot");
}

/// Leaves a hold with a delayed unlock in a file with a clock mark. Returns the mark after the client is
/// gone.
async fn boot_mark_after_unlock_after(fixture: &Fixture, name: &str) -> u64 {
    let client = fixture.client().await;
    set_mark(fixture, 0);
    client.lock(name).lock().await.expect("free").unlock_after(LONG).await.expect("held");
    let id = client.id();
    drop(client);
    until_gone(fixture, id).await;
    let mark: String = fixture
        .file()
        .raw_connection()
        .query_row("SELECT id FROM boot", [], |row| row.get(0))
        .expect("a mark");
    mark.strip_prefix("clock:").and_then(|micros| micros.parse().ok()).expect("a clock mark")
}

fn set_mark(fixture: &Fixture, micros: u64) {
    let mark = format!("clock:{micros:020}");
    fixture.file().raw_connection().execute("UPDATE boot SET id = ?1", [mark]).expect("written");
}

/// Waits until the presence file of a client is removed.
async fn until_gone(fixture: &Fixture, client: ClientId) {
    let presence = fixture.file().path().with_extension("clients").join(client.to_string());
    eventually("the client is gone", ms(5_000), async || !presence.exists()).await;
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("fits")
}
