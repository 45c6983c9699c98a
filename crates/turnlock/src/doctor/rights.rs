//! What the user may do, and whether waiters hear of releases: judged by what came of trying.

use super::{Finding, Level, Topic};
use crate::acl::{AclRule, Primitive};

/// What came of trying a primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    /// All steps were done. Whether the end was heard of; `None` where it is not told.
    Works { heard: Option<bool> },
    /// The user may not do a step; it may not do anything when that was the first.
    Denied { step: &'static str, is_first: bool, why: String },
    /// Something else was in the way.
    Failed { step: &'static str, why: String },
}

/// What is needed to say which rights to grant.
#[derive(Clone, Debug)]
pub(super) struct Needs {
    /// The pattern of names.
    pub(super) names: String,
    pub(super) is_cluster: bool,
    pub(super) asks_replicas: bool,
    /// Whether the pattern is that of the caller's own names.
    pub(super) is_told: bool,
}

impl Needs {
    fn rule(&self, primitives: &[Primitive]) -> AclRule {
        let mut rule = AclRule::new(primitives, &self.names);
        if self.is_cluster {
            rule = rule.on_cluster();
        }
        if self.asks_replicas {
            rule = rule.with_replica_safety();
        }
        rule
    }
}

pub(super) fn judge(outcomes: &[(Primitive, Tried)], needs: &Needs) -> Vec<Finding> {
    let mut findings: Vec<_> =
        outcomes.iter().filter_map(|(primitive, tried)| half(*primitive, tried, needs)).collect();
    findings.extend(wholly(outcomes, needs));
    findings.extend(messages(outcomes));
    if outcomes.iter().all(|(_, tried)| matches!(tried, Tried::Works { .. })) {
        findings.push(Finding::new(
            Level::Fine,
            Topic::Rights,
            "The user may do all that locks, semaphores and latches need.",
        ));
    }
    findings
}

/// A primitive of which something works, and something does not.
fn half(primitive: Primitive, tried: &Tried, needs: &Needs) -> Option<Finding> {
    match tried {
        Tried::Denied { step, is_first: false, why } => {
            let text = format!(
                "The user may begin with a {} and may not go on: {step} is denied ({why}). What was begun stays until its \
                 lease ends, or for good. Grant: {}",
                primitive.noun(),
                needs.rule(&[primitive])
            );
            Some(Finding::new(Level::Danger, Topic::Rights, text))
        }
        Tried::Failed { step, why } => {
            let text = format!("A {} could not be tried: {step} failed ({why}).", primitive.noun());
            Some(Finding::new(Level::Unknown, Topic::Rights, text))
        }
        _ => None,
    }
}

/// Those that the user may not use at all.
fn wholly(outcomes: &[(Primitive, Tried)], needs: &Needs) -> Option<Finding> {
    let denied = outcomes.iter().filter_map(|(primitive, tried)| match tried {
        Tried::Denied { is_first: true, why, .. } => Some((*primitive, why)),
        _ => None,
    });
    let (primitives, reasons): (Vec<_>, Vec<_>) = denied.unzip();
    let (why, nouns) = (reasons.first()?, nouns(&primitives));
    let rule = needs.rule(&primitives);
    let hint = if needs.is_told {
        ""
    } else {
        " The names that were tried are the doctor's own; if the user may lock some names only, call doctor_for_names with \
         the beginning of those."
    };
    let (level, begin) = if primitives.len() == outcomes.len() {
        (Level::Danger, "The user may use nothing".to_owned())
    } else {
        (Level::Warning, format!("The user may not use: {nouns}"))
    };
    let text = format!("{begin} ({why}). If it should, grant: {rule}{hint}");
    Some(Finding::new(level, Topic::Rights, text))
}

fn messages(outcomes: &[(Primitive, Tried)]) -> Option<Finding> {
    let those = |heard| {
        let is_such = move |tried: &Tried| *tried == Tried::Works { heard: Some(heard) };
        outcomes
            .iter()
            .filter(move |(_, tried)| is_such(tried))
            .map(|(primitive, _)| *primitive)
            .collect::<Vec<_>>()
    };
    let unheard = those(false);
    if !unheard.is_empty() {
        let text = format!(
            "The end of a hold was not heard of within a second: {}. Waiters find out when they next look by themselves, so \
             they come late, and each look costs a request. Grant publish, subscribe and the channels, and let no proxy \
             keep messages back; where there are none, spin locks wait better.",
            nouns(&unheard)
        );
        return Some(Finding::new(Level::Warning, Topic::Messages, text));
    }
    (!those(true).is_empty()).then(|| Finding::new(Level::Fine, Topic::Messages, "Waiters hear of releases."))
}

fn nouns(primitives: &[Primitive]) -> String {
    primitives.iter().map(|primitive| primitive.noun()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs() -> Needs {
        Needs { names: "orders:*".to_owned(), is_cluster: false, asks_replicas: false, is_told: true }
    }

    fn denied(is_first: bool) -> Tried {
        Tried::Denied { step: "to give it back", is_first, why: "NOPERM".to_owned() }
    }

    fn seen(outcomes: &[(Primitive, Tried)]) -> Vec<(Level, Topic)> {
        judge(outcomes, &needs()).iter().map(|finding| (finding.level, finding.topic)).collect()
    }

    #[test]
    fn half_a_right_is_worse_than_none() {
        let works = Tried::Works { heard: Some(true) };
        let outcomes = [(Primitive::Lock, works.clone()), (Primitive::Latch, denied(true))];
        assert_eq!(seen(&outcomes), [(Level::Warning, Topic::Rights), (Level::Fine, Topic::Messages)]);
        let outcomes = [(Primitive::Lock, denied(false)), (Primitive::Latch, works.clone())];
        assert_eq!(seen(&outcomes), [(Level::Danger, Topic::Rights), (Level::Fine, Topic::Messages)]);
        let outcomes = [(Primitive::Lock, denied(true)), (Primitive::Latch, denied(true))];
        assert_eq!(seen(&outcomes), [(Level::Danger, Topic::Rights)]);
        let outcomes = [(Primitive::Lock, works)];
        assert_eq!(seen(&outcomes), [(Level::Fine, Topic::Messages), (Level::Fine, Topic::Rights)]);
    }

    #[test]
    fn what_is_denied_comes_with_the_rule_to_grant() {
        let findings = judge(&[(Primitive::Lock, denied(false))], &needs());
        let rule = AclRule::new(&[Primitive::Lock], "orders:*").to_string();
        assert!(findings[0].text.ends_with(&rule), "{}", findings[0]);
    }

    #[test]
    fn silence_is_told_by_name() {
        let outcomes = [
            (Primitive::Lock, Tried::Works { heard: Some(false) }),
            (Primitive::SpinLock, Tried::Works { heard: None }),
            (Primitive::Latch, Tried::Works { heard: Some(true) }),
        ];
        let findings = judge(&outcomes, &needs());
        assert_eq!((findings[0].level, findings[0].topic), (Level::Warning, Topic::Messages));
        assert!(findings[0].text.contains(": lock."), "{}", findings[0]);
    }
}
