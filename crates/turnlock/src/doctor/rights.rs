//! Checks the rights of the user, and whether messages arrive.
//!
//! The input is the outcome of a [probe](super::probe).

use super::{Finding, Level, Topic};
use crate::acl::{AclRule, Primitive};

/// The outcome of probing one primitive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// All steps succeeded. `notified`: whether the message about the release arrived; `None` if the
    /// primitive has none.
    Works { notified: Option<bool> },
    /// The user lacks the right to a step. If it is the first step, the user cannot use the primitive at all.
    Denied { step: &'static str, is_first: bool, why: String },
    /// A step failed for another reason.
    Failed { step: &'static str, why: String },
}

/// From what the rule to grant is made.
#[derive(Clone, Debug)]
pub(super) struct RuleTemplate {
    /// The pattern of names.
    pub(super) names: String,
    pub(super) is_cluster: bool,
    /// Whether replicas must acknowledge grants.
    pub(super) needs_replicas: bool,
    /// Whether the caller chose the beginning of the names.
    pub(super) has_own_names: bool,
}

impl RuleTemplate {
    fn rule(&self, primitives: &[Primitive]) -> AclRule {
        let mut rule = AclRule::new(primitives, &self.names);
        if self.is_cluster {
            rule = rule.on_cluster();
        }
        if self.needs_replicas {
            rule = rule.with_replicas();
        }
        rule
    }
}

pub(super) fn check(outcomes: &[(Primitive, ProbeOutcome)], template: &RuleTemplate) -> Vec<Finding> {
    let mut findings: Vec<_> = outcomes
        .iter()
        .filter_map(|(primitive, outcome)| partly_denied(*primitive, outcome, template))
        .collect();
    findings.extend(fully_denied(outcomes, template));
    findings.extend(messages(outcomes));
    if outcomes.iter().all(|(_, outcome)| matches!(outcome, ProbeOutcome::Works { .. })) {
        findings.push(Finding::new(
            Level::Fine,
            Topic::Rights,
            "The user has all rights that locks, semaphores and latches need.",
        ));
    }
    findings
}

/// A primitive of which some steps work and another does not.
fn partly_denied(primitive: Primitive, outcome: &ProbeOutcome, template: &RuleTemplate) -> Option<Finding> {
    match outcome {
        ProbeOutcome::Denied { step, is_first: false, why } => {
            let text = format!(
                "The user has some rights that a {} needs and lacks others: {step} is denied ({why}). What \
                 was acquired stays until its lease ends, or forever. Grant: {}",
                primitive.noun(),
                template.rule(&[primitive])
            );
            Some(Finding::new(Level::Danger, Topic::Rights, text))
        }
        ProbeOutcome::Failed { step, why } => {
            let text = format!("A {} could not be tested: {step} failed ({why}).", primitive.noun());
            Some(Finding::new(Level::Unknown, Topic::Rights, text))
        }
        _ => None,
    }
}

/// The primitives of which the first step is denied.
fn fully_denied(outcomes: &[(Primitive, ProbeOutcome)], template: &RuleTemplate) -> Option<Finding> {
    let denied = outcomes.iter().filter_map(|(primitive, outcome)| match outcome {
        ProbeOutcome::Denied { is_first: true, why, .. } => Some((*primitive, why)),
        _ => None,
    });
    let (primitives, reasons): (Vec<_>, Vec<_>) = denied.unzip();
    let (why, nouns) = (reasons.first()?, nouns(&primitives));
    let rule = template.rule(&primitives);
    let hint = if template.has_own_names {
        ""
    } else {
        " The doctor used test names of its own. If the user may lock certain names only, call \
         doctor_with_prefix with their common prefix."
    };
    let (level, observation) = if primitives.len() == outcomes.len() {
        (Level::Danger, "The user cannot use any lock, semaphore or latch".to_owned())
    } else {
        (Level::Warning, format!("The user cannot use: {nouns}"))
    };
    let text = format!("{observation} ({why}). If it should, grant: {rule}{hint}");
    Some(Finding::new(level, Topic::Rights, text))
}

fn messages(outcomes: &[(Primitive, ProbeOutcome)]) -> Option<Finding> {
    let with_messages = |arrived| {
        let expected = ProbeOutcome::Works { notified: Some(arrived) };
        outcomes
            .iter()
            .filter(move |(_, outcome)| *outcome == expected)
            .map(|(primitive, _)| *primitive)
            .collect::<Vec<_>>()
    };
    let silent = with_messages(false);
    if !silent.is_empty() {
        let text = format!(
            "The message about a release did not arrive within a second: {}. Waiters then notice a release \
             at their next poll: they are late, and each poll costs a request. Grant publish, subscribe and \
             the channels, and check that no proxy withholds messages. Where messages cannot work, use spin \
             locks.",
            nouns(&silent)
        );
        return Some(Finding::new(Level::Warning, Topic::Messages, text));
    }
    (!with_messages(true).is_empty())
        .then(|| Finding::new(Level::Fine, Topic::Messages, "Messages about releases arrive."))
}

fn nouns(primitives: &[Primitive]) -> String {
    primitives.iter().map(|primitive| primitive.noun()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> RuleTemplate {
        RuleTemplate {
            names: "orders:*".to_owned(),
            is_cluster: false,
            needs_replicas: false,
            has_own_names: true,
        }
    }

    fn denied(is_first: bool) -> ProbeOutcome {
        ProbeOutcome::Denied { step: "release", is_first, why: "NOPERM".to_owned() }
    }

    fn findings(outcomes: &[(Primitive, ProbeOutcome)]) -> Vec<(Level, Topic)> {
        check(outcomes, &template()).iter().map(|finding| (finding.level, finding.topic)).collect()
    }

    #[test]
    fn a_partly_denied_primitive_is_worse_than_a_fully_denied_one() {
        let works = ProbeOutcome::Works { notified: Some(true) };
        let outcomes = [(Primitive::Lock, works.clone()), (Primitive::Latch, denied(true))];
        assert_eq!(findings(&outcomes), [(Level::Warning, Topic::Rights), (Level::Fine, Topic::Messages)]);
        let outcomes = [(Primitive::Lock, denied(false)), (Primitive::Latch, works.clone())];
        assert_eq!(findings(&outcomes), [(Level::Danger, Topic::Rights), (Level::Fine, Topic::Messages)]);
        let outcomes = [(Primitive::Lock, denied(true)), (Primitive::Latch, denied(true))];
        assert_eq!(findings(&outcomes), [(Level::Danger, Topic::Rights)]);
        let outcomes = [(Primitive::Lock, works)];
        assert_eq!(findings(&outcomes), [(Level::Fine, Topic::Messages), (Level::Fine, Topic::Rights)]);
    }

    #[test]
    fn a_denied_right_is_reported_with_the_rule_to_grant() {
        let findings = check(&[(Primitive::Lock, denied(false))], &template());
        let rule = AclRule::new(&[Primitive::Lock], "orders:*").to_string();
        assert!(findings[0].text.ends_with(&rule), "{}", findings[0]);
    }

    #[test]
    fn primitives_without_messages_are_named() {
        let outcomes = [
            (Primitive::Lock, ProbeOutcome::Works { notified: Some(false) }),
            (Primitive::SpinLock, ProbeOutcome::Works { notified: None }),
            (Primitive::Latch, ProbeOutcome::Works { notified: Some(true) }),
        ];
        let findings = check(&outcomes, &template());
        assert_eq!((findings[0].level, findings[0].topic), (Level::Warning, Topic::Messages));
        assert!(findings[0].text.contains(": lock."), "{}", findings[0]);
    }
}
