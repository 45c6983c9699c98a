//! Processor time and memory of processes and of the machine, from `/proc`.

use std::fs;
use std::time::Duration;

/// Processor time of a process so far, in seconds; `None` if it has ended.
///
/// The kernel reports the time of a process in coarse steps, and that of each live thread in nanoseconds. Only the first includes
/// threads that have ended, so the larger of both is right, and precise if no thread has ended.
pub(crate) fn of_process(id: u32) -> Option<f64> {
    let whole = parse_process(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?).map(seconds)?;
    Some(whole.max(of_threads(id)))
}

fn of_threads(id: u32) -> f64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return 0.0 };
    let nanos = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum()).as_secs_f64()
}

/// Processor time of the whole machine so far, in seconds.
pub(crate) fn of_machine() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    seconds(parse_machine(&stat).unwrap_or(0))
}

/// The current and the peak resident memory of a process, in kB.
pub(crate) fn memory(id: u32) -> Option<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    Some((parse_status(&status, "VmRSS:")?, parse_status(&status, "VmHWM:")?))
}

#[expect(clippy::cast_precision_loss, reason = "ticks are far below 2^52")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

fn parse_process(stat: &str) -> Option<u64> {
    // The name is in parentheses, and may contain parentheses and blanks.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

fn parse_machine(stat: &str) -> Option<u64> {
    let fields: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    [0, 1, 2, 5, 6].into_iter().map(|field| fields.get(field).copied()).sum()
}

fn parse_status(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{parse_machine, parse_process, parse_status};

    #[test]
    fn the_time_of_this_process_increases() {
        let id = std::process::id();
        let before = super::of_process(id).expect("a running process");
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_millis(50) {}
        let used = super::of_process(id).expect("a running process") - before;
        assert!(used > 0.005, "{used}");
    }

    #[test]
    fn proc_files_are_parsed() {
        let stat = "7 (a) b) R 1 7 7 0 -1 4194304 90 0 0 0 12 30 5 5 20 0 1 0 1000 0 0";
        assert_eq!(parse_process(stat), Some(42));
        assert_eq!(parse_machine("cpu  1 2 4 1000 1000 8 16 0 0 0\ncpu0 9 9 9"), Some(31));
        assert_eq!(parse_status("VmHWM:\t  20 kB\nVmRSS:\t  10 kB\n", "VmRSS:"), Some(10));
        assert_eq!(parse_status("", "VmRSS:"), None);
    }
}
