use std::fmt;

use super::{Finding, Level};

/// The findings of [`Client::doctor`](crate::Client::doctor).
///
/// `Display` prints one paragraph per finding, the worst first.
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

    /// Returns the level of the worst finding.
    pub fn worst(&self) -> Level {
        self.findings.first().map_or(Level::Fine, |finding| finding.level)
    }

    /// Iterates over the findings that need action: warnings and dangers.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
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
    fn findings_are_printed_as_paragraphs_worst_first() {
        let fine = Finding::new(Level::Fine, Topic::Clock, "It is correct.");
        let bad = Finding::new(Level::Danger, Topic::Eviction, "It is wrong.").at("server:1");
        let report = Report::new(vec![fine, bad]);
        assert_eq!(
            report.to_string(),
            "DANGER: eviction of server:1. It is wrong.\n\nfine: clock. It is correct."
        );
        assert_eq!((report.worst(), report.problems().count()), (Level::Danger, 1));
    }
}
