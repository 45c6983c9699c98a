//! What can happen to a store in a file, and to the processes that use it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use turnlock::{Client, Error, Lock, LostReason};
use turnlock_testkit::{TempDir, eventually, within};

use crate::rig::{Kind, KindClient, NO_POLL, PROMPT, Rig, ms};
use crate::{Case, cases, child};

pub(crate) const CASES: &[Case] = cases![
    the_killed_free_what_they_held_and_stop_nobody,
    what_the_dead_held_is_free_whatever_it_was,
    a_paused_holder_is_not_dead,
    another_process_is_woken_at_once,
    processes_take_turns_and_lose_nothing,
    a_foreign_file_is_left_as_it_is,
    a_damaged_file_is_an_error_and_is_left_as_it_is,
    a_damaged_row_harms_only_its_own_name,
    a_place_that_cannot_be_is_told,
    a_store_is_its_users_alone,
    a_newer_format_is_refused,
    what_was_held_before_the_machine_started_is_void,
    a_file_that_was_removed_is_told_to_holders,
    a_file_that_was_removed_is_told_to_a_fixed_lease,
    a_client_that_was_taken_for_dead_is_told,
    a_fixed_lease_of_a_client_that_was_taken_for_dead_is_told,
    a_busy_file_is_waited_for,
    a_client_leaves_nothing_behind,
    who_died_in_a_checkpoint_leaves_a_store_that_opens,
    another_boot_id_does_not_end_what_the_living_hold,
    who_was_taken_for_dead_gives_permits_back_once,
    a_client_that_ended_is_not_written_down_for_ever,
    a_client_goes_on_when_the_directory_of_clients_was_removed,
    who_is_woken_often_still_sees_the_dead,
];

/// A fixed lease that ends by itself long after its case.
const HOUR: Duration = Duration::from_secs(3_600);

/// Well above what it takes to see that somebody has died, also on a busy machine, and far below any lease.
const SOON: Duration = Duration::from_secs(5);

/// Another process that has a lock or waits for it: see `child::obey`.
struct Other {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(rig: &Rig, kind: &str, name: &str) -> Self {
        let mut command = child::command(&format!("obey,{kind},{name}"), &rig.file().url());
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines }
    }

    async fn holding(rig: &Rig, kind: &str, name: &str) -> Self {
        let mut other = Self::start(rig, kind, name);
        other.until("waits").await;
        other.until("holds").await;
        other
    }

    async fn until(&mut self, word: &str) {
        let line = within(ms(20_000), word, self.lines.next_line()).await.expect("output");
        assert_eq!(line.as_deref(), Some(word));
    }

    async fn give_back(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"now\n").await.expect("it reads");
    }

    /// As kill -9 does it.
    async fn kill(mut self) {
        self.child.kill().await.expect("killed");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().expect("it runs").to_string();
        let status = std::process::Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(status.success());
    }
}

/// In each round a holder is killed, and by turns a waiter before it: the next waiter gets the lock although its lease would
/// last for another 30 s.
async fn the_killed_free_what_they_held_and_stop_nobody(rig: Rig) {
    let rounds = rig.times(300).await;
    let client = rig.client().await;
    let fair = KindClient::new((*client).clone(), Kind::Fair);
    for round in 0..rounds {
        let name = rig.name();
        let (lock, kind) =
            if round % 2 == 0 { (client.lock(&name), "lock") } else { (fair.lock(&name), "fair") };
        let holder = Other::holding(&rig, kind, &name).await;
        let mut waiter = Other::start(&rig, kind, &name);
        waiter.until("waits").await;
        let us = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await.expect("a turn") }
        });
        if round % 3 == 0 {
            waiter.kill().await;
            holder.kill().await;
        } else {
            holder.kill().await;
            // It gets the lock, or stands before or behind us.
            waiter.kill().await;
        }
        let guard = within(SOON * 2, "the dead stop nobody", us).await.expect("no panic");
        guard.unlock().await.expect("held");
    }
}

async fn what_the_dead_held_is_free_whatever_it_was(rig: Rig) {
    let client = rig.client().await;
    let name = rig.name();
    for kind in ["write", "read"] {
        let dead = Other::holding(&rig, kind, &name).await;
        let lock = client.read_write_lock(&name).write();
        let us = tokio::spawn(async move { lock.lock().await });
        dead.kill().await;
        let guard = within(SOON, kind, us).await.expect("no panic").expect("a turn");
        guard.unlock().await.expect("held");
    }
    for kind in ["plain", "spin", "fenced"] {
        let name = rig.name();
        let dead = Other::holding(&rig, kind, &name).await;
        dead.kill().await;
        let lock = match kind {
            "plain" => client.plain_lock(&name),
            "spin" => client.spin_lock(&name),
            _ => client.fenced_lock(&name),
        };
        let guard = lock.try_lock().await.expect("an answer").expect(kind);
        guard.unlock().await.expect("held");
    }
    let name = rig.name();
    let permits = client.permit_semaphore(&name);
    permits.try_set_permits(3).await.expect("set");
    let dead = Other::holding(&rig, "permits3", &name).await;
    assert!(permits.try_acquire(1).await.expect("an answer").is_none());
    let us = tokio::spawn({
        let permits = permits.clone();
        async move { permits.acquire(3).await }
    });
    dead.kill().await;
    let ours = within(SOON, "all three", us).await.expect("no panic").expect("permits");
    ours.release().await.expect("held");
    let name = rig.name();
    let semaphore = client.semaphore(&name);
    semaphore.try_set_permits(2).await.expect("set");
    let dead = Other::holding(&rig, "semaphore2", &name).await;
    let us = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire(2).await }
    });
    dead.kill().await;
    let ours = within(SOON, "both", us).await.expect("no panic").expect("permits");
    ours.release().await.expect("held");
    assert_eq!(semaphore.available().await.expect("an answer"), 2, "no more and no fewer than there were");
}

/// One that was stopped still has its lock: only the end of the lease takes it away.
async fn a_paused_holder_is_not_dead(rig: Rig) {
    let lock = rig.client().await.lock(&rig.name());
    let holder = Other::holding(&rig, "lock", lock.name()).await;
    holder.signal("-STOP");
    assert!(lock.try_lock_for(ms(1_500)).await.expect("an answer").is_none());
    holder.signal("-CONT");
    holder.kill().await;
    within(SOON, "dead now", lock.lock()).await.expect("a turn").unlock().await.expect("held");
}

async fn another_process_is_woken_at_once(rig: Rig) {
    let client = rig.client().await;
    let fair = KindClient::new((*client).clone(), Kind::Fair);
    for kind in ["lock", "fair"] {
        let (mut other_woken, mut we_woken) = (Duration::MAX, Duration::MAX);
        for _ in 0..3 {
            let lock = if kind == "fair" { fair.lock(&rig.name()) } else { client.lock(&rig.name()) };
            let (other, we) = wake_each_other(&rig, kind, &lock).await;
            (other_woken, we_woken) = (other_woken.min(other), we_woken.min(we));
        }
        // Who looks for the dead looks once a second: the fastest was told.
        assert!(other_woken < ms(500) && we_woken < ms(500), "{kind}: {other_woken:?}, {we_woken:?}");
    }
}

/// How long another process takes to be woken by us, and we by the other.
async fn wake_each_other(rig: &Rig, kind: &str, lock: &Lock) -> (Duration, Duration) {
    let guard = lock.lock().await.expect("free");
    let mut other = Other::start(rig, kind, lock.name());
    other.until("waits").await;
    let listening = async || {
        let count = "SELECT count(*) FROM listeners WHERE key = ?1";
        rig.file().plain().query_row(count, [lock.name()], |row| row.get::<_, i64>(0)).expect("a number") > 0
    };
    eventually("it listens", ms(20_000), listening).await;
    let start = Instant::now();
    guard.unlock().await.expect("held");
    within(PROMPT, "it is woken", other.until("holds")).await;
    let other_woken = start.elapsed();
    let us = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.expect("a turn") }
    });
    eventually("we listen", ms(20_000), listening).await;
    // A subscription is followed by one more look: the message must come after it.
    crate::rig::until_waiting(lock, 1).await;
    let start = Instant::now();
    other.give_back().await;
    let guard = within(PROMPT, "we are woken", us).await.expect("no panic");
    let we_woken = start.elapsed();
    guard.unlock().await.expect("held");
    other.child.wait().await.expect("it ends");
    (other_woken, we_woken)
}

async fn processes_take_turns_and_lose_nothing(rig: Rig) {
    let turns = rig.times(150).await;
    let counter = rig.file().path().with_extension("counter");
    fs::write(&counter, "0").expect("a counter");
    let name = rig.name();
    let way = format!("count,{name},{},{turns}", counter.display());
    let mut children: Vec<_> = (0..4).map(|_| child::spawn(&way, &rig.file().url())).collect();
    for child in &mut children {
        assert!(within(ms(60_000), "its turns", child.wait()).await.expect("a status").success());
    }
    assert_eq!(fs::read_to_string(&counter).expect("a number"), (4 * turns).to_string());
}

async fn a_foreign_file_is_left_as_it_is(_: Rig) {
    let dir = TempDir::new();
    let text = dir.path().join("notes.txt");
    fs::write(&text, "not a database, and longer than the head of one. ".repeat(40)).expect("written");
    let database = dir.path().join("shop.db");
    let shop = rusqlite::Connection::open(&database).expect("a database");
    shop.execute_batch("PRAGMA journal_mode = wal; CREATE TABLE orders (id); INSERT INTO orders VALUES (1);")
        .expect("made");
    drop(shop);
    for path in [&text, &database] {
        let before = (fs::read(path).expect("bytes"), fs::metadata(path).expect("there").mtime_nsec());
        let error = Client::connect(&format!("file:{}", path.display())).await.expect_err("foreign");
        assert!(
            matches!(&error, Error::Corrupt { key, .. } if key.as_str() == path.to_str().unwrap()),
            "{error}"
        );
        assert_eq!((fs::read(path).expect("bytes"), fs::metadata(path).expect("there").mtime_nsec()), before);
    }
    let left: Vec<_> = fs::read_dir(dir.path())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left.len(), 2, "nothing was made beside them: {left:?}");
    let error = Client::connect(&format!("file:{}", dir.path().display())).await.expect_err("a directory");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

async fn a_damaged_file_is_an_error_and_is_left_as_it_is(rig: Rig) {
    let path = rig.file().path();
    let client = rig.client().await;
    for _ in 0..200 {
        let _ = client.lock(&rig.name()).lease(ms(60_000)).lock().await.map(std::mem::forget);
    }
    client.fenced_lock("tokens").lock().await.expect("free").unlock().await.expect("held");
    rig.file().plain().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("all in the file");
    let copy = path.with_extension("copy");
    fs::copy(&path, &copy).expect("a copy");
    let mut bytes = fs::read(&copy).expect("bytes");
    // Behind the head, which says that it is ours.
    bytes[100..].fill(0xa5);
    fs::write(&copy, &bytes).expect("damaged");
    let error = match Client::connect(&format!("file:{}", copy.display())).await {
        Err(error) => error,
        Ok(client) => client.lock("tokens").lock().await.expect_err("damaged"),
    };
    assert!(matches!(&error, Error::Corrupt { found, .. } if found.contains("damaged")), "{error}");
    assert!(fs::read(&copy).expect("bytes") == bytes, "it was left as it was");
}

async fn a_damaged_row_harms_only_its_own_name(rig: Rig) {
    let client = rig.client().await;
    let (good, bad) = (client.lock(&rig.name()), client.lock(&rig.name()));
    rig.file()
        .plain()
        .execute("INSERT INTO items VALUES (?1, '{\"item\":7}')", [bad.name()])
        .expect("written");
    let error = bad.lock().await.expect_err("not to be read");
    assert!(matches!(&error, Error::Corrupt { key, .. } if key == bad.name()), "{error}");
    good.lock().await.expect("free").unlock().await.expect("held");
    let kept: String = rig
        .file()
        .plain()
        .query_row("SELECT row FROM items WHERE key = ?1", [bad.name()], |row| row.get(0))
        .expect("there");
    assert_eq!(kept, "{\"item\":7}");
}

async fn a_place_that_cannot_be_is_told(_: Rig) {
    let dir = TempDir::new();
    for path in [dir.path().join("no/such/file"), Path::new("/").to_owned(), dir.path().join("sub/")] {
        let url = format!("file:{}", path.display());
        let error = Client::connect(&url).await.expect_err("no place");
        assert!(matches!(error, Error::BadConfiguration { setting: "url", .. }), "{url}: {error}");
    }
    for (builder, setting) in [
        (Client::builder().password("x"), "password"),
        (Client::builder().acknowledged_by(1), "replicas"),
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

async fn a_store_is_its_users_alone(rig: Rig) {
    let client = rig.client().await;
    let _guard = client.lock(&rig.name()).lock().await.expect("free");
    let clients = rig.file().path().with_extension("clients");
    let files = fs::read_dir(&clients).expect("a directory").map(|entry| entry.expect("an entry").path());
    let beside = fs::read_dir(rig.file().path().parent().expect("a directory")).expect("a directory");
    let beside = beside.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_file());
    let all: Vec<_> = files.chain(beside).collect();
    assert!(all.len() >= 4, "{all:?}");
    for path in all {
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    assert_eq!(fs::metadata(&clients).expect("there").permissions().mode() & 0o777, 0o700);
}

async fn a_newer_format_is_refused(rig: Rig) {
    drop(rig.client().await);
    rig.file().plain().pragma_update(None, "user_version", 99).expect("a setting");
    let error = Client::connect(&rig.file().url()).await.expect_err("newer");
    assert!(error.to_string().contains("newer"), "{error}");
}

/// Of those who lived then, nobody does: what would still stand is what was to outlast them.
async fn what_was_held_before_the_machine_started_is_void(rig: Rig) {
    let before = rig.client().await;
    let (name, fenced, permits) = (rig.name(), rig.name(), rig.name());
    let hour = Duration::from_secs(3_600);
    before.lock(&name).lock().await.expect("free").keep_for(hour).await.expect("kept");
    let token = before.fenced_lock(&fenced).lock().await.expect("free").token();
    before.permit_semaphore(&permits).try_set_permits(2).await.expect("set");
    before.permit_semaphore(&permits).acquire(2).await.expect("free").keep_for(hour).await.expect("kept");
    let id = before.id();
    drop(before);
    let clients = rig.file().path().with_extension("clients");
    eventually("it is gone", ms(5_000), async || !clients.join(id.to_string()).exists()).await;
    let between = rig.client().await;
    assert!(between.lock(&name).try_lock().await.expect("an answer").is_none(), "kept beyond its client");
    assert_eq!(between.permit_semaphore(&permits).available().await.expect("an answer"), 0);
    let id = between.id();
    drop(between);
    eventually("it is gone", ms(5_000), async || !clients.join(id.to_string()).exists()).await;
    rig.file().plain().execute("UPDATE boot SET id = 'an earlier one'", []).expect("written");
    let after = rig.client().await;
    assert!(after.lock(&name).try_lock().await.expect("an answer").is_some());
    assert_eq!(after.permit_semaphore(&permits).available().await.expect("an answer"), 2);
    let next = after.fenced_lock(&fenced).lock().await.expect("free");
    assert!(next.token() > token, "tokens go on rising");
}

async fn a_file_that_was_removed_is_told_to_holders(rig: Rig) {
    file_removed(&rig, None).await;
}

async fn a_file_that_was_removed_is_told_to_a_fixed_lease(rig: Rig) {
    file_removed(&rig, Some(HOUR)).await;
}

async fn file_removed(rig: &Rig, lease: Option<Duration>) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    // With what belongs to it, or without.
    for ends in [&["", "-wal", "-shm"][..], &[""]] {
        let guard = with_lease(client.lock(&rig.name()), lease).lock().await.expect("free");
        for end in ends {
            let mut path = rig.file().path().into_os_string();
            path.push(end);
            fs::remove_file(path).expect("there");
        }
        assert_eq!(within(SOON, "it is told", guard.lost()).await, LostReason::GoneAfterReconnect);
        let other = rig.client().await;
        let theirs = other.lock(guard.name()).lock().await.expect("free in the new file");
        assert!(
            client.lock(guard.name()).try_lock().await.expect("an answer").is_none(),
            "both use the new one"
        );
        theirs.unlock().await.expect("held");
    }
}

fn with_lease(lock: Lock, lease: Option<Duration>) -> Lock {
    match lease {
        Some(lease) => lock.lease(lease),
        None => lock,
    }
}

/// Somebody cleared away the sign that a client lives: others may have its lock then, and it hears of it.
async fn a_client_that_was_taken_for_dead_is_told(rig: Rig) {
    taken_for_dead(&rig, None).await;
}

/// It is looked at once in a third of the watchdog's lease, although it needs no renewal.
async fn a_fixed_lease_of_a_client_that_was_taken_for_dead_is_told(rig: Rig) {
    taken_for_dead(&rig, Some(HOUR)).await;
}

async fn taken_for_dead(rig: &Rig, lease: Option<Duration>) {
    let client = rig.client_with(Client::builder().watchdog(ms(3_000)).poll(NO_POLL)).await;
    let guard = with_lease(client.lock(&rig.name()), lease).lock().await.expect("free");
    let other = rig.client().await;
    let sign = rig.file().path().with_extension("clients").join(client.id().to_string());
    let theirs = async {
        loop {
            // Each step of a client shows again that it lives, and one may still be under way.
            let _ = fs::remove_file(&sign);
            if let Some(guard) = other.lock(guard.name()).try_lock().await.expect("an answer") {
                return guard;
            }
        }
    };
    let theirs = within(ms(20_000), "taken for dead", theirs).await;
    within(SOON, "the loss is told", guard.lost()).await;
    theirs.unlock().await.expect("held");
    // And it is there again for others to see.
    let again = client.lock(guard.name()).lock().await.expect("free");
    assert!(other.lock(guard.name()).try_lock().await.expect("an answer").is_none());
    again.unlock().await.expect("held");
}

async fn a_busy_file_is_waited_for(rig: Rig) {
    let client = rig.client_with(Client::builder().response_timeout(ms(200))).await;
    let lock = client.lock(&rig.name());
    let plain = rig.file().plain();
    plain.execute_batch("BEGIN IMMEDIATE").expect("ours");
    let start = Instant::now();
    let error = lock.try_lock_for(ms(300)).await.expect_err("not to be had");
    assert!(matches!(error, Error::Unavailable { .. }) && start.elapsed() >= ms(200), "{error}");
    let waiting = tokio::spawn(async move { lock.lock().await });
    plain.execute_batch("COMMIT").expect("theirs");
    let guard = within(ms(5_000), "it goes on", waiting).await.expect("no panic").expect("a turn");
    guard.unlock().await.expect("held");
}

async fn a_client_leaves_nothing_behind(rig: Rig) {
    let clients = rig.file().path().with_extension("clients");
    let count = || fs::read_dir(&clients).expect("a directory").count();
    let client = rig.client().await;
    let guard = client.lock(&rig.name()).lock().await.expect("free");
    assert_eq!(count(), 2);
    guard.unlock().await.expect("held");
    drop(client);
    eventually("its files are gone", ms(5_000), async || count() == 0).await;
    let rows: i64 =
        rig.file().plain().query_row("SELECT count(*) FROM items", [], |row| row.get(0)).expect("a number");
    assert_eq!(rows, 0);
    // What the killed leave is cleared away by the next.
    let other = Other::holding(&rig, "lock", &rig.name()).await;
    other.kill().await;
    assert_eq!(count(), 2);
    let _client = rig.client().await;
    assert_eq!(count(), 2, "those of the living one");
}

/// A checkpoint writes the first page first. Who ends after that leaves a file that is shorter than it says, and a log in which
/// the rest is: `SQLite` goes on from there.
async fn who_died_in_a_checkpoint_leaves_a_store_that_opens(rig: Rig) {
    let other = Other::holding(&rig, "lock", &rig.name()).await;
    other.kill().await;
    let path = rig.file().path();
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
    fs::write(&path, bytes).expect("as a checkpoint begins");
    let client = Client::connect(&rig.file().url()).await.expect("a store that is whole");
    client.lock(&rig.name()).lock().await.expect("free").unlock().await.expect("held");
}

/// A container of systemd-nspawn has a boot id of its own, on the same kernel.
async fn another_boot_id_does_not_end_what_the_living_hold(rig: Rig) {
    let name = rig.name();
    let holder = Other::holding(&rig, "lock", &name).await;
    rig.file().plain().execute("UPDATE boot SET id = 'of a container'", []).expect("written");
    let client = rig.client().await;
    assert!(client.lock(&name).try_lock().await.expect("an answer").is_none(), "its holder lives");
    holder.kill().await;
}

async fn who_was_taken_for_dead_gives_permits_back_once(rig: Rig) {
    let (client, other) = (rig.client().await, rig.client().await);
    let name = rig.name();
    let (ours, theirs) = (client.semaphore(&name), other.semaphore(&name));
    ours.try_set_permits(2).await.expect("set");
    let out = ours.acquire(2).await.expect("free");
    let sign = rig.file().path().with_extension("clients").join(client.id().to_string());
    // Each step of a client shows again that it lives, and one may still be under way.
    let also_out = async {
        loop {
            let _ = fs::remove_file(&sign);
            if let Some(permits) = theirs.try_acquire(2).await.expect("an answer") {
                return permits;
            }
        }
    };
    let also_out = within(ms(20_000), "taken for dead", also_out).await;
    let _ = out.release().await;
    assert_eq!(theirs.available().await.expect("an answer"), 0, "the other has both");
    also_out.release().await.expect("held");
    assert_eq!(theirs.available().await.expect("an answer"), 2, "no more than there were");
}

async fn a_client_that_ended_is_not_written_down_for_ever(rig: Rig) {
    for _ in 0..3 {
        let client = Client::connect(&rig.file().url()).await.expect("a store");
        let guard = client.lock(&rig.name()).lock().await.expect("free");
        guard.announce().await.expect("written");
        guard.unlock().await.expect("held");
    }
    // Whoever comes clears away what is left of those who are gone by then.
    let count = async || {
        drop(Client::connect(&rig.file().url()).await.expect("a store"));
        let count = "SELECT count(*) FROM clients";
        rig.file().plain().query_row(count, [], |row| row.get::<_, i64>(0)).expect("a number") == 0
    };
    eventually("nobody is written down", ms(5_000), count).await;
}

async fn a_client_goes_on_when_the_directory_of_clients_was_removed(rig: Rig) {
    let client = rig.client().await;
    let lock = client.lock(&rig.name());
    lock.lock().await.expect("free").unlock().await.expect("held");
    fs::remove_dir_all(rig.file().path().with_extension("clients")).expect("there");
    let taken = within(ms(5_000), "a turn", lock.lock()).await;
    taken.expect("free").unlock().await.expect("held");
}

/// Waking for other names must not put off the look at those in the way.
async fn who_is_woken_often_still_sees_the_dead(rig: Rig) {
    let client = rig.client_with(Client::builder().poll(NO_POLL)).await;
    let name = rig.name();
    let holder = Other::holding(&rig, "lock", &name).await;
    let pipe = rig.file().path().with_extension("clients").join(format!("{}.wake", client.id()));
    let lock = client.lock(&name);
    let us = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await.expect("a turn") }
    });
    crate::rig::until_waiting(&lock, 1).await;
    let noise = tokio::spawn(async move {
        loop {
            fs::OpenOptions::new()
                .write(true)
                .open(&pipe)
                .and_then(|mut pipe| std::io::Write::write(&mut pipe, &u64::MAX.to_be_bytes()))
                .expect("it listens");
            tokio::time::sleep(ms(50)).await;
        }
    });
    holder.kill().await;
    let guard = within(SOON * 3, "the dead stop nobody", us).await.expect("no panic");
    noise.abort();
    guard.unlock().await.expect("held");
}
