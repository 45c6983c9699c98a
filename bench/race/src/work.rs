use contract::Order;

use crate::entrant::Entrant;

/// One thing that is measured: for a table, or for one size of something that grows.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    /// What it is called on the command line and in the results.
    pub(crate) id: &'static str,
    /// How many waiters or locks, where that is what is varied.
    pub(crate) size: Option<u64>,
    pub(crate) what: What,
    /// How often it is measured: everybody once, then everybody once more, so that ratios are of one time.
    pub(crate) rounds: usize,
    /// The same for those whose figures only have to be known roughly.
    pub(crate) rounds_of_others: usize,
    /// The only ones who take part; empty is all.
    pub(crate) only: &'static [&'static str],
}

/// What the processes are asked to do.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// So many processes of one entrant.
    Alone { order: Order, processes: usize },
    /// Processes of several entrants at once.
    Mixed { order: Order, crew: &'static [(&'static str, usize)] },
    /// Two processes of one entrant, told what to do, round by round.
    Hand { rounds: usize },
}

impl Work {
    pub(crate) fn admits(&self, entrant: &Entrant) -> bool {
        entrant.takes_part_in(self.id)
            && (self.only.is_empty() || self.only.contains(&entrant.title().as_str()))
    }

    pub(crate) fn rounds_for(&self, ours: bool) -> usize {
        if ours { self.rounds } else { self.rounds_of_others }
    }

    /// For the one who watches.
    pub(crate) fn title(&self) -> String {
        self.size.map_or_else(|| self.id.to_owned(), |size| format!("{size} {}", self.id))
    }
}
