//! Recipes with `turnlock hold`.

use std::os::unix::net::UnixDatagram;

use rustix::process::{Pid, Signal, kill_process};
use turnlock_testkit::{eventually, within};
use yaml_rust2::Yaml;

use super::recipe::{Recipe, env_of, exec_start, setting, texts};
use crate::fixture::{Fixture, ms};
use crate::program::Program;

/// A pod of the sidecar recipe: its sidecar, and its probes.
struct Pod<'a> {
    recipe: &'a Recipe,
    spec: &'a Yaml,
    /// The directory of its volume.
    volume: String,
    sidecar: Program,
}

impl<'a> Pod<'a> {
    fn start(recipe: &'a Recipe, spec: &'a Yaml, who: usize) -> Self {
        let volume = format!("pod-{who}/");
        std::fs::create_dir_all(recipe.file(&volume)).unwrap();
        let sidecar = &spec["initContainers"][0];
        let command = texts(&sidecar["command"]);
        let command: Vec<_> = command.iter().map(|word| word.replace("/lock/", &volume)).collect();
        let sidecar = recipe.argv(&command, &env_of(sidecar), who);
        Self { recipe, spec, volume, sidecar }
    }

    /// Starts the main container.
    fn start_main(&self, who: usize) -> Program {
        let command = texts(&self.spec["containers"][0]["command"]);
        let command: Vec<_> = command.iter().map(|word| word.replace("/lock/", &self.volume)).collect();
        self.recipe.argv(&command, &[], who)
    }

    /// Kills the sidecar with all its processes, as the kernel does when the first process of a container is killed.
    fn kill_sidecar(&self) {
        let sidecar = self.sidecar.pid.as_raw_nonzero();
        self.sidecar.signal(Signal::STOP);
        let children = std::fs::read_to_string(format!("/proc/{sidecar}/task/{sidecar}/children")).unwrap();
        self.sidecar.signal(Signal::KILL);
        for child in children.split_ascii_whitespace() {
            // A child may have ended.
            let _ = kill_process(Pid::from_raw(child.parse().unwrap()).unwrap(), Signal::KILL);
        }
    }

    /// Runs the probe of a container.
    async fn probe(&self, container: &Yaml, probe: &str) -> bool {
        let command = texts(&container[probe]["exec"]["command"]);
        let command: Vec<_> = command.iter().map(|word| word.replace("/lock/", &self.volume)).collect();
        self.recipe.argv(&command, &[], 0).code().await == 0
    }

    async fn has_started(&self) -> bool {
        self.probe(&self.spec["initContainers"][0], "startupProbe").await
    }

    async fn is_live(&self) -> bool {
        self.probe(&self.spec["containers"][0], "livenessProbe").await
    }
}

pub(super) async fn a_sidecar_keeps_one_pod_active(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "Kubernetes sidecar: ").await;
    let manifest = recipe.yaml("kind: Deployment");
    let spec = &manifest["spec"]["template"]["spec"];
    assert_eq!(spec["initContainers"][0]["restartPolicy"].as_str(), Some("Always"), "a sidecar");
    recipe.program(
        "billing",
        &format!("#!/bin/sh\necho $WHO >>'{}'\necho active\n", recipe.file("active").display()),
    );
    let first = Pod::start(&recipe, spec, 1);
    eventually("the first pod has the lock", ms(30_000), async || first.has_started().await).await;
    let second = Pod::start(&recipe, spec, 2);
    eventually("the first pod is live", ms(30_000), async || first.is_live().await).await;
    assert!(!second.has_started().await);
    // The first pod loses the lock: its liveness probe fails, and the sidecar exits with 79.
    let lock = recipe.fixture.client().await.lock("billing");
    assert!(lock.force_unlock().await.unwrap());
    eventually("the second pod has the lock", ms(30_000), async || second.has_started().await).await;
    eventually("the first pod is not live", ms(60_000), async || !first.is_live().await).await;
    assert_eq!(first.sidecar.output_with_open_stdin().await.status.code(), Some(79));
    // Its sidecar is restarted, and waits. The second pod is deleted.
    let first = Pod::start(&recipe, spec, 1);
    let mut main = first.start_main(1);
    eventually("the second pod is live", ms(30_000), async || second.is_live().await).await;
    assert!(!first.has_started().await);
    assert_eq!(recipe.lines("active"), [""; 0], "a restarted container waits for the lock");
    second.sidecar.signal(Signal::TERM);
    eventually("the first pod has the lock again", ms(30_000), async || first.has_started().await).await;
    main.expect("active").await;
    assert_eq!(second.sidecar.output_with_open_stdin().await.status.code(), Some(0));
    assert!(!recipe.file("pod-2/held").exists(), "the second pod is not live");
    // The sidecar is killed: its file stays, and the liveness probe fails before the lease ends.
    first.kill_sidecar();
    assert!(recipe.file("pod-1/held").exists());
    eventually("the first pod is not live", ms(30_000), async || !first.is_live().await).await;
    if recipe.fixture.url.starts_with("redis:") {
        assert!(lock.force_unlock().await.unwrap(), "the lock is free while the pod is live");
    }
    // A restarted sidecar holds the lock, and releases it.
    let first = Pod::start(&recipe, spec, 1);
    eventually("the restarted sidecar has the lock", ms(30_000), async || first.has_started().await).await;
    first.sidecar.signal(Signal::TERM);
    assert_eq!(first.sidecar.output_with_open_stdin().await.status.code(), Some(0));
    assert!(!lock.is_locked().await.unwrap());
}

/// Waits until systemd would be notified.
async fn ready(socket: &UnixDatagram) {
    socket.set_nonblocking(true).unwrap();
    let socket = tokio::net::UnixDatagram::from_std(socket.try_clone().unwrap()).unwrap();
    let mut message = [0; 100];
    let length = within(ms(30_000), "a notification", socket.recv(&mut message)).await.unwrap();
    assert!(message[..length].starts_with(b"READY=1\n"));
}

pub(super) async fn a_bound_service_is_active_on_one_machine(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "systemd: ").await;
    let unit = recipe.block("ini", "Type=notify");
    let (unit_section, service_section) = unit.split_once("[Service]").unwrap();
    // A store that cannot be reached for long does not end the attempts.
    assert_eq!(setting(unit_section, "StartLimitIntervalSec"), "0");
    assert_eq!(
        (setting(service_section, "Restart"), setting(service_section, "RestartSec")),
        ("always", "2s")
    );
    let bound = recipe.block("ini", "# /etc/systemd/system/billing.service");
    assert_eq!(
        (setting(&bound, "BindsTo"), setting(&bound, "After")),
        ("billing-lock.service", "billing-lock.service")
    );
    let store = setting(&unit, "Environment").split_once('=').unwrap();
    let start = |who: usize, flag: &str| {
        let path = recipe.file(&format!("notify-{who}"));
        let socket = UnixDatagram::bind(&path).unwrap();
        // The standard input of a unit is /dev/null.
        let argv = exec_start(&unit).join(" ");
        let variables = [store, ("NOTIFY_SOCKET", path.to_str().unwrap())];
        (recipe.shell("sh", &format!("exec {argv} {flag} </dev/null"), &variables, who), socket)
    };
    let (first, first_socket) = start(1, "");
    ready(&first_socket).await;
    let (mut second, second_socket) = start(2, "--json");
    second.event_named("waiting").await;
    // Stopped on the first machine: the second one is active.
    second_socket.set_nonblocking(true).unwrap();
    assert!(second_socket.recv(&mut [0; 100]).is_err(), "two machines are active");
    first.signal(Signal::TERM);
    assert_eq!(first.finish().await, (0, String::new()));
    ready(&second_socket).await;
    second.signal(Signal::TERM);
    assert_eq!(second.code().await, 0);
}

pub(super) async fn a_script_holds_the_lock_for_some_of_its_steps(fixture: Fixture) {
    let recipe = Recipe::new(fixture, "A script ").await;
    recipe.stand_in(
        "export.sh",
        "sleep 0.1; [ ! -e steal ] || { touch exported; until [ ! -e exported ]; do sleep 0.02; done; }",
    );
    recipe.stand_in("import.sh", "sleep 0.1");
    let script = recipe.block("bash", "coproc");
    let store = ("TURNLOCK_STORE", recipe.fixture.url.as_str());
    let scripts: Vec<_> = (0..4).map(|who| recipe.shell("bash", &script, &[store], who)).collect();
    for script in scripts {
        assert_eq!(script.finish().await, (0, String::new()));
    }
    let ran = recipe.lines("ran");
    assert_eq!((ran.len(), recipe.lines("overlaps").len()), (8, 0), "{ran:?}");
    assert!(ran.chunks(2).all(|steps| steps[0] == steps[1]), "both steps are under one lock: {ran:?}");
    // A script that loses the lock does not continue.
    std::fs::write(recipe.file("steal"), "").unwrap();
    let lost = recipe.shell("bash", &script, &[store], 9);
    eventually("the first step runs", ms(30_000), async || recipe.file("exported").exists()).await;
    let lock = recipe.fixture.client().await.lock("nightly");
    assert!(lock.force_unlock().await.unwrap());
    // The hold detects the loss at its next renewal.
    assert_eq!(code_after_lost_hold(lost, &recipe).await, 79);
    assert_eq!(recipe.lines("ran")[8..], ["9"], "the second step has not run");
}

/// Lets the first step end when the hold has exited, and returns the exit code of the script.
async fn code_after_lost_hold(script: Program, recipe: &Recipe) -> i32 {
    let children = format!("/proc/{0}/task/{0}/children", script.pid.as_raw_nonzero());
    let has_hold = || {
        let pids = std::fs::read_to_string(&children).unwrap_or_default();
        let names = pids
            .split(' ')
            .map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
        names.filter(|name| name == "turnlock\n").count() > 0
    };
    eventually("the hold exits", ms(60_000), async || !has_hold()).await;
    std::fs::remove_file(recipe.file("exported")).unwrap();
    script.code().await
}
