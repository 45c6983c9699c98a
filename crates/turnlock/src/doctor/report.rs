use std::fmt;

use super::{Finding, Level};

/// What [`Client::doctor`](crate::Client::doctor) found. It prints as one paragraph a finding, the worst first.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// All findings, the worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
        Self { findings }
    }

    /// The level of the worst finding.
    pub fn worst(&self) -> Level {
        self.findings.first().map_or(Level::Fine, |finding| finding.level)
    }

    /// Those that call for something to be done: warnings and dangers.
    pub fn troubles(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.level >= Level::Warning)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.findings.iter().enumerate() {
            if i > 0 {
                f.write_str("\n\n")?;
            }
            finding.fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Topic;

    #[test]
    fn the_worst_comes_first_and_each_has_a_paragraph() {
        let fine = Finding::new(Level::Fine, Topic::Clock, "It is right.");
        let bad = Finding::new(Level::Danger, Topic::Eviction, "It is not.").at("here:1");
        let report = Report::new(vec![fine, bad]);
        assert_eq!(report.to_string(), "DANGER: eviction of here:1. It is not.\n\nfine: clock. It is right.");
        assert_eq!((report.worst(), report.troubles().count()), (Level::Danger, 1));
    }
}
