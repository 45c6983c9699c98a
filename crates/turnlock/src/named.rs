use std::sync::Arc;

use turnlock_core::model::CounterOp;
use turnlock_core::{Kind, LockName, NameError};

use crate::engine::{Engine, Resend};
use crate::error::Error;
use crate::inspection::Inspection;

/// The name of a primitive on a store: the inside of every handle.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) engine: Arc<Engine>,
    name: Result<LockName, NameError>,
    /// How many replicas must acknowledge a grant, if not the default of the client.
    replicas: Option<u32>,
}

impl Named {
    pub(crate) fn new(engine: &Arc<Engine>, kind: Kind, name: &str) -> Self {
        let name = LockName::of(kind, &engine.shared.settings.key_prefix, name);
        Self { engine: Arc::clone(engine), name, replicas: None }
    }

    pub(crate) fn with_replicas(&self, replicas: u32) -> Self {
        Self { replicas: Some(replicas), ..self.clone() }
    }

    /// Returns how many replicas must acknowledge a grant.
    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(self.engine.shared.settings.replicas)
    }

    /// Returns the name as given. Empty if it is not valid.
    pub(crate) fn as_str(&self) -> &str {
        self.name.as_ref().map(LockName::as_str).unwrap_or_default()
    }

    /// Returns the name, or the error of a name that is not valid.
    pub(crate) fn checked(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(|error| Error::BadName(error.clone()))
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        let (shared, name) = (&self.engine.shared, self.checked()?);
        Ok(Inspection::new(shared, name, shared.inspect(name).await?))
    }

    /// Inspects the key of this name, whatever its kind. `None` if it is not a lock.
    pub(crate) async fn inspect_any_kind(&self) -> Result<Option<Inspection>, Error> {
        let (shared, name) = (&self.engine.shared, self.checked()?);
        let kind = shared.query(name, Resend::Always, |limit| shared.backend.kind_of(name, limit)).await?;
        let Some(kind) = kind else { return Ok(None) };
        let name = name.with_kind(kind);
        match shared.inspect(&name).await {
            Ok(snapshot) => Ok(Some(Inspection::new(shared, &name, snapshot))),
            // Its kind changed since the first request, or it only looked like a lock.
            Err(Error::NotALock { .. } | Error::WrongKind { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Performs an operation on the counter: [`Shared::perform`](crate::engine::Shared::perform).
    pub(crate) async fn perform(&self, op: CounterOp) -> Result<i64, Error> {
        self.engine.shared.perform(self.checked()?, op).await
    }
}

/// Unwraps the outcome of an acquire without a wait limit, which is never busy.
pub(crate) fn endless<T>(outcome: Result<Option<T>, Error>) -> Result<T, Error> {
    let bug = || Error::Unsupported("an acquire without a limit ended; this is a bug in turnlock".to_owned());
    outcome?.ok_or_else(bug)
}
