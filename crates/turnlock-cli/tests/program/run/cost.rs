//! What a run costs, as counts.

use std::fs;

use turnlock_testkit::eventually;

use crate::fixture::{Fixture, ms};
use crate::program::Program;
use crate::{Case, cases};

/// The cases on a file.
pub(crate) const FILE_CASES: &[Case] = cases![a_run_starts_few_threads, a_run_writes_few_pages];

/// The cases for which the dynamic linker must log what it starts.
pub(crate) const LINKER_CASES: &[Case] = cases![the_program_is_started_once];

/// Why the dynamic linker logs nothing, if it does not.
pub(crate) fn linker_log_missing() -> Option<String> {
    (!cfg!(target_env = "gnu")).then(|| "the dynamic linker is not that of the GNU C library".to_owned())
}

async fn the_program_is_started_once(fixture: Fixture) {
    let mut command = fixture.command(&[&fixture.name, "--", "true"]);
    command.env("LD_DEBUG", "libs").env("LD_DEBUG_OUTPUT", fixture.file("ld"));
    assert_eq!(Program::start(command).code().await, 0);
    // One file for each process, with a line for each program that it executed.
    let mut started = Vec::new();
    for entry in fs::read_dir(fixture.file("")).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("ld.") {
            let log = fs::read_to_string(entry.path()).unwrap();
            let programs = log.lines().filter_map(|line| line.split_once("transferring control: "));
            started.extend(programs.map(|(_, program)| program.to_owned()));
        }
    }
    started.sort_unstable();
    assert_eq!(started, [env!("CARGO_BIN_EXE_turnlock"), "true"]);
}

async fn a_run_starts_few_threads(fixture: Fixture) {
    let program = fixture.hold(&[]).await;
    let threads = format!("/proc/{}/task", program.pid.as_raw_nonzero());
    let names = || {
        let threads = fs::read_dir(&threads).unwrap().map(|entry| entry.unwrap().path().join("comm"));
        let mut names: Vec<_> = threads.filter_map(|name| fs::read_to_string(name).ok()).collect();
        names.sort_unstable();
        names.concat()
    };
    // The timer starts when the command has run for a while. A new thread has the name of the program at first.
    let expected = "command\nturnlock\nturnlock-file\nturnlock-timer\n";
    eventually("these threads run, and no other", ms(20_000), async || names() == expected).await;
}

async fn a_run_writes_few_pages(fixture: Fixture) {
    /// Bytes of a page and of its header in the log.
    const FRAME: u64 = 4096 + 24;
    let length = || fs::metadata(fixture.file("locks-wal")).unwrap().len();
    // Creates the store.
    assert_eq!(fixture.run(&[], &["true"]).code().await, 0);
    for _ in 0..3 {
        let before = length();
        assert_eq!(fixture.run(&[], &["true"]).code().await, 0);
        let pages = (length() - before) / FRAME;
        // The end of the client record of the run before, the grant, the client record, on a busy machine since when the
        // lock is held, the release. No run reaches the length at which the log is written back.
        assert!((2..=5).contains(&pages), "{pages} pages");
    }
}
