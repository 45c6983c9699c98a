use std::fmt;
use std::str::FromStr;

/// What a participant is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Take and give back free locks.
    Pairs,
    /// Many tasks take turns with one lock.
    Contend,
    /// Many tasks wait for one lock, and each gets it once.
    Herd,
    /// Hold or wait as told by lines.
    Hand,
    /// Hold many locks by automatic renewal.
    Keep,
}

impl Work {
    const ALL: [(&'static str, Self); 5] = [
        ("pairs", Self::Pairs),
        ("contend", Self::Contend),
        ("herd", Self::Herd),
        ("hand", Self::Hand),
        ("keep", Self::Keep),
    ];
}

impl FromStr for Work {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, work)| *work).ok_or_else(|| format!("there is no work called {name:?}"))
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, work)| work == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}
