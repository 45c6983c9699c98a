//! A child process that does not outlive its owner.

use std::fs;
use std::io::Write;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

/// A running process. It is killed and awaited on drop, and killed if this program is killed.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let child = command.spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"));
        report_to_reaper('+', child.id());
        Self(child)
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Returns stdin and stdout of a process that was started with pipes. Works once.
    pub(crate) fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        self.0.stdin.take().zip(self.0.stdout.take()).expect("pipes to the process")
    }

    pub(crate) fn has_exited(&mut self) -> bool {
        self.0.try_wait().expect("a child process can be watched").is_some()
    }

    /// Sends a signal, in the syntax of `kill`: `-STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        // The standard library can send SIGKILL only.
        let status = Command::new("kill").args([signal, &self.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "`kill {signal}` did not reach the process");
    }

    /// Returns `true` if the process is stopped by a signal; `None` if unknown.
    pub(crate) fn is_stopped(&self) -> Option<bool> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).ok()?;
        // The state follows the command name, which is in parentheses and may contain some itself.
        let (_, rest) = stat.rsplit_once(") ")?;
        Some(rest.starts_with('T'))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A panic here would hide the panic that may be under way.
        let _ = self.0.kill();
        let _ = self.0.wait();
        report_to_reaper('-', self.0.id());
    }
}

/// The reaper: a shell that reads which processes run, and kills them when its input ends.
///
/// Its input ends with this program, however that ends. It ignores the signals that a terminal or a time limit
/// sends to the whole process group.
const REAPER: &str = r#"
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

static REAPER_INPUT: OnceLock<Option<Mutex<ChildStdin>>> = OnceLock::new();

/// Reports that a process runs (`+`) or has ended (`-`); its id may be reused then.
fn report_to_reaper(change: char, id: u32) {
    // Without a shell, only the owners of the processes end them, which is enough unless this program is
    // killed.
    if let Some(input) = REAPER_INPUT.get_or_init(start_reaper) {
        let mut input = input.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = writeln!(input, "{change} {id}");
    }
}

fn start_reaper() -> Option<Mutex<ChildStdin>> {
    let mut command = Command::new("sh");
    command.args(["-c", REAPER]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Not awaited: it ends after this program.
    command.spawn().ok()?.stdin.take().map(Mutex::new)
}
