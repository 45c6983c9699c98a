//! Runs the example scripts, and checks their output.
#![cfg(unix)]

use std::path::Path;
use std::process::Command;

#[test]
fn cron_runs_one_job_at_a_time_and_one_per_period() {
    let program = Path::new(env!("CARGO_BIN_EXE_turnlock"));
    let directory = program.parent().expect("a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/cron.sh");
    let output = Command::new("sh")
        .arg(script)
        .env("PATH", format!("{}:{path}", directory.display()))
        .env_remove("TURNLOCK_STORE")
        .output()
        .expect("sh runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines, ["second run: skipped", "first run: done", "report: written by machine one"]);
}
