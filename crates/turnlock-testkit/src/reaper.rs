//! Ends our children when we are ended without a chance to do it ourselves.

use std::io::Write;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// Reads which processes run, and kills those when its input ends: with us, however we end. It must outlive what a
/// terminal or a time limit sends to all of us.
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

/// From now on the process with this id is killed when we end.
pub(crate) fn watch(id: u32) {
    tell('+', id);
}

/// The process with this id has ended; somebody else may get the number.
pub(crate) fn forget(id: u32) {
    tell('-', id);
}

fn tell(change: char, id: u32) {
    // Without a shell, what is left to see is that the owners of processes end them, as they do in any orderly run.
    if let Some(input) = INPUT.get_or_init(start) {
        let mut input = input.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = writeln!(input, "{change} {id}");
    }
}

fn start() -> Option<Mutex<ChildStdin>> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Nobody waits for it: it ends after us.
    command.spawn().ok()?.stdin.take().map(Mutex::new)
}
