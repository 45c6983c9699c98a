//! The figures of a history, as `report.json` has them. Times are in microseconds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::spans::{Outcome, Request, Spans};
use crate::checker::Verdict;
use crate::history::{LockInfo, LockKind};

/// All figures.
#[derive(Debug, Serialize)]
pub(super) struct Figures<'a> {
    pub(super) passed: bool,
    pub(super) seed: Option<u64>,
    pub(super) shape: &'a str,
    pub(super) commit: Option<&'a str>,
    pub(super) duration_us: u64,
    pub(super) processes: usize,
    pub(super) promises_exclusion: bool,
    pub(super) promises_rising_tokens: bool,
    pub(super) locks: &'a [LockInfo],
    pub(super) total: KindFigures,
    pub(super) kinds: BTreeMap<String, KindFigures>,
    pub(super) faults: BTreeMap<String, FaultFigures>,
    /// Overlapping holds where none are promised to be excluded.
    pub(super) overlaps: usize,
    /// How much of the time of the processes stalls of the machine excuse, in percent.
    pub(super) stalled_percent: u64,
    pub(super) violations: &'a [String],
}

/// The figures of one kind of lock.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct KindFigures {
    pub(super) requests: usize,
    pub(super) granted: usize,
    pub(super) busy: usize,
    pub(super) cancelled: usize,
    pub(super) failed: usize,
    /// Requests without an outcome: the process was killed, or the history ends.
    pub(super) unfinished: usize,
    /// By error text. A number in it is left out.
    pub(super) errors: BTreeMap<String, usize>,
    /// By reason. A number in it is left out.
    pub(super) lost: BTreeMap<String, usize>,
    /// The time from the request to the grant.
    pub(super) wait_us: Option<Percentiles>,
    /// The time from the grant to the end of the hold.
    pub(super) hold_us: Option<Percentiles>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Percentiles {
    pub(super) p10: u64,
    pub(super) p50: u64,
    pub(super) p90: u64,
    pub(super) p99: u64,
    pub(super) max: u64,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct FaultFigures {
    pub(super) count: usize,
    /// The sum of their durations.
    pub(super) total_us: u64,
}

impl<'a> Figures<'a> {
    pub(super) fn new(spans: &Spans<'a>, verdict: &'a Verdict, commit: Option<&'a str>) -> Self {
        let mut by_kind: BTreeMap<String, Vec<&Request<'_>>> = BTreeMap::new();
        for info in spans.locks {
            by_kind.entry(kind_name(info.kind)).or_default();
        }
        for request in &spans.requests {
            by_kind.entry(kind_name(spans.locks[request.lock].kind)).or_default().push(request);
        }
        let mut faults: BTreeMap<String, FaultFigures> = BTreeMap::new();
        for fault in &spans.faults {
            let figures = faults.entry(fault.name.to_owned()).or_default();
            figures.count += 1;
            figures.total_us += fault.until - fault.from;
        }
        Self {
            passed: verdict.violations.is_empty(),
            seed: spans.run.map(|(seed, _)| seed),
            shape: spans.run.map_or("", |(_, shape)| shape),
            commit,
            duration_us: spans.end,
            processes: spans.processes.len(),
            promises_exclusion: spans.promises_exclusion,
            promises_rising_tokens: spans.promises_rising_tokens,
            locks: spans.locks,
            total: KindFigures::new(&spans.requests.iter().collect::<Vec<_>>()),
            kinds: by_kind.into_iter().map(|(kind, requests)| (kind, KindFigures::new(&requests))).collect(),
            faults,
            overlaps: verdict.overlaps,
            stalled_percent: verdict.stalled_percent,
            violations: &verdict.violations,
        }
    }
}

impl KindFigures {
    fn new(requests: &[&Request<'_>]) -> Self {
        let mut figures = Self { requests: requests.len(), ..Self::default() };
        for request in requests {
            match request.outcome {
                Outcome::Granted => figures.granted += 1,
                Outcome::Busy => figures.busy += 1,
                Outcome::Cancelled => figures.cancelled += 1,
                Outcome::Unfinished => figures.unfinished += 1,
                Outcome::Failed(error) => {
                    figures.failed += 1;
                    *figures.errors.entry(without_numbers(error)).or_default() += 1;
                }
            }
            if let Some((_, reason)) = request.lost {
                *figures.lost.entry(without_numbers(reason)).or_default() += 1;
            }
        }
        let granted = || requests.iter().filter(|request| request.outcome == Outcome::Granted);
        figures.wait_us = Percentiles::of(granted().map(|request| request.ended - request.began));
        figures.hold_us =
            Percentiles::of(granted().filter_map(|request| Some(request.held_until? - request.ended)));
        figures
    }

    pub(super) fn lost_count(&self) -> usize {
        self.lost.values().sum()
    }
}

impl Percentiles {
    /// Returns `None` without values.
    fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<_> = values.collect();
        values.sort_unstable();
        let max = *values.last()?;
        // The smallest value that so many percent do not exceed.
        let at = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
        Some(Self { p10: at(10), p50: at(50), p90: at(90), p99: at(99), max })
    }
}

/// The name of a kind, as the history has it.
pub(super) fn kind_name(kind: LockKind) -> String {
    let name = serde_json::to_value(kind).ok();
    name.as_ref().and_then(|name| name.as_str()).unwrap_or("unknown").to_owned()
}

/// Replaces numbers, so that texts that differ in a number are counted together.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        let is_inside = out.ends_with('…');
        match character {
            '0'..='9' | '.' if is_inside => {}
            '0'..='9' => out.push('…'),
            _ => out.push(character),
        }
    }
    out
}
