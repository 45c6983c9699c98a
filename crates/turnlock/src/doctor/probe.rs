use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use turnlock_core::{Kind, Lease, LockName, OwnerId};

use super::course::{Course, Halt};
use super::reading::Reading;
use super::rights::{Needs, Tried};
use super::{Examinee, Unanswered};
use crate::acl::Primitive;
use crate::engine::Shared;

/// The lease of what is tried. It is given back at once; should that be denied, it ends soon.
const LEASE: Duration = Duration::from_secs(5);

/// Tries every primitive on names of its own, and takes away what it wrote.
pub(super) struct Probe {
    pub(super) shared: Arc<Shared>,
    examinees: Vec<Arc<dyn Examinee>>,
    /// What the names begin with, if somebody said so.
    names: Option<String>,
    pub(super) limit: Duration,
    pub(super) lease: Lease,
}

impl Probe {
    pub(super) fn new(shared: &Arc<Shared>, examinees: &[Arc<dyn Examinee>], names: Option<&str>) -> Self {
        let limit = shared.settings.usual_patience();
        Self {
            shared: Arc::clone(shared),
            examinees: examinees.to_vec(),
            names: names.map(str::to_owned),
            limit,
            lease: Lease::new(LEASE.max(limit * 4)).unwrap_or(Lease::WATCHDOG),
        }
    }

    /// What is needed to say which rights to grant.
    pub(super) fn needs(&self, readings: &[Reading]) -> Needs {
        let is_cluster = |reading: &Reading| {
            reading.info.as_ref().is_ok_and(|info| info.get("cluster_enabled") == Some("1"))
        };
        Needs {
            names: format!(
                "{}{}*",
                self.shared.settings.key_prefix,
                self.names.as_deref().unwrap_or_default()
            ),
            is_cluster: readings.iter().any(is_cluster),
            asks_replicas: self.shared.settings.replicas > 0,
            is_told: self.names.is_some(),
        }
    }

    pub(super) async fn run(self: Arc<Self>) -> Vec<(Primitive, Tried)> {
        let tried = Primitive::ALL.map(|primitive| Arc::clone(&self).attempt(primitive));
        join_all(tried).await
    }

    async fn attempt(self: Arc<Self>, primitive: Primitive) -> (Primitive, Tried) {
        let name = format!(
            "{}{}:{}",
            self.names.as_deref().unwrap_or("turnlock_doctor:"),
            uuid::Uuid::new_v4().simple(),
            primitive.noun().replace(' ', "-")
        );
        let course = Course::new(Arc::clone(&self));
        let outcome = course.go_through(primitive, &name).await;
        // A token outlives its lock, and where a step was denied something may be left of those before it.
        for key in self.keys(primitive, &name) {
            let _ = self.delete(&key).await;
        }
        let tried = match outcome {
            Ok(heard) => Tried::Works { heard },
            Err(Halt { step, why, is_denied: true }) => {
                Tried::Denied { step, is_first: course.has_just_begun(), why }
            }
            Err(Halt { step, why, is_denied: false }) => Tried::Failed { step, why },
        };
        (primitive, tried)
    }

    /// The keys that a primitive may leave, as far as their names are known.
    pub(super) fn keys(&self, primitive: Primitive, name: &str) -> Vec<String> {
        let keys = primitive.keys(&format!("{}{name}", self.shared.settings.key_prefix));
        keys.into_iter().filter(|key| !key.contains('*')).collect()
    }

    /// Deletes a key on whichever server has it. An error if that is denied.
    pub(super) async fn delete(&self, key: &str) -> Result<(), String> {
        for examinee in &self.examinees {
            let mut cmd = redis::cmd("DEL");
            cmd.arg(key);
            if let Err(Unanswered::Denied(why)) = examinee.ask(cmd).await {
                return Err(why);
            }
        }
        Ok(())
    }

    pub(super) fn name(&self, kind: Kind, name: &str) -> Result<LockName, Halt> {
        let parsed = LockName::of(kind, &self.shared.settings.key_prefix, name);
        parsed.map_err(|error| Halt { step: "its name", why: error.to_string(), is_denied: false })
    }

    /// An owner as the kind has it.
    pub(super) fn owner(&self, kind: Kind) -> OwnerId {
        match kind {
            Kind::Permits => OwnerId::from_wire(&uuid::Uuid::new_v4().simple().to_string()),
            _ => self.shared.new_owner(),
        }
    }
}
