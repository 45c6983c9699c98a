//! The state of one client: its holds, its waiters, and what it remembers.
//!
//! Nothing here sends a step of a lock; that is done by the modules above it, which share this state as
//! [`Engine`](super::engine::Engine). Only the heartbeats and the client record talk to the store themselves.
//!
//! | module | what it keeps |
//! |---|---|
//! | [`hold`], [`leases`], [`step_turn`] | a hold, until when it is valid, the leases of its guards, and whose step is under way |
//! | [`wait_queues`], [`lock_queue`], [`overview`] | the local holds and waiters of each lock, and of all |
//! | [`watchdog`] | which hold is renewed or checked when |
//! | [`heartbeat`], [`fair_waiter`] | the waiters in the fair queues of the store, and their heartbeats |
//! | [`client_record`] | what the client publishes about itself |
//! | [`hold_durations`] | how long locks were held lately |
//! | [`history`] | the highest fencing tokens, and the latest releases |
//! | [`outage_log`] | the outage of the store that is under way, for the log |
//! | [`deadline`] | a timer that needs no runtime |
//! | [`span`] | the spans of acquires, holds and releases, for `tracing` |
//! | [`call_site`], [`caller`] | the code that waits for a lock or holds it, and what it waits for |

mod call_site;
mod caller;
mod client_record;
mod deadline;
mod fair_waiter;
pub(super) mod heartbeat;
mod history;
mod hold;
mod hold_durations;
mod leases;
mod lock_queue;
mod outage_log;
mod overview;
mod span;
mod step_turn;
mod wait_queues;
mod watchdog;

pub(crate) use call_site::{CallLocation, CallSite};
pub(crate) use caller::Caller;
pub(crate) use client_record::ClientRecord;
pub(crate) use deadline::LONGEST_SLEEP;
pub(crate) use fair_waiter::{FairWaiter, FoundOutcome, IgnoredOutcome, PassedOn};
pub(crate) use heartbeat::{HeartbeatEntry, Heartbeats};
pub(crate) use history::{RecentReleases, Tokens};
pub(crate) use hold::Hold;
pub(crate) use leases::LeaseMode;
pub(crate) use lock_queue::{FrontState, Join, QueueView, Wakeup};
pub(crate) use outage_log::OutageLog;
pub(crate) use overview::{MAX_LINKED, OldestHolds};
pub(crate) use span::{AcquireSpan, HoldEnd, HoldSpan, ReleaseSpan};
pub(crate) use step_turn::StepTurn;
pub(crate) use wait_queues::{WaitQueues, Waiter};
pub(crate) use watchdog::{RenewalUnderWay, Watchdog, retry_after};

#[cfg(test)]
#[path = "tests/schedules.rs"]
mod schedules;
