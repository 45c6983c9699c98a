//! Faults of a file store and of the processes that use it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use turnlock::{Client, Error, Lock, LostReason};
use turnlock_testkit::{TempDir, eventually, within};

use crate::fixture::{Fixture, Kind, KindClient, NO_POLL, PROMPT, ms};
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![
    killed_processes_release_their_locks_and_block_no_waiter,
    every_kind_of_hold_of_a_killed_process_is_released,
    a_paused_process_still_holds_its_lock,
    another_process_is_woken_at_once,
    processes_exclude_each_other,
    a_foreign_file_is_refused_and_left_unchanged,
    a_damaged_file_is_an_error_and_left_unchanged,
    a_damaged_row_affects_only_its_name,
    bad_paths_and_settings_of_a_file_are_refused,
    only_its_user_can_read_a_store,
    a_newer_format_is_refused,
    holds_from_before_a_reboot_are_void,
    holders_are_notified_of_a_removed_file,
    holders_of_fixed_leases_are_notified_of_a_removed_file,
    a_client_mistaken_for_dead_is_notified,
    a_fixed_lease_of_a_client_mistaken_for_dead_is_reported_lost,
    a_busy_file_is_retried,
    a_client_leaves_nothing_behind,
    a_store_opens_after_a_crash_during_a_checkpoint,
    another_boot_id_does_not_void_holds_of_live_clients,
    a_client_mistaken_for_dead_releases_permits_once,
    records_of_ended_clients_are_removed,
    a_client_survives_removal_of_the_clients_directory,
    frequent_wake_ups_do_not_delay_detection_of_dead_holders,
];

/// A fixed lease that ends long after its case.
const HOUR: Duration = Duration::from_secs(3_600);

/// Long enough to detect a dead process on a busy machine, and much shorter than any lease.
const SOON: Duration = Duration::from_secs(5);

/// Another process that holds a lock or waits for it: see `child::hold_until_line`.
struct OtherProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl OtherProcess {
    fn start(fixture: &Fixture, kind: &str, name: &str) -> Self {
        let mut command = child::command(&format!("hold,{kind},{name}"), &fixture.file().url());
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    async fn holding(fixture: &Fixture, kind: &str, name: &str) -> Self {
        let mut other = Self::start(fixture, kind, name);
        other.until("waits").await;
        other.until("holds").await;
        other
    }

    /// Waits for this line of output.
    async fn until(&mut self, expected: &str) {
        let line = within(ms(20_000), expected, self.lines.next_line()).await.expect("output");
        assert_eq!(line.as_deref(), Some(expected));
    }

    async fn release(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"now\n").await.expect("it reads");
    }

    /// Kills the process, as `kill -9` does.
    async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(status.success());
    }
}

/// Each round kills a holder, and a waiter before or after it. The next waiter acquires, although the lease
/// would last for another 30 s.
async fn killed_processes_release_their_locks_and_block_no_waiter(fixture: Fixture) {
    let rounds = fixture.rounds(300).await;
    let client = fixture.client().await;
    let fair = KindClient::new((*client).clone(), Kind::Fair);
    for round in 0..rounds {
        let name = fixture.name();
        let (lock, kind) =
            if round % 2 == 0 { (client.lock(&name), "lock") } else { (fair.lock(&name), "fair") };
        let holder = OtherProcess::holding(&fixture, kind, &name).await;
        let mut waiter = OtherProcess::start(&fixture, kind, &name);
        waiter.until("waits").await;
        let waiting = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.expect("acquired") }
        });
        if round % 3 == 0 {
            waiter.kill().await;
            holder.kill().await;
        } else {
            holder.kill().await;
            // It holds the lock, or is before or behind this waiter.
            waiter.kill().await;
        }
        let guard = within(SOON * 2, "dead processes block no waiter", waiting).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn every_kind_of_hold_of_a_killed_process_is_released(fixture: Fixture) {
    let client = fixture.client().await;
    let name = fixture.name();
    for kind in ["write", "read"] {
        let dead = OtherProcess::holding(&fixture, kind, &name).await;
        let lock = client.read_write_lock(&name).writer();
        let waiting = tokio::spawn(async move { lock.lock().await });
        dead.kill().await;
        let guard = within(SOON, kind, waiting).await.expect("no panic").expect("acquired");
        guard.unlock().await.expect("held");
    }
    for kind in ["plain", "spin", "fenced"] {
        let name = fixture.name();
        let dead = OtherProcess::holding(&fixture, kind, &name).await;
        dead.kill().await;
        let lock = match kind {
            "plain" => client.plain_lock(&name),
            "spin" => client.spin_lock(&name),
            _ => client.fenced_lock(&name),
        };
        let guard = lock.try_lock().await.expect("a reply").acquired().expect(kind);
        guard.unlock().await.expect("held");
    }
    let name = fixture.name();
    let permits = client.permit_semaphore(&name);
    permits.try_set_permits(3).await.expect("set");
    let dead = OtherProcess::holding(&fixture, "permits3", &name).await;
    assert!(permits.try_acquire(1).await.expect("a reply").is_busy());
    let waiting = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire(3).await }
    });
    dead.kill().await;
    let ours = within(SOON, "all three", waiting).await.expect("no panic").expect("permits");
    ours.release().await.expect("held");
    let name = fixture.name();
    let semaphore = client.semaphore(&name);
    semaphore.try_set_permits(2).await.expect("set");
    let dead = OtherProcess::holding(&fixture, "semaphore2", &name).await;
    let waiting = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire(2).await }
    });
    dead.kill().await;
    let ours = within(SOON, "both", waiting).await.expect("no panic").expect("permits");
    ours.release().await.expect("held");
    assert_eq!(semaphore.available().await.expect("a reply"), 2, "the number of permits is unchanged");
}

/// A stopped process still holds its lock until the lease ends.
async fn a_paused_process_still_holds_its_lock(fixture: Fixture) {
    let lock = fixture.client().await.lock(&fixture.name());
    let holder = OtherProcess::holding(&fixture, "lock", lock.name()).await;
    holder.signal("-STOP");
    assert!(lock.try_lock_for(ms(1_500)).await.expect("a reply").is_busy());
    holder.signal("-CONT");
    holder.kill().await;
    within(SOON, "the process is dead", lock.lock()).await.expect("acquired").unlock().await.expect("held");
}

async fn another_process_is_woken_at_once(fixture: Fixture) {
    let client = fixture.client().await;
    let fair = KindClient::new((*client).clone(), Kind::Fair);
    for kind in ["lock", "fair"] {
        let (mut other_woken, mut this_woken) = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            let lock = if kind == "fair" { fair.lock(&fixture.name()) } else { client.lock(&fixture.name()) };
            let (other, this) = wake_each_other(&fixture, kind, &lock).await;
            (other_woken, this_woken) = (other_woken.min(other), this_woken.min(this));
        }
        // Dead holders are detected once a second, so the fastest wake-up came from a message.
        assert!(other_woken < ms(500) && this_woken < ms(500), "{kind}: {other_woken:?}, {this_woken:?}");
    }
}

/// Measures how long a release takes to wake the other process, and to wake this process.
async fn wake_each_other(fixture: &Fixture, kind: &str, lock: &Lock) -> (Duration, Duration) {
    let guard = lock.lock().await.expect("free");
    let mut other = OtherProcess::start(fixture, kind, lock.name());
    other.until("waits").await;
    let is_subscribed = async || {
        let (connection, count) =
            (fixture.file().raw_connection(), "SELECT count(*) FROM listeners WHERE key = ?1");
        connection.query_row(count, [lock.name()], |row| row.get::<_, i64>(0)).expect("a number") > 0
    };
    eventually("the other process subscribes", ms(20_000), is_subscribed).await;
    let start = Instant::now();
    guard.unlock().await.expect("held");
    within(PROMPT, "the other process is woken", other.until("holds")).await;
    let other_woken = start.elapsed();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.expect("acquired") }
    });
    eventually("this process subscribes", ms(20_000), is_subscribed).await;
    // A subscription is followed by one more request, and the message must come after it.
    crate::fixture::until_waiting(lock, 1).await;
    let start = Instant::now();
    other.release().await;
    let guard = within(PROMPT, "this process is woken", waiting).await.expect("no panic");
    let this_woken = start.elapsed();
    guard.unlock().await.expect("held");
    other.child.wait().await.expect("it exits");
    (other_woken, this_woken)
}

async fn processes_exclude_each_other(fixture: Fixture) {
    let turns = fixture.rounds(150).await;
    let counter = fixture.file().path().with_extension("counter");
    fs::write(&counter, "0").expect("a counter");
    let name = fixture.name();
    let mode = format!("count,{name},{},{turns}", counter.display());
    let mut children: Vec<_> = (0..4).map(|_| child::spawn(&mode, &fixture.file().url())).collect();
    for child in &mut children {
        assert!(within(ms(60_000), "the child exits", child.wait()).await.expect("a status").success());
    }
    assert_eq!(fs::read_to_string(&counter).expect("a number"), (4 * turns).to_string());
}

async fn a_foreign_file_is_refused_and_left_unchanged(_: Fixture) {
    let dir = TempDir::new();
    let text = dir.path().join("notes.txt");
    fs::write(&text, "not a database, and longer than the head of one. ".repeat(40)).expect("written");
    let database = dir.path().join("shop.db");
    let shop = rusqlite::Connection::open(&database).expect("a database");
    shop.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE orders (id); INSERT INTO orders VALUES (1);")
        .expect("created");
    drop(shop);
    for path in [&text, &database] {
        let before = (fs::read(path).expect("bytes"), fs::metadata(path).expect("there").mtime_nsec());
        let error = Client::connect(&format!("file:{}", path.display())).await.expect_err("foreign");
        assert!(
            matches!(&error, Error::NotALock { key, .. } if key.as_str() == path.to_str().unwrap()),
            "{error}"
        );
        assert_eq!((fs::read(path).expect("bytes"), fs::metadata(path).expect("there").mtime_nsec()), before);
    }
    let left: Vec<_> = fs::read_dir(dir.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left.len(), 2, "no other file was created: {left:?}");
    let error = Client::connect(&format!("file:{}", dir.path().display())).await.expect_err("a directory");
    assert!(matches!(error, Error::NotALock { .. }), "{error}");
}

async fn a_damaged_file_is_an_error_and_left_unchanged(fixture: Fixture) {
    let path = fixture.file().path();
    let client = fixture.client().await;
    for _ in 0..200 {
        let _ = client.lock(&fixture.name()).with_lease(ms(60_000)).lock().await.map(std::mem::forget);
    }
    client.fenced_lock("tokens").lock().await.expect("free").unlock().await.expect("held");
    fixture.file().raw_connection().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("checkpointed");
    let copy = path.with_extension("copy");
    fs::copy(&path, &copy).expect("a copy");
    let mut bytes = fs::read(&copy).expect("bytes");
    // After the header, which identifies the file as a store.
    bytes[100..].fill(0xa5);
    fs::write(&copy, &bytes).expect("damaged");
    let error = match Client::connect(&format!("file:{}", copy.display())).await {
        Err(error) => error,
        Ok(client) => client.lock("tokens").lock().await.expect_err("damaged"),
    };
    assert!(matches!(&error, Error::NotALock { found, .. } if found.contains("damaged")), "{error}");
    assert!(fs::read(&copy).expect("bytes") == bytes, "the file is unchanged");
}

async fn a_damaged_row_affects_only_its_name(fixture: Fixture) {
    let client = fixture.client().await;
    let (good, bad) = (client.lock(&fixture.name()), client.lock(&fixture.name()));
    let connection = fixture.file().raw_connection();
    connection.execute("INSERT INTO items VALUES (?1, '{\"item\":7}')", [bad.name()]).expect("written");
    let error = bad.lock().await.expect_err("unreadable");
    assert!(matches!(&error, Error::NotALock { key, .. } if key == bad.name()), "{error}");
    good.lock().await.expect("free").unlock().await.expect("held");
    let row = "SELECT row FROM items WHERE key = ?1";
    let row: String = connection.query_row(row, [bad.name()], |row| row.get(0)).expect("there");
    assert_eq!(row, "{\"item\":7}");
}

async fn bad_paths_and_settings_of_a_file_are_refused(_: Fixture) {
    let dir = TempDir::new();
    for path in [dir.path().join("no/such/file"), Path::new("/").to_owned(), dir.path().join("sub/")] {
        let url = format!("file:{}", path.display());
        let error = Client::connect(&url).await.expect_err("a bad path");
        assert!(matches!(error, Error::BadConfiguration { setting: "url", .. }), "{url}: {error}");
    }
    for (builder, setting) in [
        (Client::builder().password("x"), "password"),
        (Client::builder().replicas(1), "replicas"),
        (Client::builder().database(1), "database"),
    ] {
        let error = builder
            .connect(&format!("file:{}", dir.path().join("locks").display()))
            .await
            .expect_err("no server");
        assert!(
            matches!(&error, Error::BadConfiguration { setting: found, .. } if *found == setting),
            "{error}"
        );
    }
    let error = Client::connect("file://host/path").await.expect_err("another machine");
    assert!(matches!(error, Error::BadConfiguration { setting: "url", .. }), "{error}");
}

async fn only_its_user_can_read_a_store(fixture: Fixture) {
    let client = fixture.client().await;
    let _guard = client.lock(&fixture.name()).lock().await.expect("free");
    let clients = fixture.file().path().with_extension("clients");
    let files = fs::read_dir(&clients).expect("a directory").map(|entry| entry.expect("an entry").path());
    let beside = fs::read_dir(fixture.file().path().parent().expect("a directory")).expect("a directory");
    let beside = beside.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let all: Vec<_> = files.chain(beside).collect();
    assert!(all.len() >= 4, "{all:?}");
    for path in all {
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    assert_eq!(fs::metadata(&clients).expect("there").permissions().mode() & 0o777, 0o700);
}

async fn a_newer_format_is_refused(fixture: Fixture) {
    drop(fixture.client().await);
    fixture.file().raw_connection().pragma_update(None, "user_version", 99).expect("a setting");
    let error = Client::connect(&fixture.file().url()).await.expect_err("newer");
    assert!(turnlock_testkit::error_chain(&error).contains("newer"), "{error}");
}

/// No process survives a reboot. Only holds with a delayed release would remain.
async fn holds_from_before_a_reboot_are_void(fixture: Fixture) {
    let before = fixture.client().await;
    let (name, fenced, permits) = (fixture.name(), fixture.name(), fixture.name());
    let hour = Duration::from_secs(3_600);
    before.lock(&name).lock().await.expect("free").unlock_after(hour).await.expect("held");
    let token = before.fenced_lock(&fenced).lock().await.expect("free").token();
    before.permit_semaphore(&permits).try_set_permits(2).await.expect("set");
    before
        .permit_semaphore(&permits)
        .acquire(2)
        .await
        .expect("free")
        .release_after(hour)
        .await
        .expect("held");
    let id = before.id();
    drop(before);
    let clients = fixture.file().path().with_extension("clients");
    eventually("the client is gone", ms(5_000), async || !clients.join(id.to_string()).exists()).await;
    let between = fixture.client().await;
    assert!(between.lock(&name).try_lock().await.expect("a reply").is_busy(), "the hold outlasts its client");
    assert_eq!(between.permit_semaphore(&permits).available().await.expect("a reply"), 0);
    let id = between.id();
    drop(between);
    eventually("the client is gone", ms(5_000), async || !clients.join(id.to_string()).exists()).await;
    fixture.file().raw_connection().execute("UPDATE boot SET id = 'an earlier boot'", []).expect("written");
    let after = fixture.client().await;
    assert!(after.lock(&name).try_lock().await.expect("a reply").acquired().is_some());
    assert_eq!(after.permit_semaphore(&permits).available().await.expect("a reply"), 2);
    let next = after.fenced_lock(&fenced).lock().await.expect("free");
    assert!(next.token() > token, "tokens keep rising");
}

async fn holders_are_notified_of_a_removed_file(fixture: Fixture) {
    file_removed(&fixture, None).await;
}

async fn holders_of_fixed_leases_are_notified_of_a_removed_file(fixture: Fixture) {
    file_removed(&fixture, Some(HOUR)).await;
}

async fn file_removed(fixture: &Fixture, lease: Option<Duration>) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    // With its journal files, or without.
    for suffixes in [&["", "-wal", "-shm"][..], &[""]] {
        let guard = with_lease(client.lock(&fixture.name()), lease).lock().await.expect("free");
        for suffix in suffixes {
            let mut path = fixture.file().path().into_os_string();
            path.push(suffix);
            fs::remove_file(path).expect("there");
        }
        assert_eq!(within(SOON, "the loss is reported", guard.lost()).await, LostReason::GoneAfterReconnect);
        let other = fixture.client().await;
        let theirs = other.lock(guard.name()).lock().await.expect("free in the new file");
        assert!(
            client.lock(guard.name()).try_lock().await.expect("a reply").is_busy(),
            "both clients use the new file"
        );
        theirs.unlock().await.expect("held");
    }
}

fn with_lease(lock: Lock, lease: Option<Duration>) -> Lock {
    match lease {
        Some(lease) => lock.with_lease(lease),
        None => lock,
    }
}

/// The presence file of a client is deleted: others may acquire its lock, and the client is notified.
async fn a_client_mistaken_for_dead_is_notified(fixture: Fixture) {
    mistaken_for_dead(&fixture, None).await;
}

/// A fixed lease is checked every third of the watchdog time-out, although it needs no renewal.
async fn a_fixed_lease_of_a_client_mistaken_for_dead_is_reported_lost(fixture: Fixture) {
    mistaken_for_dead(&fixture, Some(HOUR)).await;
}

async fn mistaken_for_dead(fixture: &Fixture, lease: Option<Duration>) {
    let client =
        fixture.client_with(Client::builder().watchdog_timeout(ms(3_000)).poll_interval(NO_POLL)).await;
    let guard = with_lease(client.lock(&fixture.name()), lease).lock().await.expect("free");
    let other = fixture.client().await;
    let presence = fixture.file().path().with_extension("clients").join(client.id().to_string());
    let take_over = async {
        loop {
            // Each step of a client creates its presence file again, and one may still be in flight.
            let _ = fs::remove_file(&presence);
            if let Some(guard) = other.lock(guard.name()).try_lock().await.expect("a reply").acquired() {
                return guard;
            }
        }
    };
    let theirs = within(ms(20_000), "the client is mistaken for dead", take_over).await;
    within(SOON, "the loss is reported", guard.lost()).await;
    theirs.unlock().await.expect("held");
    // Its next hold is visible to others.
    let again = client.lock(guard.name()).lock().await.expect("free");
    assert!(other.lock(guard.name()).try_lock().await.expect("a reply").is_busy());
    again.unlock().await.expect("held");
}

async fn a_busy_file_is_retried(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().response_timeout(ms(200))).await;
    let lock = client.lock(&fixture.name());
    let connection = fixture.file().raw_connection();
    connection.execute_batch("BEGIN IMMEDIATE").expect("begun");
    let start = Instant::now();
    let error = lock.try_lock_for(ms(300)).await.expect_err("busy");
    assert!(matches!(error, Error::Unavailable { .. }) && start.elapsed() >= ms(200), "{error}");
    let waiting = tokio::spawn(async move { lock.lock().await });
    connection.execute_batch("COMMIT").expect("committed");
    let guard = within(ms(5_000), "the waiter acquires", waiting).await.expect("no panic").expect("acquired");
    guard.unlock().await.expect("held");
}

async fn a_client_leaves_nothing_behind(fixture: Fixture) {
    let clients = fixture.file().path().with_extension("clients");
    let count = || fs::read_dir(&clients).expect("a directory").count();
    let client = fixture.client().await;
    let guard = client.lock(&fixture.name()).lock().await.expect("free");
    assert_eq!(count(), 2);
    guard.unlock().await.expect("held");
    drop(client);
    eventually("its files are removed", ms(5_000), async || count() == 0).await;
    let (connection, rows) = (fixture.file().raw_connection(), "SELECT count(*) FROM items");
    let rows: i64 = connection.query_row(rows, [], |row| row.get(0)).expect("a number");
    drop(connection);
    assert_eq!(rows, 0);
    // The next client removes the files of killed clients.
    let other = OtherProcess::holding(&fixture, "lock", &fixture.name()).await;
    other.kill().await;
    assert_eq!(count(), 2);
    let _client = fixture.client().await;
    assert_eq!(count(), 2, "the files of the live client");
}

/// A checkpoint writes the first page first. A process that dies then leaves a file shorter than its header
/// states, and the rest in the log: `SQLite` recovers from that.
async fn a_store_opens_after_a_crash_during_a_checkpoint(fixture: Fixture) {
    let other = OtherProcess::holding(&fixture, "lock", &fixture.name()).await;
    other.kill().await;
    let path = fixture.file().path();
    let mut log = path.clone().into_os_string();
    log.push("-wal");
    let log = fs::read(log).expect("a log");
    let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().expect("four bytes"));
    let size = number(8) as usize;
    let mut frames = (32..log.len())
        .step_by(24 + size)
        .filter(|at| number(*at) == 1 && log[at + 8..at + 16] == log[16..24]);
    let first = frames.next_back().map(|at| &log[at + 24..at + 24 + size]).expect("the first page");
    let mut bytes = fs::read(&path).expect("bytes");
    bytes[..size].copy_from_slice(first);
    fs::write(&path, bytes).expect("written");
    let client = Client::connect(&fixture.file().url()).await.expect("the store opens");
    client.lock(&fixture.name()).lock().await.expect("free").unlock().await.expect("held");
}

/// A systemd-nspawn container has its own boot id on the same kernel.
async fn another_boot_id_does_not_void_holds_of_live_clients(fixture: Fixture) {
    let name = fixture.name();
    let holder = OtherProcess::holding(&fixture, "lock", &name).await;
    fixture.file().raw_connection().execute("UPDATE boot SET id = 'of a container'", []).expect("written");
    let client = fixture.client().await;
    assert!(client.lock(&name).try_lock().await.expect("a reply").is_busy(), "its holder is alive");
    holder.kill().await;
}

async fn a_client_mistaken_for_dead_releases_permits_once(fixture: Fixture) {
    let (client, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name();
    let (ours, theirs) = (client.semaphore(&name), other.semaphore(&name));
    ours.try_set_permits(2).await.expect("set");
    let our_permits = ours.acquire(2).await.expect("free");
    let presence = fixture.file().path().with_extension("clients").join(client.id().to_string());
    // Each step of a client creates its presence file again, and one may still be in flight.
    let their_permits = async {
        loop {
            let _ = fs::remove_file(&presence);
            if let Some(permits) = theirs.try_acquire(2).await.expect("a reply").acquired() {
                return permits;
            }
        }
    };
    let their_permits = within(ms(20_000), "the client is mistaken for dead", their_permits).await;
    let _ = our_permits.release().await;
    assert_eq!(theirs.available().await.expect("a reply"), 0, "the other client has both");
    their_permits.release().await.expect("held");
    assert_eq!(theirs.available().await.expect("a reply"), 2, "the number of permits is unchanged");
}

async fn records_of_ended_clients_are_removed(fixture: Fixture) {
    for _ in 0..3 {
        let client = Client::connect(&fixture.file().url()).await.expect("a store");
        let guard = client.lock(&fixture.name()).lock().await.expect("free");
        guard.announce().await.expect("written");
        guard.unlock().await.expect("held");
    }
    // Each new client removes the records of clients that are gone.
    let count = async || {
        drop(Client::connect(&fixture.file().url()).await.expect("a store"));
        let count = "SELECT count(*) FROM clients";
        fixture.file().raw_connection().query_row(count, [], |row| row.get::<_, i64>(0)).expect("a number")
            == 0
    };
    eventually("no record is left", ms(5_000), count).await;
}

async fn a_client_survives_removal_of_the_clients_directory(fixture: Fixture) {
    let client = fixture.client().await;
    let lock = client.lock(&fixture.name());
    lock.lock().await.expect("free").unlock().await.expect("held");
    fs::remove_dir_all(fixture.file().path().with_extension("clients")).expect("there");
    let taken = within(ms(5_000), "acquired", lock.lock()).await;
    taken.expect("free").unlock().await.expect("held");
}

/// Wake-ups for other names must not delay the detection of dead holders.
async fn frequent_wake_ups_do_not_delay_detection_of_dead_holders(fixture: Fixture) {
    let client = fixture.client_with(Client::builder().poll_interval(NO_POLL)).await;
    let name = fixture.name();
    let holder = OtherProcess::holding(&fixture, "lock", &name).await;
    let pipe = fixture.file().path().with_extension("clients").join(format!("{}.wake", client.id()));
    let lock = client.lock(&name);
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.expect("acquired") }
    });
    crate::fixture::until_waiting(&lock, 1).await;
    let noise = tokio::spawn(async move {
        loop {
            fs::OpenOptions::new()
                .write(true)
                .open(&pipe)
                .and_then(|mut pipe| std::io::Write::write(&mut pipe, &u64::MAX.to_be_bytes()))
                .expect("the client reads its pipe");
            tokio::time::sleep(ms(50)).await;
        }
    });
    holder.kill().await;
    let guard = within(SOON * 3, "dead processes block no waiter", waiting).await.expect("no panic");
    noise.abort();
    guard.unlock().await.expect("held");
}
