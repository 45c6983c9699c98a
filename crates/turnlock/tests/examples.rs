//! Runs the examples, and checks their exit status and output.

use std::env::consts::EXE_SUFFIX;
use std::io::{self, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than an example takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs an example, and checks that it succeeds and prints `line`.
fn check(name: &str, arguments: &[&str], line: &str) {
    let mut child = Command::new(path_of(name))
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
    let status = wait(&mut child).expect("the process can be awaited");
    let mut printed = String::new();
    let mut stdout = child.stdout.take().expect("a pipe");
    stdout.read_to_string(&mut printed).expect("text");
    let status = status.unwrap_or_else(|| panic!("{name} runs for more than {LIMIT:?}:\n{printed}"));
    assert!(status.success(), "{name}: {status}\n{printed}");
    assert!(printed.lines().any(|printed| printed == line), "{name} does not print {line:?}:\n{printed}");
}

/// Cargo builds the examples into the directory beside that of the test.
fn path_of(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let directory = test.ancestors().nth(2).expect("target/debug").join("examples");
    let path = directory.join(format!("{name}{EXE_SUFFIX}"));
    assert!(path.exists(), "{} does not exist: run `cargo build -p turnlock --examples`", path.display());
    path
}

/// Waits for the end of a process, and kills it after [`LIMIT`].
fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[test]
fn lock() {
    check("lock", &[], "clean shutdown: true");
}

#[test]
#[cfg(all(feature = "file", unix))]
fn lock_on_a_file() {
    let directory = turnlock_testkit::TempDir::new();
    let url = format!("file:{}", directory.path().join("locks").display());
    check("lock", &[&url], "clean shutdown: true");
}

#[test]
fn blocking() {
    check("blocking", &[], "4 threads delivered 20 items");
}

#[test]
fn axum() {
    check("axum", &[], "no store: 503");
}

#[test]
fn leader() {
    check("leader", &[], "all workers ended");
}

#[test]
fn fencing() {
    check("fencing", &[], "SQL    the paused holder  was refused: its token is too low");
}

#[test]
fn testing() {
    check("testing", &[], "three tests passed");
}

#[test]
#[cfg(feature = "metrics")]
fn monitoring() {
    check("monitoring", &[], "acquires are counted: true");
}

#[test]
#[cfg(unix)]
fn json_store() {
    check("json_store", &[], "acquired by the other client");
}

/// The page has the code of the example, and of the test that runs the conformance suite on it.
#[test]
fn the_page_shows_the_json_store() {
    let read = |path: &str| {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let page = read("../../docs/writing-a-store.md");
    for (path, start, end) in [
        ("examples/json_store.rs", "#[cfg(unix)]\nmod store", "#[cfg(not(unix))]"),
        ("tests/json_store.rs", "#[cfg(unix)]\nfn main()", "<the end>"),
    ] {
        let text = read(path);
        let text = &text[text.find(start).expect("the start")..];
        let text = text.split(end).next().unwrap_or(text).trim_end();
        assert!(page.contains(text), "docs/writing-a-store.md does not show {path} as it is");
    }
}
