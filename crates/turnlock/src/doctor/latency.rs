//! How long an answer takes.

use super::habits::Habits;
use super::reading::Reading;
use super::{Finding, Level, Topic};

pub(super) fn judge(reading: &Reading, habits: &Habits) -> Option<Finding> {
    let finding = |level, text| Some(Finding::new(level, Topic::Latency, text));
    let mut round_trips = match &reading.round_trips {
        Ok(round_trips) => round_trips.clone(),
        Err(why) => {
            let text = format!(
                "The server did not answer: {why}. A holder that hears nothing for the rest of its lease has lost its \
                 lock. See to the network and the server's load."
            );
            return finding(Level::Danger, text);
        }
    };
    round_trips.sort_unstable();
    let (usual, worst) = (*round_trips.get(round_trips.len() / 2)?, *round_trips.last()?);
    let third = habits.lease / 3;
    let seen = format!(
        "An answer takes {usual:.1?}, and {worst:.1?} at the worst of {}; a renewal has {third:.1?}, a third of the lease, \
         and each answer is waited for {:.1?}.",
        round_trips.len(),
        habits.patience
    );
    let remedy = "Use a longer lease (watchdog) and response time-out, or find out what is slow.";
    if worst >= third || usual >= habits.patience {
        let text = format!("{seen} That is too slow: locks are lost while their holders work. {remedy}");
        finding(Level::Danger, text)
    } else if worst >= third / 4 || worst >= habits.patience / 2 {
        let text = format!("{seen} Not much is left for a bad moment: then a lock is lost. {remedy}");
        finding(Level::Warning, text)
    } else {
        finding(Level::Fine, seen)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn level(usual: u64, worst: u64) -> Level {
        let ms = Duration::from_millis;
        let habits = Habits { lease: ms(30_000), patience: ms(1_000), replicas: 0 };
        let mut round_trips = vec![ms(usual); 19];
        round_trips.push(ms(worst));
        let reading = Reading { round_trips: Ok(round_trips), ..Reading::with("", &[]) };
        judge(&reading, &habits).expect("measured").level
    }

    #[test]
    fn answers_are_held_against_what_they_have() {
        assert_eq!(level(1, 20), Level::Fine);
        assert_eq!(level(1, 600), Level::Warning);
        assert_eq!(level(1, 11_000), Level::Danger);
        assert_eq!(level(1_200, 1_300), Level::Danger);
    }

    #[test]
    fn no_answer_is_a_danger() {
        let habits = Habits { lease: Duration::from_secs(30), patience: Duration::from_secs(1), replicas: 0 };
        let reading =
            Reading { round_trips: Err("no answer within 1s".to_owned()), ..Reading::with("", &[]) };
        assert_eq!(judge(&reading, &habits).expect("known").level, Level::Danger);
    }
}
