use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::work::Work;

/// What one process is asked to do, as it stands on its command line: `WORK key=value ...`.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What to do.
    pub work: Work,
    /// Where the server is, on the loopback interface.
    pub port: u16,
    /// The name of the lock, or the beginning of the names of several.
    pub lock: String,
    /// How many tasks work at once.
    pub tasks: usize,
    /// How many turns all of them take together; 0 is no limit.
    pub turns: u64,
    /// How long it lasts, or how long it may last.
    pub seconds: f64,
    /// The lease of a lock that is not renewed, and that which renewal begins with.
    pub lease_ms: u64,
    /// How many pairs to warm up with.
    pub warm_up: u64,
    /// How long the first one holds the lock that a herd waits for.
    pub hold_ms: u64,
    /// The file with the number that the lock protects.
    pub counter: PathBuf,
    /// How many locks to keep.
    pub locks: usize,
    /// Which lock of the library; empty is its usual one, and so is `lock`.
    pub kind: String,
}

impl Order {
    /// An order with nothing but usual values.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            port: 6379,
            lock: "race".to_owned(),
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

    /// Reads a command line without the name of the program. Keys that it does not know are ignored.
    pub fn from_words(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let mut order = Self::new(words.next().ok_or("what to do is missing: WORK key=value ...")?.parse()?);
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("{word:?} is not key=value"))?;
            match key {
                "port" => order.port = number(key, value)?,
                "lock" => value.clone_into(&mut order.lock),
                "tasks" => order.tasks = number(key, value)?,
                "turns" => order.turns = number(key, value)?,
                "seconds" => order.seconds = number(key, value)?,
                "lease_ms" => order.lease_ms = number(key, value)?,
                "warm_up" => order.warm_up = number(key, value)?,
                "hold_ms" => order.hold_ms = number(key, value)?,
                "counter" => order.counter = value.into(),
                "locks" => order.locks = number(key, value)?,
                "kind" => value.clone_into(&mut order.kind),
                _ => {}
            }
        }
        Ok(order)
    }

    /// The command line that says this. What is empty is not said.
    pub fn words(&self) -> Vec<String> {
        let words = [
            self.work.to_string(),
            format!("port={}", self.port),
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
        words.into_iter().filter(|word| !word.ends_with('=')).collect()
    }

    /// Where the server is.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How long it lasts, or may last.
    pub fn time(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds).unwrap_or_default()
    }

    /// Whether it is about the library's usual lock.
    pub fn is_of_usual_kind(&self) -> bool {
        matches!(self.kind.as_str(), "" | "lock")
    }

    /// The lease as a duration.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }
}

fn number<T: FromStr>(key: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value} is not a number that fits"))
}

#[cfg(test)]
mod tests {
    use super::Order;
    use crate::work::Work;

    #[test]
    fn an_order_survives_its_command_line() {
        let order = Order { tasks: 64, seconds: 2.5, kind: "plain".to_owned(), ..Order::new(Work::Pairs) };
        assert_eq!(Order::from_words(order.words()), Ok(order));
        let usual = Order::new(Work::Pairs);
        assert!(!usual.words().iter().any(|word| word.starts_with("kind")));
        assert_eq!(Order::from_words(usual.words()), Ok(usual));
    }

    #[test]
    fn unknown_keys_are_ignored_and_bad_values_are_not() {
        let words = |words: &str| Order::from_words(words.split(' ').map(str::to_owned));
        assert_eq!(words("keep colour=red"), Ok(Order::new(Work::Keep)));
        assert!(words("keep locks=many").is_err());
        assert!(words("sleep").is_err());
    }
}
