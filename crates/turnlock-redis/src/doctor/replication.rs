//! Checks which locks survive a fail-over.

use turnlock_store::{ClientProfile, Finding, Level, Topic};

use super::server_facts::{Fields, ServerFacts};

pub(super) fn check(facts: &ServerFacts, client: &ClientProfile) -> Vec<Finding> {
    let Ok(info) = &facts.info else { return Vec::new() };
    let finding = |(level, text)| Finding::new(level, Topic::Replication, text);
    if info.get("role") == Some("slave") {
        let text = "This server is a replica and refuses writes: no lock can be acquired here. Connect to \
                    the master, or to the sentinels.";
        return vec![finding((Level::Danger, text.to_owned()))];
    }
    let connected = info.number("connected_slaves").unwrap_or(0);
    let required = u64::from(client.replicas);
    if connected == 0 && required == 0 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if connected > 0 {
        findings.extend(demoted_master(info, facts.config.as_ref().ok(), client).map(finding));
    }
    findings.push(finding(acknowledgements(connected, required)));
    findings
}

/// Checks how long a master continues to grant locks after it is replaced.
fn demoted_master(info: &Fields, config: Option<&Fields>, client: &ClientProfile) -> Option<(Level, String)> {
    let remedy = "Set min-replicas-to-write to 1 and min-replicas-max-lag to 2";
    let min_replicas = config.and_then(|config| config.number("min-replicas-to-write"));
    // Without CONFIG: INFO counts the good replicas only if both settings are above 0.
    let is_guarded =
        min_replicas.map_or(info.get("min_slaves_good_slaves").is_some(), |min_replicas| min_replicas > 0);
    if !is_guarded {
        let text = format!(
            "The server has replicas and accepts writes without them (min-replicas-to-write 0): a master \
             that is cut off or paused, and replaced meanwhile, continues to grant locks beside the new one \
             (356 in ten seconds in a measurement). {remedy}: then there were none."
        );
        return Some((Level::Danger, text));
    }
    let lag = config?.number("min-replicas-max-lag")?;
    if u128::from(lag) * 1_000 > client.lease.as_duration().as_millis() / 3 {
        let text = format!(
            "A master that is cut off and replaced continues to grant locks for up to {lag} s \
             (min-replicas-max-lag), longer than a third of the lease of {:?}. {remedy}.",
            client.lease.as_duration()
        );
        return Some((Level::Warning, text));
    }
    let text = format!("A master that is cut off stops granting locks after {lag} s (min-replicas-max-lag).");
    Some((Level::Fine, text))
}

/// Checks whether enough replicas acknowledge each grant.
fn acknowledgements(connected: u64, required: u64) -> (Level, String) {
    let has = if connected == 1 {
        "The server has 1 replica".to_owned()
    } else {
        format!("The server has {connected} replicas")
    };
    if required == 0 {
        let text = format!(
            "{has}, and this client does not wait for acknowledgements: a fail-over loses the most recent \
             locks, and other owners can acquire them. Set replicas to the number of replicas (in the URL of \
             the store: ?replicas={connected}), or use fenced locks."
        );
        (Level::Warning, text)
    } else if connected < required {
        let text = format!(
            "{has} connected, and this client requires {required} to acknowledge each grant: no lock can be \
             acquired. Restore the replicas, or require fewer."
        );
        (Level::Danger, text)
    } else if required < connected {
        let text = format!(
            "{has}, and {required} must acknowledge each grant: a fail-over to another replica loses locks. \
             Require as many as can be promoted."
        );
        (Level::Warning, text)
    } else {
        (Level::Fine, format!("{has}, and each grant is acknowledged by all."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::profile;

    fn levels(info: &str, settings: &[(&str, &str)], replicas: u32) -> Vec<Level> {
        let client = ClientProfile { replicas, ..profile() };
        let findings = check(&ServerFacts::with(info, settings), &client);
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn a_server_without_replicas_has_no_fail_over() {
        assert_eq!(levels("role:master\nconnected_slaves:0", &[("min-replicas-to-write", "0")], 0), []);
        assert_eq!(levels("role:master\nconnected_slaves:0", &[], 1), [Level::Danger]);
        assert_eq!(levels("role:slave\nconnected_slaves:0", &[], 0), [Level::Danger]);
    }

    #[test]
    fn a_demoted_master_must_stop_granting() {
        let two = "role:master\nconnected_slaves:2";
        let settings = |to_write, lag| [("min-replicas-to-write", to_write), ("min-replicas-max-lag", lag)];
        assert_eq!(levels(two, &settings("0", "10"), 2), [Level::Danger, Level::Fine]);
        assert_eq!(levels(two, &settings("1", "2"), 2), [Level::Fine, Level::Fine]);
        assert_eq!(levels(two, &settings("1", "30"), 2), [Level::Warning, Level::Fine]);
        // Without CONFIG, INFO shows the same.
        assert_eq!(levels(two, &[], 2), [Level::Danger, Level::Fine]);
        assert_eq!(levels(&format!("{two}\nmin_slaves_good_slaves:2"), &[], 2), [Level::Fine]);
    }

    #[test]
    fn only_acknowledgement_by_all_replicas_is_fine() {
        let two = "role:master\nconnected_slaves:2\nmin_slaves_good_slaves:2";
        assert_eq!(levels(two, &[], 0), [Level::Warning]);
        assert_eq!(levels(two, &[], 1), [Level::Warning]);
        assert_eq!(levels(two, &[], 2), [Level::Fine]);
        assert_eq!(levels(two, &[], 3), [Level::Danger]);
    }
}
