use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context;

/// The file of `--metrics-file`, for the text file collector of `node_exporter`.
///
/// It is replaced as a whole, so that no reader finds half of it.
pub(crate) struct MetricsFile<'a> {
    path: &'a Path,
    name: &'a OsStr,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOutcome {
    /// The command ran, and the lock was held until it exited.
    Ran,
    /// The lock was busy, or a signal ended the wait.
    NotAcquired,
    Lost,
    /// The store failed, the name is of another kind, or the command could not be executed.
    Failed,
}

impl RunOutcome {
    const ALL: [Self; 4] = [Self::Ran, Self::NotAcquired, Self::Lost, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::NotAcquired => "not_acquired",
            Self::Lost => "lost",
            Self::Failed => "failed",
        }
    }
}

/// What a run reports.
pub(crate) struct RunReport<'a> {
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) outcome: RunOutcome,
    pub(crate) code: u8,
    pub(crate) waited: Duration,
    /// Zero if the lock was not acquired.
    pub(crate) held: Duration,
    pub(crate) started: SystemTime,
    pub(crate) ended: SystemTime,
}

impl<'a> MetricsFile<'a> {
    /// Checks that the file can be written, before anything else happens.
    pub(crate) fn prepare(path: &'a Path) -> anyhow::Result<Self> {
        let error = || {
            format!(
                "cannot write the metrics file {}; its directory must exist and be writable",
                path.display()
            )
        };
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            return Err(io::Error::from(io::ErrorKind::IsADirectory)).with_context(error);
        };
        let file = Self { path, name };
        file.create_temporary().and_then(|(temporary, _)| fs::remove_file(temporary)).with_context(error)?;
        Ok(file)
    }

    /// Creates a file in the same directory. The collector does not read it: its name does not end in `.prom`.
    ///
    /// A run that was killed may have left one, and another process may have its number by now.
    fn create_temporary(&self) -> io::Result<(PathBuf, File)> {
        let mut number = 0_u32;
        loop {
            let mut name = OsStr::new(".").to_owned();
            name.push(self.name);
            name.push(format!(".{}.{number}.tmp", std::process::id()));
            let path = self.path.with_file_name(name);
            match File::options().write(true).create_new(true).open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                opened => return opened.map(|file| (path, file)),
            }
        }
    }

    /// Replaces the file.
    pub(crate) fn write(&self, report: &RunReport<'_>) -> io::Result<()> {
        let (temporary, mut file) = self.create_temporary()?;
        // Whatever the mask of the job is: the collector runs as another user.
        let written = file
            .set_permissions(Permissions::from_mode(0o644))
            .and_then(|()| file.write_all(report.to_text().as_bytes()))
            .and_then(|()| fs::rename(&temporary, self.path));
        written.inspect_err(|_| drop(fs::remove_file(&temporary)))
    }
}

impl RunReport<'_> {
    /// The report in the text format of Prometheus.
    fn to_text(&self) -> String {
        let labels = format!("name=\"{}\",label=\"{}\"", escape(self.name), escape(self.label));
        let mut text = String::new();
        let mut head = |name: &str, help: &str, samples: &[(String, f64)]| {
            let _ = write!(text, "# HELP turnlock_run_{name} {help}\n# TYPE turnlock_run_{name} gauge\n");
            for (more, value) in samples {
                let _ = writeln!(text, "turnlock_run_{name}{{{labels}{more}}} {value}");
            }
        };
        let mut gauge = |name: &str, help: &str, value: f64| head(name, help, &[(String::new(), value)]);
        let since_1970 =
            |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        gauge(
            "wait_seconds",
            "Time until the lock was held, or until the wait ended.",
            self.waited.as_secs_f64(),
        );
        gauge(
            "hold_seconds",
            "Time from the grant of the lock to the end of the command.",
            self.held.as_secs_f64(),
        );
        gauge("exit_code", "Exit code of turnlock: that of the command, if it ran.", f64::from(self.code));
        gauge("start_timestamp_seconds", "When turnlock was started.", since_1970(self.started));
        gauge("end_timestamp_seconds", "When the run ended.", since_1970(self.ended));
        let outcomes = RunOutcome::ALL.map(|outcome| {
            (format!(",outcome=\"{}\"", outcome.label()), f64::from(u8::from(outcome == self.outcome)))
        });
        head("outcome", "How the run ended: 1 for one of the outcomes.", &outcomes);
        text
    }
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escape("a\\n\"b\"\nc"), "a\\\\n\\\"b\\\"\\nc");
    }
}
