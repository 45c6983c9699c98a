//! Kills the child processes when this program is killed.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Reads which processes run, and kills them when its input ends: with this program, however that ends. It
/// ignores the signals that a terminal or a time limit sends to the whole process group.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
running=' '
while read -r change pid; do
    case $change in
        +) running="$running$pid " ;;
        -) running="${running%%" $pid "*} ${running#*" $pid "}" ;;
    esac
done
[ -z "${running# }" ] || kill -KILL $running
"#;

static INPUT: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();

/// Registers a process to be killed when this program ends.
pub(crate) fn watch(id: u32) {
    send('+', id);
}

/// Removes a process that has ended; its id may be reused.
pub(crate) fn forget(id: u32) {
    send('-', id);
}

fn send(change: char, id: u32) {
    // Without a shell, only the owners of the processes end them, which is enough unless this program is
    // killed.
    if let Some(input) = INPUT.get_or_init(start) {
        let mut input = input.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = writeln!(input, "{change} {id}");
    }
}

fn start() -> Option<Mutex<ChildStdin>> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not awaited: it ends after this program.
    command.spawn().ok()?.stdin.take().map(Mutex::new)
}
