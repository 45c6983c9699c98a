//! Requests for many lines: which of them go into one call, and what becomes of each when a call is refused.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::future::join_all;

use super::failure::{self, Division};
use crate::backend::{Answer, Failure, Sent, Step};

/// Lines that go into one call.
struct Group<L> {
    lines: Vec<L>,
    /// Where each of them stands among all lines.
    places: Vec<usize>,
}

type Outcome<T> = (usize, Result<Answer<Option<T>>, Failure>);
type Outcomes<'a, T> = Pin<Box<dyn Future<Output = Vec<Outcome<T>>> + Send + 'a>>;

/// Runs the lines, one call for all that `group` gives the same number, all at once; and puts the outcomes in the order of the
/// lines. A line whose own call failed has no outcome. An error if all failed.
pub(super) async fn run<L: Clone + Send + Sync, T: Send>(
    lines: Vec<L>,
    group: impl Fn(&L) -> u16,
    run: impl Fn(&[L]) -> Step<Vec<Option<T>>> + Sync,
) -> Result<Answer<Vec<Option<T>>>, Failure> {
    let mut value: Vec<_> = lines.iter().map(|_| None).collect();
    let mut groups: BTreeMap<u16, Group<L>> = BTreeMap::new();
    for (place, line) in lines.into_iter().enumerate() {
        let group =
            groups.entry(group(&line)).or_insert_with(|| Group { lines: Vec::new(), places: Vec::new() });
        group.lines.push(line);
        group.places.push(place);
    }
    let outcomes = join_all(groups.into_values().map(|group| together(group, &run))).await;
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
            Err(error) => failure = Some(error),
        }
    }
    match (least, failure) {
        (Some((sent, replicas)), _) => Ok(Answer { value, sent, replicas, told: None }),
        (None, Some(failure)) => Err(failure),
        (None, None) => Ok(Answer::new(value, Sent::never())),
    }
}

/// Runs the lines of a group in one call. If that is refused for a reason that may lie with some of them, in smaller groups:
/// each line on its own, or by halves, so that one bad line among many costs a few calls and not one for each.
fn together<'a, L: Clone + Send + Sync + 'a, T: Send + 'a>(
    group: Group<L>,
    run: &'a (impl Fn(&[L]) -> Step<Vec<Option<T>>> + Sync),
) -> Outcomes<'a, T> {
    Box::pin(async move {
        let Group { lines, places } = group;
        let failure = match run(&lines).await {
            Ok(Answer { value, sent, replicas, .. }) => {
                let outcomes =
                    value.into_iter().map(|value| Ok(Answer { value, sent, replicas, told: None }));
                return places.into_iter().zip(outcomes).collect();
            }
            Err(failure) => failure,
        };
        let size = match failure::division(&failure) {
            Some(Division::Each) if lines.len() > 1 => 1,
            Some(Division::Halves) if lines.len() > 1 => lines.len().div_ceil(2),
            _ => {
                tracing::warn!(%failure, lines = lines.len(), "no answer for some lines of a batch");
                return places.into_iter().map(|place| (place, Err(failure.clone()))).collect();
            }
        };
        let parts = lines.chunks(size).zip(places.chunks(size));
        let parts = parts.map(|(lines, places)| Group { lines: lines.to_vec(), places: places.to_vec() });
        join_all(parts.map(|part| together(part, run))).await.into_iter().flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use turnlock_core::Moment;

    use super::*;

    fn sent(micros: u64) -> Sent {
        Sent { connection: 1, at: Moment::from_micros(micros) }
    }

    fn failure(text: &str) -> Failure {
        let answer = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("an answer");
        failure::from_error(answer.extract_error().expect_err("an error"), None)
    }

    /// Runs lines whose slot is their tenth. Answers each with itself; refuses what `refuses` says.
    async fn run(
        lines: &[u16],
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<Answer<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        run_by(lines, |line| line / 10, "TRYAGAIN some keys are elsewhere", refuses).await
    }

    /// The same in one group, with the error that it refuses with.
    async fn run_in_one(
        lines: &[u16],
        error: &str,
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<Answer<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        run_by(lines, |_| 0, error, refuses).await
    }

    async fn run_by(
        lines: &[u16],
        group: fn(&u16) -> u16,
        error: &str,
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<Answer<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        let asked = Mutex::new(Vec::new());
        let outcome = super::run(lines.to_vec(), group, |lines: &[u16]| {
            asked.lock().expect("unpoisoned").push(lines.to_vec());
            let answer = if refuses(lines) {
                Err(failure(error))
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
        })
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

    #[tokio::test]
    async fn one_key_that_is_denied_costs_no_other_line_and_few_calls() {
        let lines: Vec<u16> = (1_000..1_256).collect();
        for error in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            let in_one_call = |lines: &[u16]| lines.contains(&1_077);
            let (outcome, asked) = run_in_one(&lines, error, in_one_call).await;
            let value = outcome.expect("answered").value;
            let missing: Vec<_> = lines.iter().zip(&value).filter(|(_, outcome)| outcome.is_none()).collect();
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert_eq!(*missing[0].0, 1_077);
            assert_eq!(asked.len(), 1 + 2 * 8, "two calls for each halving");
        }
    }

    #[tokio::test]
    async fn what_is_denied_to_the_user_as_a_whole_is_not_taken_apart() {
        for error in [
            "NOPERM User reader has no permissions to run the 'evalsha' command",
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
            "READONLY You can't write against a read only replica.",
        ] {
            let (outcome, asked) = run_in_one(&[1, 2, 3, 4], error, |_| true).await;
            assert!(outcome.is_err());
            assert_eq!(asked.len(), 1, "{error}");
        }
    }
}
