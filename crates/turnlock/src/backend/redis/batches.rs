//! Requests for many lines, in a cluster, where one request is for the keys of one slot.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::failure;
use crate::backend::{Answer, Failure, Sent, Step};

/// Runs the lines slot by slot, all at once, and puts the outcomes in the order of the lines. An error if all failed.
pub(super) async fn by_slot<L: Clone, T>(
    lines: &[L],
    slot: impl Fn(&L) -> u16,
    run: impl Fn(&[L]) -> Step<Vec<Option<T>>>,
) -> Result<Answer<Vec<Option<T>>>, Failure> {
    let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (place, line) in lines.iter().enumerate() {
        slots.entry(slot(line)).or_default().push(place);
    }
    let outcomes = join_all(slots.values().map(|places| one_slot(lines, places, &run))).await;
    let mut value: Vec<_> = lines.iter().map(|_| None).collect();
    // Of all that was answered, the earliest, and the fewest replicas.
    let mut least: Option<(Sent, u32)> = None;
    let mut failure = None;
    for (place, outcome) in outcomes.into_iter().flatten() {
        match outcome {
            Ok(Answer { value: outcome, sent, replicas, .. }) => {
                value[place] = outcome;
                let (earliest, fewest) = least.unwrap_or((sent, replicas));
                least = Some((if sent.at < earliest.at { sent } else { earliest }, fewest.min(replicas)));
            }
            Err(error) => {
                tracing::warn!(failure = %error, slot = slot(&lines[place]), "no answer for a slot of the cluster");
                failure = Some(error);
            }
        }
    }
    match (least, failure) {
        (Some((sent, replicas)), _) => Ok(Answer { value, sent, replicas, told: None }),
        (None, Some(failure)) => Err(failure),
        (None, None) => Ok(Answer::new(value, Sent::never())),
    }
}

type Outcome<T> = (usize, Result<Answer<Option<T>>, Failure>);

/// Runs the lines of one slot together; if the server refuses that, because it has only some of the keys while the slot
/// moves, each for itself.
async fn one_slot<L: Clone, T>(
    lines: &[L],
    places: &[usize],
    run: &impl Fn(&[L]) -> Step<Vec<Option<T>>>,
) -> Vec<Outcome<T>> {
    let all: Vec<L> = places.iter().map(|place| lines[*place].clone()).collect();
    let failure = match run(&all).await {
        Ok(Answer { value, sent, replicas, .. }) => {
            let outcomes = value.into_iter().map(|value| Ok(Answer { value, sent, replicas, told: None }));
            return places.iter().copied().zip(outcomes).collect();
        }
        Err(failure) => failure,
    };
    if !failure::is_of_split(&failure) || all.len() == 1 {
        return places.iter().map(|place| (*place, Err(failure.clone()))).collect();
    }
    let each = join_all(all.iter().map(|line| run(std::slice::from_ref(line)))).await;
    let only = |Answer { value, sent, replicas, told }: Answer<Vec<_>>| {
        let value = value.into_iter().next().flatten();
        Answer { value, sent, replicas, told }
    };
    places.iter().copied().zip(each.into_iter().map(|outcome| outcome.map(only))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use turnlock_core::Moment;

    use super::*;

    fn sent(micros: u64) -> Sent {
        Sent { connection: 1, at: Moment::from_micros(micros) }
    }

    fn failure() -> Failure {
        let answer = redis::parse_redis_value(b"-TRYAGAIN some keys are elsewhere\r\n").expect("an answer");
        failure::from_error(answer.extract_error().expect_err("an error"), None)
    }

    /// Runs lines whose slot is their tenth. Answers each with itself; refuses what `refuses` says.
    async fn run(
        lines: &[u16],
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<Answer<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        let asked = Mutex::new(Vec::new());
        let outcome = by_slot(
            lines,
            |line| line / 10,
            |lines: &[u16]| {
                asked.lock().expect("unpoisoned").push(lines.to_vec());
                let answer = if refuses(lines) {
                    Err(failure())
                } else {
                    let value = lines.iter().map(|line| Some(*line)).collect();
                    Ok(Answer {
                        value,
                        sent: sent(u64::from(lines[0])),
                        replicas: u32::from(lines[0]),
                        told: None,
                    })
                };
                Box::pin(std::future::ready(answer))
            },
        )
        .await;
        (outcome, asked.into_inner().expect("unpoisoned"))
    }

    #[tokio::test]
    async fn outcomes_come_in_the_order_of_the_lines() {
        let (outcome, asked) = run(&[21, 11, 22, 12, 31], |_| false).await;
        let answer = outcome.expect("answered");
        assert_eq!(answer.value, [Some(21), Some(11), Some(22), Some(12), Some(31)]);
        assert_eq!(asked, [vec![11, 12], vec![21, 22], vec![31]]);
        // Of all, the earliest and the fewest.
        assert_eq!((answer.sent.at, answer.replicas), (sent(11).at, 11));
    }

    #[tokio::test]
    async fn what_cannot_go_together_goes_apart() {
        let (outcome, asked) = run(&[11, 12, 13], |lines| lines.len() > 1 || lines == [12]).await;
        assert_eq!(outcome.expect("answered").value, [Some(11), None, Some(13)]);
        assert_eq!(asked.len(), 4);
    }

    #[tokio::test]
    async fn only_if_all_fail_the_whole_does() {
        let (outcome, _) = run(&[11, 21], |lines| lines == [11]).await;
        assert_eq!(outcome.expect("answered").value, [None, Some(21)]);
        let (outcome, _) = run(&[11, 21], |_| true).await;
        assert!(outcome.is_err());
    }
}
