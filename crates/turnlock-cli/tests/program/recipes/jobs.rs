//! Recipes with `turnlock run`.

use std::time::Instant;

use turnlock_testkit::eventually;

use super::recipe::{Recipe, env_of, exec_start, setting, texts};
use crate::fixture::{Fixture, ms};
use crate::program::Program;

/// The period of the recipes, and a shorter one for tests.
const PERIOD: &str = "50m";
const SHORT_PERIOD: &str = "8s";
const SHORT_PERIOD_MS: u64 = 8_000;

/// Checks that one of several machines runs the job in a period, and one in the next. `start` starts the job of a machine.
async fn runs_once_per_period(recipe: &Recipe, start: impl Fn(usize) -> Program) {
    recipe.stand_in("report.sh", "sleep 0.2");
    let begin = Instant::now();
    let programs: Vec<_> = (0..5).map(&start).collect();
    for program in programs {
        let output = program.output().await;
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "cron would mail this");
    }
    // A machine whose clock is late, after the job has ended.
    assert_eq!(start(8).finish().await, (0, String::new()));
    let is_over = begin.elapsed() >= ms(SHORT_PERIOD_MS);
    let ran = recipe.lines("ran");
    assert!(ran.len() == 1 || is_over && ran.len() == 2, "one machine runs the job: {ran:?}");
    // The next period.
    let second = async || {
        assert_eq!(start(9).finish().await, (0, String::new()));
        recipe.lines("ran").last().is_some_and(|who| who == "9")
    };
    eventually("the job runs in the next period", ms(30_000), second).await;
}

pub(super) async fn one_of_many_crontabs_runs_the_job_of_a_period(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Cron: ").await;
    let crontab = recipe.block("cron", PERIOD).replace(PERIOD, SHORT_PERIOD);
    let [variable, job] = &crontab.lines().collect::<Vec<_>>()[..] else { panic!("{crontab}") };
    let variable = variable.split_once('=').unwrap();
    let mut fields = job.split_ascii_whitespace();
    let schedule: Vec<_> = fields.by_ref().take(6).collect();
    assert_eq!(schedule, ["0", "*", "*", "*", "*", "app"], "the time and the user");
    let command: Vec<_> = fields.collect();
    runs_once_per_period(&recipe, |who| recipe.shell("sh", &command.join(" "), &[variable], who)).await;
}

pub(super) async fn two_jobs_under_one_lock_have_metrics(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Cron, with metrics").await;
    recipe.stand_in("dump.sh", "sleep 0.1");
    recipe.stand_in("vacuum.sh", "exit 3");
    let directory = recipe.file("");
    let crontab =
        recipe.block("cron", "database").replace("/var/lib/node_exporter/", directory.to_str().unwrap());
    let store = ("TURNLOCK_STORE", recipe.fixture.url.as_str());
    let commands = crontab.lines().map(|line| line.splitn(8, ' ').last().unwrap());
    let jobs: Vec<_> = commands.map(|command| recipe.shell("sh", command, &[store], 0)).collect();
    let mut codes = Vec::new();
    for job in jobs {
        codes.push(job.code().await);
    }
    assert_eq!(codes, [0, 3]);
    assert_eq!((recipe.lines("ran").len(), recipe.lines("overlaps").len()), (2, 0));
    for (label, code) in [("dump", 0), ("vacuum", 3)] {
        let line = format!("turnlock_run_exit_code{{name=\"database\",label=\"{label}\"}} {code}");
        let lines = recipe.lines(&format!("{label}.prom"));
        assert!(lines.contains(&line), "{lines:?}");
    }
}

pub(super) async fn one_of_many_timers_runs_the_job_of_a_period(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "systemd timer: ").await;
    assert_eq!(setting(&recipe.block("ini", "report.timer"), "OnCalendar"), "hourly");
    let unit = recipe.block("ini", "report.service").replace(PERIOD, SHORT_PERIOD);
    let variable = setting(&unit, "Environment").split_once('=').unwrap();
    runs_once_per_period(&recipe, |who| recipe.argv(&exec_start(&unit), &[variable], who)).await;
    // The unit fails with the exit code of the job.
    eventually("the period ends", ms(30_000), async || {
        recipe.stand_in("report.sh", "exit 5");
        recipe.argv(&exec_start(&unit), &[variable], 0).code().await == 5
    })
    .await;
}

pub(super) async fn one_of_many_cron_jobs_runs_the_job_of_a_period(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Kubernetes CronJob: ").await;
    let manifest = recipe.yaml("kind: CronJob");
    let container = &manifest["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0];
    let shorter = |word: String| if word == PERIOD { SHORT_PERIOD.to_owned() } else { word };
    let argv: Vec<_> = texts(&container["command"]).into_iter().map(shorter).collect();
    runs_once_per_period(&recipe, |who| recipe.argv(&argv, &env_of(container), who)).await;
}

pub(super) async fn deployments_run_one_at_a_time_in_order(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "CI: ").await;
    recipe.stand_in("deploy.sh", "until [ -e go ]; do sleep 0.02; done");
    let pipeline = recipe.yaml("deploy:production");
    let script = texts(&pipeline["deploy"]["script"]).join("\n");
    let store = pipeline["deploy"]["variables"]["TURNLOCK_STORE"].as_str().unwrap();
    let lock = recipe.fixture.client().await.fair_lock("deploy:production");
    let mut jobs = Vec::new();
    for who in 0..5 {
        let url = format!("https://ci.internal/pipelines/{who}");
        jobs.push(recipe.shell("sh", &script, &[("TURNLOCK_STORE", store), ("CI_PIPELINE_URL", &url)], who));
        let arrived = async || {
            let found = lock.inspect().await.unwrap();
            found.holders.len() == 1 && found.queue.len() == who
        };
        eventually("the job has arrived", ms(30_000), arrived).await;
    }
    let show = "turnlock show deploy:production";
    let output = recipe.shell("sh", show, &[("TURNLOCK_STORE", store)], 9).output().await;
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("https://ci.internal/pipelines/0"), "{shown}");
    std::fs::write(recipe.file("go"), "").unwrap();
    for job in jobs {
        assert_eq!(job.finish().await, (0, String::new()));
    }
    assert_eq!(recipe.lines("ran"), ["0", "1", "2", "3", "4"], "in the order of arrival");
    assert_eq!(recipe.lines("overlaps"), [""; 0]);
}

pub(super) async fn one_of_ten_pods_migrates(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Database migration ").await;
    let script = recipe.block("sh", "psql");
    // The first migration fails.
    recipe.stand_in(
        "psql",
        r#"case "$*" in
            "-tAc SELECT max(version) FROM migrations") cat version 2>/dev/null || echo 41 ;;
            "-f migrate-to-42.sql") echo $WHO >>migrated; sleep 0.2; [ -e broken ] && exit 3; echo 42 >version ;;
            *) echo "unexpected: $*" >&2; exit 2 ;;
        esac"#,
    );
    recipe.program("server", "#!/bin/sh\ncat version >>served\n");
    let store = ("TURNLOCK_STORE", recipe.fixture.url.as_str());
    std::fs::write(recipe.file("broken"), "").unwrap();
    assert_eq!(recipe.shell("sh", &script, &[store], 100).code().await, 3, "the code of psql");
    std::fs::remove_file(recipe.file("broken")).unwrap();
    assert_eq!(recipe.lines("served"), [""; 0], "a pod that could not migrate does not start its server");
    let pods: Vec<_> = (0..10).map(|who| recipe.shell("sh", &script, &[store], who)).collect();
    for pod in pods {
        assert_eq!(pod.finish().await, (0, String::new()));
    }
    assert_eq!(recipe.lines("migrated").len(), 2, "one that failed, and one of ten pods");
    assert_eq!(recipe.lines("served"), ["42"; 10], "all servers start after the migration");
    assert_eq!(recipe.lines("overlaps"), [""; 0]);
}

pub(super) async fn hosts_restart_one_at_a_time(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Ansible: ").await;
    recipe.stand_in("restart.sh", "sleep 0.1");
    let play = recipe.yaml("ansible.builtin.command");
    let task = &play[0]["tasks"][0];
    let argv = texts(&task["ansible.builtin.command"]["argv"]);
    let store = ("TURNLOCK_STORE", task["environment"]["TURNLOCK_STORE"].as_str().unwrap());
    let hosts: Vec<_> = (0..5).map(|who| recipe.argv(&argv, &[store], who)).collect();
    for host in hosts {
        assert_eq!(host.finish().await, (0, String::new()));
    }
    assert_eq!((recipe.lines("ran").len(), recipe.lines("overlaps").len()), (5, 0));
    // A second run of a play is refused.
    let line = recipe.block("sh", "ansible-playbook");
    recipe.program("ansible-playbook", "#!/bin/sh\necho \"$1\"\nexec cat\n");
    let user = ("USER", "ada");
    let mut first = recipe.shell("sh", &line, &[store, user], 0);
    first.expect("site.yml").await;
    let output = recipe.shell("sh", &line, &[store, user], 1).output().await;
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
    assert_eq!(first.code().await, 0);
}
