//! Servers that die, move and come back, while locks are taken.

mod cluster;
mod demotion;
mod history;
mod migration;
mod minority;
mod sentinel;
mod team;
mod woken_master;

use std::time::Duration;

use libtest_mimic::Trial;
use redis::AsyncCommands;
use turnlock_testkit::{ClusterSet, RedisServer, SentinelSet, ServerProgram, trial};

use history::{Outcome, Turn, now, overlaps};
use team::Team;

use crate::{CaseFuture, revoked};

pub(crate) use team::work;

/// How long ten rounds may take.
const LIMIT: Duration = Duration::from_secs(400);

/// How often a server is killed, or a slot moved.
const ROUNDS: usize = 10;

/// A case, and why it cannot run here.
type ShapeCase = (&'static str, fn() -> Option<String>, fn() -> CaseFuture);

/// Names an `async fn()` as a case of a shape.
macro_rules! on {
    ($shape:ty: $($module:ident::$case:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($case)), <$shape>::missing, || Box::pin($module::$case()))),*]
    };
}

const CASES: [&[ShapeCase]; 2] = [
    on![SentinelSet:
        sentinel::no_turn_is_lost_in_ten_fail_overs,
        sentinel::what_is_held_and_waited_for_goes_on,
        sentinel::wrong_addresses_are_told_at_once,
        woken_master::a_client_that_knows_better_never_goes_back,
        woken_master::a_long_fail_over_leads_nobody_back,
        woken_master::a_client_that_knows_nothing_is_kept_from_a_second_grant,
        minority::sentinels_without_a_majority_lead_nobody_to_the_old_master,
    ],
    on![ClusterSet:
        cluster::no_turn_is_lost_in_ten_promotions,
        cluster::what_is_held_and_waited_for_goes_on,
        cluster::the_word_of_a_deposed_node_does_not_count,
        cluster::names_that_fall_apart_are_refused,
        cluster::wrong_addresses_are_told_at_once,
        migration::turns_go_on_while_a_slot_moves,
        migration::a_half_moved_lock_is_left_alone,
        revoked::a_hold_that_is_denied_in_a_cluster_costs_no_other,
    ],
];

pub(crate) fn trials() -> Vec<Trial> {
    let trial =
        |(name, missing, case): &ShapeCase| trial(&format!("fail_over::{name}"), missing(), LIMIT, *case);
    let mut trials: Vec<_> = CASES.iter().flat_map(|cases| cases.iter()).map(trial).collect();
    for program in ServerProgram::ALL {
        trials.extend(demotion::CASES.map(|(name, case)| {
            let title = format!("fail_over::{}::demotion::{name}", program.name());
            turnlock_testkit::trial(&title, program.missing(), LIMIT, move || case(program))
        }));
    }
    trials
}

/// Two teams on one store: one that asks replicas to acknowledge its turns, and one that does not.
struct Teams {
    counter: RedisServer,
    safe: Team,
    quick: Team,
}

impl Teams {
    async fn start(url: &str, replicas: u32, safe: &str, quick: &str) -> Self {
        history::check_the_checker();
        let counter = RedisServer::start().await;
        let safe = Team::start(url, &counter, safe, replicas);
        let quick = Team::start(url, &counter, quick, 0);
        let teams = Self { counter, safe, quick };
        teams.take_turns_within(Duration::from_secs(20)).await;
        teams
    }

    /// Waits until both have taken a turn from now on.
    async fn take_turns_within(&self, limit: Duration) {
        let now = now();
        tokio::join!(self.safe.takes_a_turn_after(now, limit), self.quick.takes_a_turn_after(now, limit));
    }

    /// Ends the work. Of those who asked replicas, no two had a turn at once and no increment is lost; of the others, who
    /// was not alone was told so.
    async fn check(self, safe: &str, quick: &str) {
        let (safe_turns, quick_turns) = (self.safe.stop().await, self.quick.stop().await);
        let mut plain = self.counter.client().await;
        let mut count = async |key: &str| -> usize { plain.get(key).await.expect("a number") };
        let counted = |turns: &[Turn]| turns.iter().filter(|turn| turn.counted).count();
        let report = |turns: &[Turn], count: usize| {
            let not_kept = turns.iter().filter(|turn| turn.outcome != Outcome::Kept).count();
            let lost = counted(turns).abs_diff(count);
            format!(
                "{} turns, {} overlaps, {lost} increments lost, {not_kept} told",
                turns.len(),
                overlaps(turns).len()
            )
        };
        let (safe_count, quick_count) = (count(safe).await, count(quick).await);
        println!("with replicas: {}", report(&safe_turns, safe_count));
        println!("without: {}", report(&quick_turns, quick_count));
        assert_eq!(overlaps(&safe_turns), [], "two at once, although replicas were asked");
        assert_eq!(counted(&safe_turns), safe_count, "increments were lost, although replicas were asked");
        for (first, second) in overlaps(&quick_turns) {
            assert_ne!(first.outcome, Outcome::Kept, "{first:?} was not told of {second:?}");
        }
    }
}
