//! What every exclusive lock guarantees, and what groups of locks do.

mod blocking;
mod cancellation;
pub mod exclusion;
mod holding;
mod input;
mod multi_lock;
mod red_lock;
mod release;
mod run;
pub(super) mod unlock_after;
mod waiting;

use super::{Case, Kind};

/// The cases that do not apply to a plain lock, which is not reentrant.
const REENTRY: &[&str] = &[
    "reentries_are_counted_in_the_store_and_released_in_any_order",
    "a_reentry_never_creates_a_hold",
    "an_owner_can_lock_again_what_it_holds",
    "concurrent_tasks_of_one_owner_never_fail",
    "tasks_of_one_owner_do_not_wait_for_each_other",
    "unlock_after_needs_the_last_guard",
    "a_renewed_reentry_extends_a_fixed_lease",
    "no_reentry_or_renewal_shortens_a_lease",
    "a_lease_is_no_longer_than_the_remaining_guards_need",
    "a_waiter_learns_of_a_shortened_lease",
    "lost_data_is_reported",
    "a_thread_can_lock_twice_while_others_wait",
    "a_thread_unlocks_a_detached_hold_later",
    "the_rest_of_the_blocking_interface",
    "a_thread_can_lock_its_multi_lock_again",
    "a_thread_can_lock_its_red_lock_again",
    "a_cancelled_reentry_is_undone",
];

/// Returns all cases that apply to a kind of lock.
pub fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    [
        exclusion::CASES,
        holding::CASES,
        waiting::CASES,
        release::CASES,
        unlock_after::CASES,
        run::CASES,
        input::CASES,
        blocking::CASES,
        multi_lock::CASES,
        red_lock::CASES,
        cancellation::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
    .filter(move |case| kind != Kind::Plain || !REENTRY.contains(&case.name))
}
