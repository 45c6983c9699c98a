use std::collections::HashSet;

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
    /// What is held, and what clients wait for, sorted by name.
    pub items: Vec<Inspection>,
    /// `false` if a limit was reached before the end of the search.
    pub is_complete: bool,
}

/// How many keys are inspected at the same time.
const AT_ONCE: usize = 64;

impl Found {
    pub(crate) async fn search(engine: &Engine, pattern: &str, at_most: usize) -> Result<Self, Error> {
        let prefix = &engine.settings.key_prefix;
        let glob = Glob::new(pattern);
        let search = Search { prefix: prefix.clone(), names: glob.clone(), at_most };
        let looked = engine.store.directory().find(search, engine.settings.usual_limit()).await;
        let StepReply { value: FoundKeys { items, mut is_complete }, .. } =
            looked.map_err(|failure| failure.into_error(|| format!("a search for {pattern:?}")))?;
        let situation = engine.situation_if_known().await;
        let by_key = &situation.by_key();
        let name_of = |key: &str, kind| LockName::of(kind, prefix, key.strip_prefix(&**prefix)?).ok();
        let mut names: Vec<_> = items.iter().filter_map(|(key, kind)| name_of(key, *kind)).collect();
        // Semaphores and latches are plain numbers on Redis: a search does not find them, and their waiters do.
        let found: HashSet<_> = items.iter().map(|(key, _)| &**key).collect();
        let waited = by_key.waited_for().into_iter().filter(|(key, _)| !found.contains(key));
        let mut waited = waited
            .filter_map(|(key, kind)| name_of(key, kind))
            .filter(|name| glob.matches(&name.to_string()));
        names.extend(waited.by_ref().take(at_most.saturating_sub(items.len())));
        is_complete &= waited.next().is_none();
        let inspections = names.into_iter().map(|name| async move {
            let snapshot = engine.inspect(&name).await;
            snapshot.map(|snapshot| Inspection::new(engine, &name, snapshot, by_key))
        });
        let inspections =
            futures_util::stream::iter(inspections.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let is_in_use = |lock: &Inspection| lock.is_locked() || !lock.waiters.is_empty();
        let mut found = Vec::new();
        for inspection in inspections.collect::<Vec<_>>().await {
            match inspection {
                Ok(inspection) => found.extend(Some(inspection).filter(is_in_use)),
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
        // Readers and writers wait for one lock.
        found.dedup_by(|one, other| one.name == other.name);
        Ok(Self { items: found, is_complete })
    }
}
