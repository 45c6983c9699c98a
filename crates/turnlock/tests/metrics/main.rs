//! The metrics of a client, as a Prometheus exporter shows them.
//!
//! The recorder is that of the whole process, so each case has a group of its own, or runs in a process of its own.

#![expect(clippy::float_cmp, reason = "counts are whole numbers")]

mod locks;
#[path = "../../examples/monitoring.rs"]
#[allow(dead_code, unreachable_pub, reason = "its `main` is not called")]
mod monitoring;
mod monitoring_files;
mod prometheus;
mod recorder;
mod stores;

use std::time::Duration;

use libtest_mimic::Arguments;
use turnlock::{Builder, Client};
use turnlock_testkit::{ClusterSet, RedisServer, trial};

const LIMIT: Duration = Duration::from_secs(120);

fn main() {
    recorder::install();
    let redis = RedisServer::missing();
    let mut trials = Vec::new();
    macro_rules! cases {
        ($missing:expr; $($module:ident::$case:ident)*) => {
            $(trials.push(trial(stringify!($case), $missing, LIMIT, $module::$case));)*
        };
    }
    cases! {
        None;
        locks::acquisitions_are_counted_by_outcome
        locks::waits_and_holds_are_timed
        locks::gauges_return_to_zero
        locks::gauges_return_to_zero_after_contention
        locks::losses_are_counted_by_reason
        locks::waits_for_a_latch_are_counted
        locks::the_age_of_the_oldest_hold_is_shown
        locks::the_number_of_groups_is_bounded
        locks::acquires_of_an_owner_are_counted_once
        locks::acquires_of_a_thread_are_counted
        locks::a_held_lock_is_used_without_a_look_up
        locks::every_hand_over_is_counted_and_some_are_timed
        stores::calls_to_a_file_are_counted
        stores::a_batch_with_a_failed_part_counts_as_failed
        monitoring_files::every_metric_of_the_files_exists_and_is_shown
        monitoring_files::the_dashboard_is_well_formed
        monitoring_files::every_warning_is_in_the_manual
    }
    cases! {
        prometheus::missing("promtool");
        monitoring_files::the_alert_rules_pass_their_tests
    }
    cases! {
        prometheus::missing("prometheus");
        prometheus::the_panels_show_the_example_service
    }
    cases! {
        redis.clone();
        stores::an_outage_is_visible
        stores::calls_to_a_server_are_counted
        stores::losses_in_an_outage_are_counted_by_reason
        stores::acknowledgements_of_replicas_are_counted
        stores::all_metrics_are_as_listed_and_contain_no_password
    }
    cases! {
        ClusterSet::missing();
        stores::calls_to_a_cluster_are_counted
    }
    let mut arguments = Arguments::from_args();
    // They mostly wait.
    arguments.test_threads.get_or_insert(8);
    turnlock_testkit::run(&arguments, trials).exit();
}

/// Runs a case in a process of its own: it reads metrics that other cases change too.
async fn alone(case: &str, body: impl AsyncFnOnce()) {
    const ALONE: &str = "TURNLOCK_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return Box::pin(body()).await;
    }
    let program = std::env::current_exe().expect("the path of this test");
    let mut process = tokio::process::Command::new(program);
    let output = process.args(["--exact", case]).env(ALONE, "1").kill_on_drop(true).output();
    let output = output.await.expect("a process");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains(" 1 passed"), "{text}");
}

/// Returns the options of a client whose locks are all in this group.
fn in_group(group: &'static str) -> Builder {
    Client::builder().metrics_group(move |_| Some(group))
}
