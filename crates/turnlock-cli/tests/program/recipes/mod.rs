//! Runs the recipes of `docs/recipes.md`.

mod jobs;
mod recipe;
mod services;

use jobs::{
    deployments_run_one_at_a_time_in_order, hosts_restart_one_at_a_time,
    one_of_many_cron_jobs_runs_the_job_of_a_period, one_of_many_crontabs_runs_the_job_of_a_period,
    one_of_many_timers_runs_the_job_of_a_period, one_of_ten_pods_migrates,
    two_jobs_under_one_lock_have_metrics,
};
use services::{
    a_bound_service_is_active_on_one_machine, a_script_holds_the_lock_for_some_of_its_steps,
    a_sidecar_keeps_one_pod_active,
};

use crate::fixture::Fixture;
use crate::hold::bash_missing;
use crate::{Case, cases};

/// The headings of the page, in order, each with its case.
const RECIPES: &[(&str, &[Case])] = &[
    ("Cron: once per period on a fleet", cases![one_of_many_crontabs_runs_the_job_of_a_period]),
    ("Cron, with metrics of each run", cases![two_jobs_under_one_lock_have_metrics]),
    ("systemd timer: once per period on a fleet", cases![one_of_many_timers_runs_the_job_of_a_period]),
    ("CI: one deployment at a time", cases![deployments_run_one_at_a_time_in_order]),
    ("Database migration at the start of ten pods", cases![one_of_ten_pods_migrates]),
    (
        "Kubernetes CronJob: once per period on several clusters",
        cases![one_of_many_cron_jobs_runs_the_job_of_a_period],
    ),
    ("Kubernetes sidecar: one active pod", cases![a_sidecar_keeps_one_pod_active]),
    ("systemd: one active machine", cases![a_bound_service_is_active_on_one_machine]),
    ("Ansible: one host at a time", cases![hosts_restart_one_at_a_time]),
];
const BASH_RECIPES: &[(&str, &[Case])] =
    &[("A script that cannot be wrapped", cases![a_script_holds_the_lock_for_some_of_its_steps])];
const COMPLETE: &[Case] = cases![every_recipe_has_a_case];

/// All cases, and why a tool is missing, if it is.
pub(crate) fn cases() -> Vec<(Case, Option<String>)> {
    let of = |recipes: &'static [(&str, &[Case])]| recipes.iter().flat_map(|(_, cases)| *cases);
    let common = of(RECIPES).chain(COMPLETE).map(|case| (*case, None));
    common.chain(of(BASH_RECIPES).map(|case| (*case, bash_missing()))).collect()
}

async fn every_recipe_has_a_case(_: Fixture) {
    let tested: Vec<_> = RECIPES.iter().chain(BASH_RECIPES).map(|(heading, _)| *heading).collect();
    assert_eq!(recipe::headings(), tested);
}
