//! `--metrics-file`.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use rustix::process::Signal;
use turnlock_testkit::RedisServer;

use crate::fixture::Fixture;
use crate::program::Program;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    the_metrics_file_has_the_outcome_of_a_run,
    a_busy_or_lost_lock_is_in_the_metrics_file,
    a_lock_of_another_kind_is_a_failure,
    a_bad_metrics_file_is_an_error_before_the_command_runs,
    a_leftover_temporary_file_does_no_harm,
];

pub(crate) const REDIS_CASES: &[Case] = cases![the_wait_ends_before_the_shutdown];

pub(crate) const PROMTOOL_CASES: &[Case] = cases![a_metrics_file_with_a_hostile_name_is_valid];

/// Returns why promtool cannot be run; `None` if it can.
pub(crate) fn promtool_missing() -> Option<String> {
    let is_found =
        Command::new("promtool").arg("--version").output().is_ok_and(|output| output.status.success());
    (!is_found).then(|| "promtool is not installed (Debian package prometheus)".to_owned())
}

/// Runs a command with a metrics file. Returns the exit code and the values, with the names and further labels of the series.
async fn run(fixture: &Fixture, flags: &[&str], command: &[&str]) -> (i32, HashMap<String, f64>) {
    let file = fixture.file("run.prom");
    let flags = [flags, &["--quiet", "--metrics-file", file.to_str().unwrap()]].concat();
    let code = fixture.run(&flags, command).code().await;
    (code, values_in(fixture, &file, command[0]))
}

fn values_in(fixture: &Fixture, file: &Path, label: &str) -> HashMap<String, f64> {
    let text = std::fs::read_to_string(file).unwrap();
    let labels = format!("{{name=\"{}\",label=\"{label}\"", fixture.name);
    let samples = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let name = series.replace(&labels, "").replace('}', "");
        assert!(series.contains(&labels), "{line}");
        (name.strip_prefix("turnlock_run_").unwrap().to_owned(), value.parse().unwrap())
    });
    samples.collect()
}

fn outcome(values: &HashMap<String, f64>) -> Vec<&str> {
    let mut outcomes: Vec<_> = values.iter().filter(|(name, _)| name.starts_with("outcome")).collect();
    outcomes.retain(|(_, value)| **value > 0.0);
    outcomes.into_iter().map(|(name, _)| name.split('"').nth(1).unwrap()).collect()
}

fn temporary_files(fixture: &Fixture) -> Vec<PathBuf> {
    let files = std::fs::read_dir(fixture.file("")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "tmp")).collect()
}

async fn the_metrics_file_has_the_outcome_of_a_run(fixture: Fixture) {
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    // What was there before is replaced.
    std::fs::write(fixture.file("run.prom"), "old").unwrap();
    let (code, values) = run(&fixture, &[], &["sh", "-c", "sleep 0.1; exit 7"]).await;
    assert_eq!(code, 7);
    assert_eq!((values["exit_code"], outcome(&values)), (7.0, vec!["ran"]));
    assert!(values["hold_seconds"] >= 0.1 && values["wait_seconds"] > 0.0, "{values:?}");
    let (start, end) = (values["start_timestamp_seconds"], values["end_timestamp_seconds"]);
    assert!(before <= start && start + 0.1 <= end, "{values:?}");
    assert_eq!(values.keys().filter(|name| name.starts_with("outcome")).count(), 4, "{values:?}");
    let (code, values) = run(&fixture, &[], &["no-such-command"]).await;
    assert_eq!((code, outcome(&values)), (127, vec!["failed"]));
    assert_eq!(temporary_files(&fixture), Vec::<PathBuf>::new());
}

async fn a_busy_or_lost_lock_is_in_the_metrics_file(fixture: Fixture) {
    let holder = fixture.hold(&[]).await;
    let (code, values) = run(&fixture, &["-n", "-E", "9"], &["true"]).await;
    assert_eq!((code, outcome(&values)), (9, vec!["not_acquired"]));
    assert_eq!((values["exit_code"], values["hold_seconds"]), (9.0, 0.0));
    assert_eq!(holder.code().await, 0);
    let (code, values) = run(&fixture, &["--lease", "300ms"], &["sleep", "100"]).await;
    assert_eq!((code, outcome(&values)), (79, vec!["lost"]));
    assert!(values["hold_seconds"] > 0.1, "{values:?}");
}

async fn a_lock_of_another_kind_is_a_failure(fixture: Fixture) {
    let holder = fixture.hold(&["--plain"]).await;
    let (code, values) = run(&fixture, &["-n"], &["true"]).await;
    assert_eq!((code, outcome(&values)), (65, vec!["failed"]));
    assert_eq!((values["exit_code"], values["hold_seconds"]), (65.0, 0.0));
    assert_eq!(holder.code().await, 0);
}

async fn the_wait_ends_before_the_shutdown(fixture: Fixture) {
    let server = RedisServer::start().await;
    let fixture = fixture.on(server.url());
    let _holder = fixture.hold(&["--fair"]).await;
    let file = fixture.file("run.prom");
    let mut program = fixture.run(&["--fair", "--json", "--metrics-file", file.to_str().unwrap()], &["true"]);
    program.event_named("waiting").await;
    // The client tries for two seconds to leave the queue.
    server.pause();
    program.signal(Signal::TERM);
    assert_eq!(program.code().await, 128 + Signal::TERM.as_raw());
    server.resume();
    let values = values_in(&fixture, &file, "true");
    let lasted = values["end_timestamp_seconds"] - values["start_timestamp_seconds"];
    assert_eq!(outcome(&values), ["not_acquired"]);
    assert!(lasted - values["wait_seconds"] > 1.5, "{lasted} {values:?}");
}

async fn a_bad_metrics_file_is_an_error_before_the_command_runs(fixture: Fixture) {
    let marker = fixture.file("marker");
    let touch = ["touch", marker.to_str().unwrap()];
    for path in [fixture.file("no/such/directory/x.prom"), fixture.file("")] {
        let mut program = fixture.run(&["--metrics-file", path.to_str().unwrap()], &touch);
        let line = program.stderr_line().await;
        assert!(line.contains("cannot write the metrics file") && line.contains("must exist"), "{line}");
        assert_eq!(program.code().await, 70);
    }
    assert!(!marker.exists(), "the command ran");
}

/// The shell becomes the program, so that the leftover has its process number. Its mask hides new files from other users.
async fn a_leftover_temporary_file_does_no_harm(fixture: Fixture) {
    let script = "umask 077; echo old >.run.prom.$$.0.tmp
        exec turnlock run --quiet --metrics-file run.prom \"$NAME\" -- true";
    assert_eq!(Program::start(fixture.shell("sh", script)).code().await, 0);
    let file = fixture.file("run.prom");
    assert!(std::fs::read_to_string(&file).unwrap().contains("turnlock_run_exit_code"));
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let left: Vec<_> =
        temporary_files(&fixture).iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert_eq!(left, ["old\n"], "it belongs to another run");
}

async fn a_metrics_file_with_a_hostile_name_is_valid(fixture: Fixture) {
    let file = fixture.file("hostile.prom");
    let name = "a\\n\"} 1\nturnlock_run_exit_code 9\n\\";
    let flags = ["--quiet", "--label", "l\"\\\n", "--metrics-file", file.to_str().unwrap(), name, "true"];
    assert_eq!(Program::start(fixture.command(&flags)).code().await, 0);
    let text = std::fs::read_to_string(&file).unwrap();
    let labels =
        r#"turnlock_run_exit_code{name="a\\n\"} 1\nturnlock_run_exit_code 9\n\\",label="l\"\\\n"} 0"#;
    assert!(text.lines().any(|line| line == labels), "{text}");
    let input = std::fs::File::open(&file).unwrap();
    let checked =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::from(input)).output().unwrap();
    let problems = String::from_utf8_lossy(&checked.stdout) + String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.success() && problems.is_empty(), "{problems}\n{text}");
}
