use turnlock_core::{Glob, Kind};

/// A search for locks by name.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// The key prefix of the client.
    pub(crate) prefix: String,
    /// The pattern for names.
    pub(crate) names: Glob,
    /// The maximum number of results.
    pub(crate) at_most: usize,
}

impl Search {
    /// Returns `true` if `key` is the prefix followed by a matching name.
    pub(crate) fn matches(&self, key: &str) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|name| !name.is_empty() && self.names.matches(name))
    }
}

/// The result of a [`Search`].
#[derive(Clone, Debug)]
pub(crate) struct FoundKeys {
    /// The keys that may be held, each once, with their kinds.
    pub(crate) items: Vec<(String, Kind)>,
    /// `true` if the search covered all keys.
    pub(crate) is_complete: bool,
}

impl FoundKeys {
    /// Truncates `found` to the maximum of the search; the result is incomplete then.
    pub(crate) fn new(
        search: &Search,
        found: impl IntoIterator<Item = (String, Kind)>,
        is_complete: bool,
    ) -> Self {
        let mut items: Vec<_> = found.into_iter().collect();
        let is_complete = is_complete && items.len() <= search.at_most;
        items.truncate(search.at_most);
        Self { items, is_complete }
    }
}
