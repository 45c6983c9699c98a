use futures_util::StreamExt;
use turnlock_core::{Glob, LockName};

use crate::engine::Engine;
use crate::error::IntoError;
use crate::{Error, Inspection};
use turnlock_store::{FoundKeys, Search, StepReply};

/// The result of [`Client::find`](crate::Client::find).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The locks, sorted by name.
    pub items: Vec<Inspection>,
    /// `false` if a limit was reached before the end of the search.
    pub is_complete: bool,
}

/// How many keys are inspected at the same time.
const AT_ONCE: usize = 64;

impl Found {
    pub(crate) async fn search(engine: &Engine, pattern: &str, at_most: usize) -> Result<Self, Error> {
        let prefix = &engine.settings.key_prefix;
        let search = Search { prefix: prefix.clone(), names: Glob::new(pattern), at_most };
        let looked = engine.store.directory().find(search, engine.settings.usual_limit()).await;
        let StepReply { value: FoundKeys { items, mut is_complete }, .. } =
            looked.map_err(|failure| failure.into_error(|| format!("a search for {pattern:?}")))?;
        let names = items
            .iter()
            .filter_map(|(key, kind)| LockName::of(*kind, prefix, key.strip_prefix(&**prefix)?).ok());
        let inspections = names.map(|name| async move {
            let snapshot = engine.inspect(&name).await;
            snapshot.map(|snapshot| Inspection::new(engine, &name, snapshot))
        });
        let inspections =
            futures_util::stream::iter(inspections.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut found = Vec::new();
        for inspection in inspections.collect::<Vec<_>>().await {
            match inspection {
                Ok(inspection) => found.extend(Some(inspection).filter(Inspection::is_locked)),
                // Not a lock, or no longer one, or this user may not read it.
                Err(
                    Error::NotALock { .. }
                    | Error::WrongKind { .. }
                    | Error::Denied { .. }
                    | Error::Unsupported(_),
                ) => {}
                Err(error) if error.is_retryable() => {
                    tracing::debug!(error = %error.with_causes(), "inspection of a found lock failed");
                    is_complete = false;
                }
                Err(error) => return Err(error),
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { items: found, is_complete })
    }
}
