use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::{Kind, Lease, LockName, OwnerId};

use super::probe_run::{FailedStep, ProbeRun};
use super::rights::{ProbeOutcome, RuleTemplate};
use super::server_facts::ServerFacts;
use super::{ProbeError, ServerProbe};
use crate::acl::Primitive;
use crate::engine::Shared;

/// The shortest lease of a test lock. It is released at once; if that is denied, its lease ends soon.
const LEASE: Duration = Duration::from_secs(5);

/// Tests every primitive on names of its own, and deletes what it wrote.
pub(super) struct Probe {
    pub(super) shared: Arc<Shared>,
    server_probes: Vec<Arc<dyn ServerProbe>>,
    /// The beginning of the test names, if the caller chose one.
    name_prefix: Option<String>,
    pub(super) limit: Duration,
    pub(super) lease: Lease,
}

impl Probe {
    pub(super) fn new(
        shared: &Arc<Shared>,
        server_probes: &[Arc<dyn ServerProbe>],
        name_prefix: Option<&str>,
    ) -> Self {
        let limit = shared.settings.usual_limit();
        Self {
            shared: Arc::clone(shared),
            server_probes: server_probes.to_vec(),
            name_prefix: name_prefix.map(str::to_owned),
            limit,
            lease: Lease::new(LEASE.max(limit * 4)).unwrap_or(Lease::WATCHDOG),
        }
    }

    /// Returns what is needed to print the rule to grant.
    pub(super) fn rule_template(&self, servers: &[ServerFacts]) -> RuleTemplate {
        let is_cluster = |facts: &ServerFacts| {
            facts.info.as_ref().is_ok_and(|info| info.get("cluster_enabled") == Some("1"))
        };
        RuleTemplate {
            names: format!(
                "{}{}*",
                self.shared.settings.key_prefix,
                self.name_prefix.as_deref().unwrap_or_default()
            ),
            is_cluster: servers.iter().any(is_cluster),
            needs_replicas: self.shared.settings.replicas > 0,
            has_own_names: self.name_prefix.is_some(),
        }
    }

    pub(super) async fn run(self: Arc<Self>) -> Vec<(Primitive, ProbeOutcome)> {
        let outcomes = Primitive::ALL.map(|primitive| Arc::clone(&self).test(primitive));
        join_all(outcomes).await
    }

    async fn test(self: Arc<Self>, primitive: Primitive) -> (Primitive, ProbeOutcome) {
        let name = format!(
            "{}{}:{}",
            self.name_prefix.as_deref().unwrap_or("turnlock_doctor:"),
            uuid::Uuid::new_v4().simple(),
            primitive.noun().replace(' ', "-")
        );
        let probe_run = ProbeRun::new(Arc::clone(&self));
        let outcome = probe_run.test(primitive, &name).await;
        // A token outlives its lock, and a denied step leaves the keys of the steps before it.
        for key in self.keys(primitive, &name) {
            let _ = self.delete(&key).await;
        }
        let outcome = match outcome {
            Ok(notified) => ProbeOutcome::Works { notified },
            Err(FailedStep { step, why, is_denied: true }) => {
                ProbeOutcome::Denied { step, is_first: probe_run.is_at_first_step(), why }
            }
            Err(FailedStep { step, why, is_denied: false }) => ProbeOutcome::Failed { step, why },
        };
        (primitive, outcome)
    }

    /// The keys that a primitive can leave behind, without those whose names are patterns.
    pub(super) fn keys(&self, primitive: Primitive, name: &str) -> Vec<String> {
        let keys = primitive.keys(&format!("{}{name}", self.shared.settings.key_prefix));
        keys.into_iter().filter(|key| !key.contains('*')).collect()
    }

    /// Deletes a key on the server that has it. Fails only if that is denied.
    pub(super) async fn delete(&self, key: &str) -> Result<(), String> {
        for server_probe in &self.server_probes {
            let mut cmd = redis::cmd("DEL");
            cmd.arg(key);
            if let Err(ProbeError::Denied(why)) = server_probe.send(cmd).await {
                return Err(why);
            }
        }
        Ok(())
    }

    pub(super) fn name(&self, kind: Kind, name: &str) -> Result<LockName, FailedStep> {
        let parsed = LockName::of(kind, &self.shared.settings.key_prefix, name);
        parsed.map_err(|error| FailedStep {
            step: "parsing the name",
            why: error.to_string(),
            is_denied: false,
        })
    }

    /// Creates an owner in the format of the kind.
    pub(super) fn owner(&self, kind: Kind) -> OwnerId {
        match kind {
            Kind::Permits => OwnerId::from_wire(&uuid::Uuid::new_v4().simple().to_string()),
            _ => self.shared.new_owner(),
        }
    }
}
