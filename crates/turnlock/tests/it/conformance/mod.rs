//! One set of cases for every store.

mod ending;
pub(crate) mod exclusion;
mod holding;
mod input;
pub(crate) mod keeping;
mod majority;
mod multi;
mod running;
mod threads;
mod waiting;

use crate::Case;
use crate::rig::Kind;

/// The cases that a plain lock has no part in, since it cannot be held twice.
const REENTRY: &[&str] = &[
    "a_reentry_counts_on_the_store_and_ends_in_any_order",
    "a_reentry_begins_nothing",
    "an_owner_gets_again_what_it_holds",
    "an_owner_whose_tasks_come_and_go_never_fails",
    "tasks_of_one_owner_do_not_wait_for_each_other",
    "one_of_several_guards_cannot_be_kept",
    "an_inner_renewal_keeps_a_fixed_lease_alive",
    "no_reentry_or_renewal_shortens_a_lease",
    "a_lease_is_no_longer_than_the_guards_that_remain_need",
    "a_waiter_hears_of_a_lease_that_is_shortened",
    "lost_data_is_told",
    "a_thread_holds_twice_and_others_wait",
    "what_a_thread_keeps_it_unlocks_later",
    "the_rest_of_the_blocking_interface",
    "a_thread_gets_again_what_it_holds",
    "a_thread_gets_its_red_lock_again",
];

/// All cases that apply to a kind of lock.
pub(crate) fn cases(kind: Kind) -> impl Iterator<Item = Case> {
    [
        exclusion::CASES,
        holding::CASES,
        waiting::CASES,
        ending::CASES,
        keeping::CASES,
        running::CASES,
        input::CASES,
        threads::CASES,
        multi::CASES,
        majority::CASES,
    ]
    .into_iter()
    .flatten()
    .copied()
    .filter(move |(name, _)| kind != Kind::Plain || !REENTRY.contains(name))
}
