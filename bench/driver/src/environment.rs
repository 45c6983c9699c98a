//! The machine of a run, the versions on it, and its load.

use std::fs;
use std::process::Command;

/// The machine in one line: processor, cores, memory, kernel.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let model = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let memory = field(&read("/proc/meminfo"), "MemTotal")
        .and_then(|total| total.split(' ').next()?.parse::<u64>().ok())
        .map_or_else(|| "unknown memory".to_owned(), |kb| format!("{} MB of memory", kb / 1024));
    format!("{model}, {cores} cores, {memory}, Linux {}", read("/proc/sys/kernel/osrelease").trim())
}

/// The version of the compiler.
pub(crate) fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default().trim_start_matches("rustc ").to_owned()
}

/// The load averages over 1, 5 and 15 minutes.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The value of `key: value`.
fn field(text: &str, key: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'));
    value.map(|value| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{field, load, machine};

    #[test]
    fn the_machine_is_described() {
        assert!(machine().contains(" cores, ") && !machine().contains("unknown memory"), "{}", machine());
        assert_eq!(load().split(' ').count(), 3);
        assert_eq!(field("model\t: 1\nmodel name\t: X 2\n", "model name").as_deref(), Some("X 2"));
    }
}
