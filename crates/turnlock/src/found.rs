use futures_util::StreamExt;
use turnlock_core::{Glob, LockName};

use crate::backend::{Answer, Search, Sightings};
use crate::engine::Shared;
use crate::error::Error;
use crate::inspection::Inspection;

/// What [`Client::find`](crate::Client::find) found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Each thing that was found, by name.
    pub things: Vec<Inspection>,
    /// Whether these are all: `false` when a bound was reached before the end.
    pub is_complete: bool,
}

/// How many things are looked at more closely at a time.
const AT_ONCE: usize = 64;

impl Found {
    pub(crate) async fn search(shared: &Shared, pattern: &str, at_most: usize) -> Result<Self, Error> {
        let prefix = &shared.settings.key_prefix;
        let search = Search { prefix: prefix.clone(), names: Glob::new(pattern), at_most };
        let looked = shared.backend.find(search, shared.settings.usual_patience()).await;
        let Answer { value: Sightings { things, mut is_complete }, .. } =
            looked.map_err(|failure| failure.into_error(|| format!("a search for {pattern:?}")))?;
        let names = things
            .iter()
            .filter_map(|(key, kind)| LockName::of(*kind, prefix, key.strip_prefix(&**prefix)?).ok());
        let looks = names.map(|name| async move {
            let snapshot = shared.inspect(&name).await;
            snapshot.map(|snapshot| Inspection::new(shared, &name, snapshot))
        });
        let looks = futures_util::stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE);
        let mut found = Vec::new();
        for look in looks.collect::<Vec<_>>().await {
            match look {
                Ok(thing) => found.extend(Some(thing).filter(Inspection::is_locked)),
                // Something else stands there by now, or always did; or this user may not look at it.
                Err(Error::Corrupt { .. } | Error::Denied { .. } | Error::Unsupported(_)) => {}
                Err(error) if error.is_passing() => {
                    tracing::debug!(%error, "what was found could not be looked at");
                    is_complete = false;
                }
                Err(error) => return Err(error),
            }
        }
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { things: found, is_complete })
    }
}
