use std::sync::Arc;

use turnlock_core::model::Deed;
use turnlock_core::{Kind, LockName, NameError};

use crate::engine::{Engine, Resend};
use crate::error::Error;
use crate::inspection::Inspection;

/// A thing on the store by its name: what every handle of this crate has inside.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) engine: Arc<Engine>,
    name: Result<LockName, NameError>,
    /// How many replicas must acknowledge what is granted, where the client's setting is not to hold.
    replicas: Option<u32>,
}

impl Named {
    pub(crate) fn new(engine: &Arc<Engine>, kind: Kind, name: &str) -> Self {
        let name = LockName::of(kind, &engine.shared.settings.key_prefix, name);
        Self { engine: Arc::clone(engine), name, replicas: None }
    }

    /// The same, of which grants must be acknowledged by so many replicas.
    pub(crate) fn acknowledged_by(&self, replicas: u32) -> Self {
        Self { replicas: Some(replicas), ..self.clone() }
    }

    /// How many replicas must acknowledge what is granted.
    pub(crate) fn replicas(&self) -> u32 {
        self.replicas.unwrap_or(self.engine.shared.settings.replicas)
    }

    /// The name as it was given. Empty when the given one is not valid.
    pub(crate) fn as_str(&self) -> &str {
        self.name.as_ref().map(LockName::as_str).unwrap_or_default()
    }

    pub(crate) fn checked(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(|error| Error::BadName(error.clone()))
    }

    pub(crate) async fn inspect(&self) -> Result<Inspection, Error> {
        let (shared, name) = (&self.engine.shared, self.checked()?);
        Ok(Inspection::new(shared, name, shared.inspect(name).await?))
    }

    /// What stands under the name, whatever kind it was said to be.
    pub(crate) async fn look_up(&self) -> Result<Option<Inspection>, Error> {
        let (shared, name) = (&self.engine.shared, self.checked()?);
        let kind = shared.ask(name, Resend::Always, |limit| shared.backend.kind_of(name, limit)).await?;
        let Some(kind) = kind else { return Ok(None) };
        let name = name.of_other_kind(kind);
        match shared.inspect(&name).await {
            Ok(snapshot) => Ok(Some(Inspection::new(shared, &name, snapshot))),
            // By now something else stands there, or it only looked like a lock.
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Shared::perform`](crate::engine::Shared::perform).
    pub(crate) async fn perform(&self, deed: Deed) -> Result<i64, Error> {
        self.engine.shared.perform(self.checked()?, deed).await
    }
}

/// Endless patience does not give up; if it ever did, that would be a fault here and not the caller's.
pub(crate) fn endless<T>(outcome: Result<Option<T>, Error>) -> Result<T, Error> {
    let fault = || Error::Unsupported("gave up an endless wait: this is a fault in turnlock".to_owned());
    outcome?.ok_or_else(fault)
}
