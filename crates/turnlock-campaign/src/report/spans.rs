//! The requests, holds and faults of a history, each with its start and its end.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use turnlock::LostReason;

use crate::history::{Event, LockInfo, Mode, ProcessState, What};

/// What a history tells, as spans of time in microseconds.
#[derive(Debug, Default)]
pub(super) struct Spans<'a> {
    /// The seed and the shape, if the history has its first event.
    pub(super) run: Option<(u64, &'a str)>,
    pub(super) promises_exclusion: bool,
    pub(super) promises_rising_tokens: bool,
    pub(super) locks: &'a [LockInfo],
    /// In the order of their start.
    pub(super) requests: Vec<Request<'a>>,
    pub(super) faults: Vec<Fault<'a>>,
    /// When each process was stopped.
    pub(super) processes: BTreeMap<u32, Vec<(u64, u64)>>,
    /// When processes were killed.
    pub(super) kills: Vec<(u32, u64)>,
    pub(super) healed: Option<u64>,
    pub(super) end: u64,
}

/// One acquire, and the hold that it starts.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) op: u64,
    pub(super) process: u32,
    /// The index of the lock.
    pub(super) lock: usize,
    pub(super) mode: Mode,
    pub(super) began: u64,
    /// When the outcome was known. If there is none, the end of the process or of the history.
    pub(super) ended: u64,
    pub(super) outcome: Outcome<'a>,
    /// The end of the hold.
    pub(super) held_until: Option<u64>,
    pub(super) lost: Option<(u64, &'a str)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    Granted,
    Busy,
    Cancelled,
    Failed(&'a str),
    Unfinished,
}

/// A fault, from its start to its end.
#[derive(Debug)]
pub(super) struct Fault<'a> {
    pub(super) name: &'a str,
    pub(super) detail: &'a str,
    pub(super) from: u64,
    pub(super) until: u64,
}

impl Request<'_> {
    /// When the lock was lost to a fault. The end of a fixed lease is none.
    pub(super) fn lost_to_fault(&self) -> Option<u64> {
        let expired = LostReason::Expired.to_string();
        self.lost.filter(|(_, reason)| *reason != expired).map(|(at, _)| at)
    }

    /// The last moment of the wait or of the hold.
    pub(super) fn last(&self) -> u64 {
        let told = self.lost.map_or(0, |(at, _)| at);
        self.held_until.unwrap_or(self.ended).max(told)
    }
}

/// The spans that have no end yet.
#[derive(Default)]
struct Open {
    /// The indices of requests, by their number.
    by_op: HashMap<u64, usize>,
    requests: BTreeSet<usize>,
    faults: Vec<usize>,
    stops: BTreeMap<u32, u64>,
}

impl<'a> Spans<'a> {
    pub(super) fn new(events: &'a [Event]) -> Self {
        let mut spans = Self { end: events.last().map_or(0, |event| event.t), ..Self::default() };
        let mut open = Open::default();
        for event in events {
            if event.process > 0 {
                spans.processes.entry(event.process).or_default();
            }
            spans.add(event, &mut open);
        }
        let end = spans.end;
        for index in std::mem::take(&mut open.requests) {
            spans.end_request(index, end);
        }
        for (process, since) in open.stops {
            spans.processes.entry(process).or_default().push((since, end));
        }
        for index in open.faults {
            spans.faults[index].until = spans.healed.unwrap_or(end).max(spans.faults[index].from);
        }
        spans
    }

    pub(super) fn request(&self, op: u64) -> Option<&Request<'a>> {
        self.requests.iter().find(|request| request.op == op)
    }

    fn add(&mut self, event: &'a Event, open: &mut Open) {
        let (t, process) = (event.t, event.process);
        match &event.what {
            What::Run { seed, shape, locks, promises, .. } => {
                self.run = Some((*seed, shape));
                self.promises_exclusion = promises.exclusion;
                self.promises_rising_tokens = promises.rising_tokens;
                self.locks = locks;
            }
            What::Acquire { op, lock, mode, .. } if *lock < self.locks.len() => {
                let (op, lock, mode, outcome) = (*op, *lock, *mode, Outcome::Unfinished);
                open.by_op.insert(op, self.requests.len());
                open.requests.insert(self.requests.len());
                let (held_until, lost) = (None, None);
                let request =
                    Request { op, process, lock, mode, began: t, ended: t, outcome, held_until, lost };
                self.requests.push(request);
            }
            What::Granted { op, .. } => self.decide(*op, t, Outcome::Granted, open),
            What::Busy { op } => self.decide(*op, t, Outcome::Busy, open),
            What::Cancelled { op } => self.decide(*op, t, Outcome::Cancelled, open),
            What::Failed { op, error } => self.decide(*op, t, Outcome::Failed(error), open),
            What::Lost { op, reason, valid_until } => {
                if let Some(index) = open.by_op.get(op) {
                    self.requests[*index].lost = Some((t, reason));
                    self.end_hold(*index, t.min(*valid_until), open);
                }
            }
            What::Release { op, valid_until, .. } => {
                if let Some(index) = open.by_op.get(op) {
                    self.end_hold(*index, t.min(*valid_until), open);
                }
            }
            What::Process { is: ProcessState::Stopped } => _ = open.stops.insert(process, t),
            What::Process { is: ProcessState::Continued } => _ = self.end_stop(process, t, open),
            What::Process { is: ProcessState::Killed } => {
                self.kills.push((process, t));
                // One that was stopped did nothing since.
                let end = self.end_stop(process, t, open).unwrap_or(t);
                let of_process = |index: &usize| self.requests[*index].process == process;
                let indices: Vec<_> = open.requests.iter().copied().filter(of_process).collect();
                for index in indices {
                    open.requests.remove(&index);
                    self.end_request(index, end);
                }
            }
            What::Fault { fault, detail, ends: false } => {
                open.faults.push(self.faults.len());
                self.faults.push(Fault { name: fault, detail, from: t, until: t });
            }
            What::Fault { fault, detail, ends: true } => {
                let is_it = |index: &usize| {
                    let begun = &self.faults[*index];
                    begun.name == fault
                        && (detail.is_empty() || begun.detail.split(", ").next() == Some(detail))
                };
                if let Some(position) = open.faults.iter().position(is_it) {
                    self.faults[open.faults.remove(position)].until = t;
                }
            }
            What::Healed => self.healed = Some(t),
            _ => {}
        }
    }

    /// The outcome of a request. A granted one stays open until its hold ends.
    fn decide(&mut self, op: u64, t: u64, outcome: Outcome<'a>, open: &mut Open) {
        let Some(index) = open.by_op.get(&op) else { return };
        let request = &mut self.requests[*index];
        (request.ended, request.outcome) = (t, outcome);
        if outcome != Outcome::Granted {
            open.requests.remove(index);
        }
    }

    /// Ends a hold. The first end counts.
    fn end_hold(&mut self, index: usize, until: u64, open: &mut Open) {
        if open.requests.remove(&index) {
            self.end_request(index, until);
        }
    }

    fn end_request(&mut self, index: usize, until: u64) {
        let request = &mut self.requests[index];
        if request.outcome == Outcome::Granted {
            request.held_until = Some(until.max(request.ended));
        } else {
            request.ended = until.max(request.began);
        }
    }

    /// Ends the stop of a process. Returns its start.
    fn end_stop(&mut self, process: u32, t: u64, open: &mut Open) -> Option<u64> {
        let since = open.stops.remove(&process)?;
        self.processes.entry(process).or_default().push((since, t));
        Some(since)
    }
}
