use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join;
use turnlock_core::model::{CounterOp, Snapshot};
use turnlock_core::{Kind, Lease, LeaseError, LockName, NameError};

use crate::engine::{AcquireRequest, CallSite, Engine, LeaseMode, Resend, WaitLimit};
use crate::{Error, Inspection};

/// The name of a primitive on a store, with the options of an acquire: the inside of every handle.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) engine: Arc<Engine>,
    name: Result<LockName, NameError>,
    /// The fixed lease, if there is one.
    lease: Option<Result<Lease, LeaseError>>,
    /// How many replicas must acknowledge a grant, if not the default of the client.
    replicas: Option<u32>,
    /// It is a member of a group.
    is_in_group: bool,
}

impl Named {
    pub(crate) fn new(engine: &Arc<Engine>, kind: Kind, name: &str) -> Self {
        let name = LockName::of(kind, &engine.settings.key_prefix, name);
        // The store knows no lease of such permits.
        let lease = (kind == Kind::Semaphore).then_some(Ok(Lease::LONGEST));
        Self { engine: Arc::clone(engine), name, lease, replicas: None, is_in_group: false }
    }

    pub(crate) fn with_lease(&self, lease: Duration) -> Self {
        Self { lease: Some(Lease::new(lease)), ..self.clone() }
    }

    pub(crate) fn with_replicas(&self, replicas: u32) -> Self {
        Self { replicas: Some(replicas), ..self.clone() }
    }

    pub(crate) fn in_group(&self) -> Self {
        Self { is_in_group: true, ..self.clone() }
    }

    /// Returns how many replicas must acknowledge a grant.
    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(self.engine.settings.replicas)
    }

    /// Returns the name as given. Empty if it is not valid.
    pub(crate) fn as_str(&self) -> &str {
        self.name.as_ref().map(LockName::as_str).unwrap_or_default()
    }

    /// Returns the name, or the error of a name that is not valid.
    pub(crate) fn checked(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(|error| Error::BadName(error.clone()))
    }

    pub(crate) fn lease_mode(&self) -> Result<LeaseMode, Error> {
        Ok(match &self.lease {
            None => LeaseMode::Renewed(self.engine.settings.watchdog_timeout),
            Some(lease) => LeaseMode::Fixed(lease.clone()?),
        })
    }

    /// Returns a request for a new hold.
    pub(crate) fn request(
        &self,
        wait_limit: WaitLimit,
        call_site: CallSite,
    ) -> Result<AcquireRequest, Error> {
        Ok(AcquireRequest {
            name: self.checked()?.clone(),
            lease_mode: self.lease_mode()?,
            wait_limit,
            permits: 1,
            replicas: self.replicas(),
            accepts_hand_over: false,
            under: None,
            call_site: call_site.in_group(self.is_in_group),
        })
    }

    /// Reads the state on the store, and nothing that clients have announced.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Error> {
        self.engine.inspect(self.checked()?).await
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        self.inspect_as(self.checked()?).await
    }

    async fn inspect_as(&self, name: &LockName) -> Result<Inspection, Error> {
        let engine = &self.engine;
        let (snapshot, situation) =
            join(engine.inspect(name), engine.on_runtime(engine.situation_if_known())).await;
        Ok(Inspection::new(engine, name, snapshot?, &situation.by_key()))
    }

    /// Inspects the key of this name, whatever its kind. `None` if it is not a lock.
    pub(crate) async fn inspect_any_kind(&self) -> Result<Option<Inspection>, Error> {
        let (engine, name) = (&self.engine, self.checked()?);
        let kind =
            engine.query(name, Resend::Always, |limit| engine.store.directory().kind_of(name, limit)).await?;
        let Some(kind) = kind else { return Ok(None) };
        match self.inspect_as(&name.with_kind(kind)).await {
            Ok(inspection) => Ok(Some(inspection)),
            // Its kind changed since the first request, or it only looked like a lock.
            Err(Error::NotALock { .. } | Error::WrongKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Performs an operation on the counter: [`Engine::perform`](crate::engine::Engine::perform).
    pub(crate) async fn perform(&self, op: CounterOp) -> Result<i64, Error> {
        self.engine.perform(self.checked()?, op).await
    }

    /// Performs an operation on the counter that has an effect or not. Returns `true` if it had.
    pub(crate) async fn perform_once(&self, op: CounterOp) -> Result<bool, Error> {
        Ok(self.perform(op).await? == 1)
    }
}

/// Unwraps the outcome of an acquire without a wait limit, which is never busy.
pub(crate) fn endless<T>(outcome: Result<Option<T>, Error>) -> Result<T, Error> {
    let bug = || Error::Unsupported("an acquire without a limit ended; this is a bug in turnlock".to_owned());
    outcome?.ok_or_else(bug)
}
