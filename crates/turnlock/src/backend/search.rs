use turnlock_core::{Glob, Kind};

/// What somebody looks for.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// What stands in front of every name on the store.
    pub(crate) prefix: String,
    /// Which names.
    pub(crate) names: Glob,
    /// How many are enough.
    pub(crate) at_most: usize,
}

impl Search {
    /// Whether a key is that of a name that is looked for.
    pub(crate) fn wants(&self, key: &str) -> bool {
        key.strip_prefix(&*self.prefix).is_some_and(|name| !name.is_empty() && self.names.matches(name))
    }
}

/// What a search came upon.
#[derive(Clone, Debug)]
pub(crate) struct Sightings {
    /// Each thing that may be held, once, by its key.
    pub(crate) things: Vec<(String, Kind)>,
    /// Whether the search came to its end.
    pub(crate) is_complete: bool,
}

impl Sightings {
    /// As many of what was found as somebody looks for.
    pub(crate) fn new(
        search: &Search,
        found: impl IntoIterator<Item = (String, Kind)>,
        is_complete: bool,
    ) -> Self {
        let mut things: Vec<_> = found.into_iter().collect();
        let is_complete = is_complete && things.len() <= search.at_most;
        things.truncate(search.at_most);
        Self { things, is_complete }
    }
}
