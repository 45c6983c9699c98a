//! Checks the rights of the user, and whether messages arrive.
//!
//! The input is the outcome of a [probe](super::probe).

use turnlock_store::{ClientProfile, Finding, Level, Topic};

use super::probe::{FailedStep, ProbeOutcome};
use crate::acl::{AclRule, Primitive};

pub(super) fn check(
    outcomes: &[(Primitive, ProbeOutcome)],
    client: &ClientProfile,
    is_cluster: bool,
) -> Vec<Finding> {
    let rule = |primitives: &[Primitive]| rule(primitives, client, is_cluster);
    let mut findings: Vec<_> = outcomes
        .iter()
        .filter_map(|(primitive, outcome)| partly_denied(*primitive, outcome.as_ref().err()?, rule))
        .collect();
    findings.extend(fully_denied(outcomes, client.name_prefix.is_some(), rule));
    findings.extend(messages(outcomes));
    if outcomes.iter().all(|(_, outcome)| outcome.is_ok()) {
        findings.push(Finding::new(
            Level::Fine,
            Topic::Rights,
            "The user has all rights that locks, semaphores and latches need.",
        ));
    }
    findings
}

/// Creates the rule to grant.
fn rule(primitives: &[Primitive], client: &ClientProfile, is_cluster: bool) -> AclRule {
    let names = format!("{}{}*", client.key_prefix, client.name_prefix.as_deref().unwrap_or_default());
    let mut rule = AclRule::new(primitives, &names);
    if is_cluster {
        rule = rule.on_cluster();
    }
    if client.replicas > 0 {
        rule = rule.with_replicas();
    }
    rule
}

/// A primitive of which some steps work and another does not.
fn partly_denied(
    primitive: Primitive,
    FailedStep { step, why, is_denied, is_first }: &FailedStep,
    rule: impl Fn(&[Primitive]) -> AclRule,
) -> Option<Finding> {
    let noun = primitive.noun();
    let (level, text) = match (is_denied, is_first) {
        (true, true) => return None,
        (true, false) => {
            let text = format!(
                "The user has some rights that a {noun} needs and lacks others: {step} is denied ({why}). What \
                 was acquired stays until its lease ends, or forever. Grant: {}",
                rule(&[primitive])
            );
            (Level::Danger, text)
        }
        (false, _) => (Level::Unknown, format!("A {noun} could not be tested: {step} failed ({why}).")),
    };
    Some(Finding::new(level, Topic::Rights, text))
}

/// The primitives of which the first step is denied.
fn fully_denied(
    outcomes: &[(Primitive, ProbeOutcome)],
    has_own_names: bool,
    rule: impl Fn(&[Primitive]) -> AclRule,
) -> Option<Finding> {
    let denied = outcomes.iter().filter_map(|(primitive, outcome)| match outcome {
        Err(FailedStep { is_denied: true, is_first: true, why, .. }) => Some((*primitive, why)),
        _ => None,
    });
    let (primitives, reasons): (Vec<_>, Vec<_>) = denied.unzip();
    let (why, nouns, rule) = (reasons.first()?, nouns(&primitives), rule(&primitives));
    let hint = if has_own_names {
        ""
    } else {
        " The doctor used test names of its own. If the user may lock certain names only, check with \
         their common prefix: turnlock doctor --names PREFIX, or doctor_with_prefix."
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
        let expected = Ok(Some(arrived));
        let matching = outcomes.iter().filter(|(_, outcome)| *outcome == expected);
        matching.map(|(primitive, _)| *primitive).collect::<Vec<_>>()
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
    use crate::doctor::profile;

    fn check_orders(outcomes: &[(Primitive, ProbeOutcome)]) -> Vec<Finding> {
        check(outcomes, &ClientProfile { name_prefix: Some("orders:".to_owned()), ..profile() }, false)
    }

    fn denied(is_first: bool) -> ProbeOutcome {
        Err(FailedStep { step: "release", why: "NOPERM".to_owned(), is_denied: true, is_first })
    }

    fn findings(outcomes: &[(Primitive, ProbeOutcome)]) -> Vec<(Level, Topic)> {
        check_orders(outcomes).iter().map(|finding| (finding.level, finding.topic)).collect()
    }

    #[test]
    fn a_partly_denied_primitive_is_worse_than_a_fully_denied_one() {
        let works = Ok(Some(true));
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
        let findings = check_orders(&[(Primitive::Lock, denied(false))]);
        let rule = AclRule::new(&[Primitive::Lock], "orders:*").to_string();
        assert!(findings[0].text.ends_with(&rule), "{}", findings[0]);
    }

    #[test]
    fn primitives_without_messages_are_named() {
        let outcomes = [
            (Primitive::Lock, Ok(Some(false))),
            (Primitive::SpinLock, Ok(None)),
            (Primitive::Latch, Ok(Some(true))),
        ];
        let findings = check_orders(&outcomes);
        assert_eq!((findings[0].level, findings[0].topic), (Level::Warning, Topic::Messages));
        assert!(findings[0].text.contains(": lock."), "{}", findings[0]);
    }
}
