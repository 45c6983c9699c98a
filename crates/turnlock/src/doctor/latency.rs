//! Checks how long a reply takes.

use super::client_profile::ClientProfile;
use super::server_facts::ServerFacts;
use super::{Finding, Level, Topic};

pub(super) fn check(facts: &ServerFacts, client_profile: &ClientProfile) -> Option<Finding> {
    let finding = |level, text| Some(Finding::new(level, Topic::Latency, text));
    let mut round_trips = match &facts.round_trips {
        Ok(round_trips) => round_trips.clone(),
        Err(why) => {
            let text = format!(
                "The server did not reply: {why}. A holder that gets no reply until its lease ends loses its \
                 lock. Check the network and the server's load."
            );
            return finding(Level::Danger, text);
        }
    };
    round_trips.sort_unstable();
    let (median, worst) = (*round_trips.get(round_trips.len() / 2)?, *round_trips.last()?);
    let renewal_interval = client_profile.lease / 3;
    let response_timeout = client_profile.response_timeout;
    let measured = format!(
        "A reply takes {median:.1?} (median of {}; the slowest {worst:.1?}). A renewal must succeed within \
         {renewal_interval:.1?}, a third of the lease; the response time-out is {response_timeout:.1?}.",
        round_trips.len(),
    );
    let remedy =
        "Use a longer lease (watchdog_timeout) and response time-out, or find the cause of the delay.";
    if worst >= renewal_interval || median >= response_timeout {
        let text = format!("{measured} That is too slow: locks are lost while they are in use. {remedy}");
        finding(Level::Danger, text)
    } else if worst >= renewal_interval / 4 || worst >= response_timeout / 2 {
        let text = format!("{measured} There is little reserve: a longer delay loses locks. {remedy}");
        finding(Level::Warning, text)
    } else {
        finding(Level::Fine, measured)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn level(median: u64, worst: u64) -> Level {
        let ms = Duration::from_millis;
        let client_profile = ClientProfile { lease: ms(30_000), response_timeout: ms(1_000), replicas: 0 };
        let mut round_trips = vec![ms(median); 19];
        round_trips.push(ms(worst));
        let facts = ServerFacts { round_trips: Ok(round_trips), ..ServerFacts::with("", &[]) };
        check(&facts, &client_profile).expect("measured").level
    }

    #[test]
    fn latency_is_compared_with_the_lease_and_the_response_timeout() {
        assert_eq!(level(1, 20), Level::Fine);
        assert_eq!(level(1, 600), Level::Warning);
        assert_eq!(level(1, 11_000), Level::Danger);
        assert_eq!(level(1_200, 1_300), Level::Danger);
    }

    #[test]
    fn a_missing_reply_is_a_danger() {
        let client_profile = ClientProfile {
            lease: Duration::from_secs(30),
            response_timeout: Duration::from_secs(1),
            replicas: 0,
        };
        let facts =
            ServerFacts { round_trips: Err("no reply within 1s".to_owned()), ..ServerFacts::with("", &[]) };
        assert_eq!(check(&facts, &client_profile).expect("known").level, Level::Danger);
    }
}
