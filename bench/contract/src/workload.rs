use std::fmt;
use std::str::FromStr;

/// What a participant process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Acquire and release uncontended locks.
    Pairs,
    /// Many tasks contend for one lock.
    Contend,
    /// Many tasks wait for one lock, and each acquires it once.
    Herd,
    /// Hold or wait on command.
    WakeUp,
    /// Hold many locks by automatic renewal.
    Hold,
}

impl Workload {
    const ALL: [(&'static str, Self); 5] = [
        ("pairs", Self::Pairs),
        ("contend", Self::Contend),
        ("herd", Self::Herd),
        ("wakeup", Self::WakeUp),
        ("hold", Self::Hold),
    ];
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == name);
        known.map(|(_, workload)| *workload).ok_or_else(|| format!("there is no workload {name:?}"))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, workload)| workload == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}
