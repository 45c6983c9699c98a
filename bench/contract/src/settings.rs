use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::workload::Workload;

/// The settings of one participant process, from its command line: `WORKLOAD key=value ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The workload to run.
    pub workload: Workload,
    /// The port of the server on the loopback interface.
    pub port: u16,
    /// The ports of the masters of a cluster; empty for a single server.
    pub cluster: Vec<u16>,
    /// The name of the lock, or the prefix of the names of several.
    pub lock: String,
    /// The number of concurrent tasks.
    pub tasks: usize,
    /// The number of grants to all tasks together; 0 is no limit.
    pub turns: u64,
    /// The duration of the workload, or its time limit.
    pub seconds: f64,
    /// The lease of a lock, or the watchdog time-out of a renewed one.
    pub lease_ms: u64,
    /// The number of pairs for the warm-up.
    pub warm_up: u64,
    /// How long the lock that a herd waits for is held first.
    pub hold_ms: u64,
    /// The file with the counter that the lock protects.
    pub counter: PathBuf,
    /// The number of locks to hold.
    pub locks: usize,
    /// The kind of lock of the library. Empty and `lock` are its default one.
    pub kind: String,
}

impl Settings {
    /// The default settings for a workload.
    pub fn new(workload: Workload) -> Self {
        Self {
            workload,
            port: 6379,
            cluster: Vec::new(),
            lock: "bench".to_owned(),
            tasks: 1,
            turns: 0,
            seconds: 10.0,
            lease_ms: 30_000,
            warm_up: 200,
            hold_ms: 1_000,
            counter: PathBuf::new(),
            locks: 0,
            kind: String::new(),
        }
    }

    /// Parses a command line without the name of the program. Unknown keys are ignored.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut settings =
            Self::new(args.next().ok_or("the workload is missing: WORKLOAD key=value ...")?.parse()?);
        for arg in args {
            let (key, value) = arg.split_once('=').ok_or_else(|| format!("{arg:?} is not key=value"))?;
            match key {
                "port" => settings.port = number(key, value)?,
                "cluster" => {
                    settings.cluster =
                        value.split(',').map(|port| number(key, port)).collect::<Result<_, _>>()?;
                }
                "lock" => value.clone_into(&mut settings.lock),
                "tasks" => settings.tasks = number(key, value)?,
                "turns" => settings.turns = number(key, value)?,
                "seconds" => settings.seconds = number(key, value)?,
                "lease_ms" => settings.lease_ms = number(key, value)?,
                "warm_up" => settings.warm_up = number(key, value)?,
                "hold_ms" => settings.hold_ms = number(key, value)?,
                "counter" => settings.counter = value.into(),
                "locks" => settings.locks = number(key, value)?,
                "kind" => value.clone_into(&mut settings.kind),
                _ => {}
            }
        }
        Ok(settings)
    }

    /// The command line for these settings, without empty values.
    pub fn args(&self) -> Vec<String> {
        let args = [
            self.workload.to_string(),
            format!("port={}", self.port),
            format!("cluster={}", self.cluster.iter().map(u16::to_string).collect::<Vec<_>>().join(",")),
            format!("lock={}", self.lock),
            format!("tasks={}", self.tasks),
            format!("turns={}", self.turns),
            format!("seconds={}", self.seconds),
            format!("lease_ms={}", self.lease_ms),
            format!("warm_up={}", self.warm_up),
            format!("hold_ms={}", self.hold_ms),
            format!("counter={}", self.counter.display()),
            format!("locks={}", self.locks),
            format!("kind={}", self.kind),
        ];
        args.into_iter().filter(|arg| !arg.ends_with('=')).collect()
    }

    /// The URL of the server, as most libraries write it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The URLs of the masters of the cluster; empty for a single server.
    pub fn cluster_urls(&self) -> Vec<String> {
        self.cluster.iter().map(|port| format!("redis://127.0.0.1:{port}")).collect()
    }

    /// The duration of the workload, or its time limit.
    pub fn time(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or_default()
    }

    /// Returns `true` for the library's default kind of lock.
    pub fn is_default_kind(&self) -> bool {
        matches!(self.kind.as_str(), "" | "lock")
    }

    /// The lease as a duration.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value} is not a valid number"))
}

#[cfg(test)]
mod tests {
    use super::Settings;
    use crate::workload::Workload;

    #[test]
    fn settings_survive_their_command_line() {
        let settings =
            Settings { tasks: 64, seconds: 2.5, kind: "plain".to_owned(), ..Settings::new(Workload::Pairs) };
        let settings = Settings { cluster: vec![7001, 7002], ..settings };
        assert_eq!(Settings::from_args(settings.args()), Ok(settings));
        let default = Settings::new(Workload::Pairs);
        assert!(!default.args().iter().any(|arg| arg.starts_with("kind")));
        assert_eq!(Settings::from_args(default.args()), Ok(default));
    }

    #[test]
    fn unknown_keys_are_ignored_and_bad_values_are_not() {
        let parse = |args: &str| Settings::from_args(args.split(' ').map(str::to_owned));
        assert_eq!(parse("hold colour=red"), Ok(Settings::new(Workload::Hold)));
        assert!(parse("hold locks=many").is_err());
        assert!(parse("hold cluster=1,x").is_err());
        assert!(parse("sleep").is_err());
    }
}
