//! What is left of locks after a fail-over.

use super::habits::Habits;
use super::info::Info;
use super::reading::Reading;
use super::{Finding, Level, Topic};

pub(super) fn judge(reading: &Reading, habits: &Habits) -> Vec<Finding> {
    let Ok(info) = &reading.info else { return Vec::new() };
    let finding = |(level, text)| Finding::new(level, Topic::Replication, text);
    if info.get("role") == Some("slave") {
        let text = "This is a replica, which refuses writes: nothing can be locked here. Give the address of the master, \
                    or of the sentinels.";
        return vec![finding((Level::Danger, text.to_owned()))];
    }
    let replicas = info.number("connected_slaves").unwrap_or(0);
    let asked = u64::from(habits.replicas);
    if replicas == 0 && asked == 0 {
        return Vec::new();
    }
    let mut findings = Vec::new();
    if replicas > 0 {
        findings.extend(after_a_failover(info, reading.config.as_ref().ok(), habits).map(finding));
    }
    findings.push(finding(acknowledged(replicas, asked)));
    findings
}

/// How long a master that was replaced goes on.
fn after_a_failover(info: &Info, config: Option<&Info>, habits: &Habits) -> Option<(Level, String)> {
    let remedy = "set min-replicas-to-write to 1 and min-replicas-max-lag to 2";
    let needed = config.and_then(|config| config.number("min-replicas-to-write"));
    // Only a server with both settings counts its good replicas.
    let is_guarded = needed.map_or(info.get("min_slaves_good_slaves").is_some(), |needed| needed > 0);
    if !is_guarded {
        let text = format!(
            "It has replicas, and goes on without them (min-replicas-to-write 0): a master that is cut off or paused, and \
             replaced meanwhile, goes on granting locks beside the new one; 356 in ten seconds when it was measured. So \
             {remedy}: then there was none."
        );
        return Some((Level::Danger, text));
    }
    let lag = config?.number("min-replicas-max-lag")?;
    if u128::from(lag) * 1_000 > habits.lease.as_millis() / 3 {
        let text = format!(
            "A master that is cut off and replaced goes on granting locks for up to {lag} s (min-replicas-max-lag), longer \
             than a third of the lease of {:?}. So {remedy}.",
            habits.lease
        );
        return Some((Level::Warning, text));
    }
    let text = format!("A master that is cut off grants no locks after {lag} s (min-replicas-max-lag).");
    Some((Level::Fine, text))
}

/// Whether a grant is known to the replicas.
fn acknowledged(replicas: u64, asked: u64) -> (Level, String) {
    let has =
        if replicas == 1 { "It has 1 replica".to_owned() } else { format!("It has {replicas} replicas") };
    if asked == 0 {
        let text = format!(
            "{has}, and this client does not ask that grants be acknowledged there: a fail-over forgets the locks of the last moment, and others \
             can take them. Set acknowledged_by to the number of replicas, or use fenced locks."
        );
        (Level::Warning, text)
    } else if replicas < asked {
        let text = format!(
            "{has} connected, and this client wants {asked} to acknowledge each grant: no lock can be had. See to the \
             replicas, or ask for fewer."
        );
        (Level::Danger, text)
    } else if asked < replicas {
        let text = format!(
            "{has}, of which {asked} must acknowledge a grant: a fail-over to another one forgets locks. Only the \
             acknowledgement of all that may be promoted is a promise."
        );
        (Level::Warning, text)
    } else {
        (Level::Fine, format!("{has}, and each grant is acknowledged by all."))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn levels(info: &str, settings: &[(&str, &str)], replicas: u32) -> Vec<Level> {
        let habits = Habits { lease: Duration::from_secs(30), patience: Duration::from_secs(1), replicas };
        let findings = judge(&Reading::with(info, settings), &habits);
        findings.iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn a_server_alone_has_nothing_to_fail_over_to() {
        assert_eq!(levels("role:master\nconnected_slaves:0", &[("min-replicas-to-write", "0")], 0), []);
        assert_eq!(levels("role:master\nconnected_slaves:0", &[], 1), [Level::Danger]);
        assert_eq!(levels("role:slave\nconnected_slaves:0", &[], 0), [Level::Danger]);
    }

    #[test]
    fn an_old_master_must_stop() {
        let two = "role:master\nconnected_slaves:2";
        let settings = |to_write, lag| [("min-replicas-to-write", to_write), ("min-replicas-max-lag", lag)];
        assert_eq!(levels(two, &settings("0", "10"), 2), [Level::Danger, Level::Fine]);
        assert_eq!(levels(two, &settings("1", "2"), 2), [Level::Fine, Level::Fine]);
        assert_eq!(levels(two, &settings("1", "30"), 2), [Level::Warning, Level::Fine]);
        // Without a look at the settings, INFO tells as much.
        assert_eq!(levels(two, &[], 2), [Level::Danger, Level::Fine]);
        assert_eq!(levels(&format!("{two}\nmin_slaves_good_slaves:2"), &[], 2), [Level::Fine]);
    }

    #[test]
    fn only_the_word_of_all_is_a_promise() {
        let two = "role:master\nconnected_slaves:2\nmin_slaves_good_slaves:2";
        assert_eq!(levels(two, &[], 0), [Level::Warning]);
        assert_eq!(levels(two, &[], 1), [Level::Warning]);
        assert_eq!(levels(two, &[], 2), [Level::Fine]);
        assert_eq!(levels(two, &[], 3), [Level::Danger]);
    }
}
