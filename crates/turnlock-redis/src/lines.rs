//! Batches of lines: groups them into calls, and splits a call that fails because of some of its lines.

use std::collections::BTreeMap;
use std::pin::Pin;

use futures_util::future::join_all;

use crate::failure;
use turnlock_store::{Failure, ReplyFuture, StepReply};

type Outcome<T> = Result<StepReply<Option<T>>, Failure>;
type Outcomes<'a, T> = Pin<Box<dyn Future<Output = Vec<Outcome<T>>> + Send + 'a>>;

/// Runs the lines concurrently, in one call for each value of `group`.
///
/// The outcomes are in the order of the lines. A line whose call failed has no outcome, and the reply has the first failure.
///
/// # Errors
///
/// All calls failed.
pub(crate) async fn run<L: Send + Sync, T: Send>(
    lines: Vec<L>,
    group: impl Fn(&L) -> u16,
    run: impl Fn(&[L]) -> ReplyFuture<Vec<Option<T>>> + Sync,
) -> Result<StepReply<Vec<Option<T>>>, Failure> {
    // The lines of each call, and their positions in the whole batch.
    let mut groups: BTreeMap<u16, (Vec<L>, Vec<usize>)> = BTreeMap::new();
    for (index, line) in lines.into_iter().enumerate() {
        let (lines, indexes) = groups.entry(group(&line)).or_default();
        lines.push(line);
        indexes.push(index);
    }
    let outcomes = join_all(groups.values().map(|(lines, _)| run_group(lines, &run))).await;
    let indexes = groups.values().flat_map(|(_, indexes)| indexes);
    let mut outcomes: Vec<_> = indexes.zip(outcomes.into_iter().flatten()).collect();
    outcomes.sort_unstable_by_key(|(index, _)| **index);
    StepReply::merge(outcomes.into_iter().map(|(_, outcome)| outcome))
}

/// Runs lines in one call, or in smaller ones if some of the lines fail it.
///
/// Returns one outcome for each line, in their order.
fn run_group<'a, L: Send + Sync, T: Send + 'a>(
    lines: &'a [L],
    run: &'a (impl Fn(&[L]) -> ReplyFuture<Vec<Option<T>>> + Sync),
) -> Outcomes<'a, T> {
    Box::pin(async move {
        let failure = match run(lines).await {
            Ok(StepReply { mut value, sent, replicas, .. }) => {
                value.resize_with(lines.len(), || None);
                let outcome = |value| Ok(StepReply { replicas, ..StepReply::new(value, sent) });
                return value.into_iter().map(outcome).collect();
            }
            Err(failure) => failure,
        };
        let Some(size) = failure::part_size(&failure, lines.len()) else {
            // The caller gets the first failure of the batch, and logs it.
            tracing::debug!(%failure, lines = lines.len(), "part of a batch failed");
            return lines.iter().map(|_| Err(failure.clone())).collect();
        };
        join_all(lines.chunks(size).map(|part| run_group(part, run))).await.into_iter().flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use turnlock_core::Moment;
    use turnlock_store::Sent;

    use super::*;

    fn sent(micros: u64) -> Sent {
        Sent { connection: 1, at: Moment::from_micros(micros) }
    }

    fn failure(text: &str) -> Failure {
        let reply = redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).expect("a reply");
        failure::from_error(reply.extract_error().expect_err("an error"), None)
    }

    /// Runs lines whose group is their tenth. The reply to a line is the line, unless `refuses` is true.
    async fn run(
        lines: &[u16],
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<StepReply<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        run_by(lines, |line| line / 10, "TRYAGAIN some keys are elsewhere", refuses).await
    }

    /// Runs lines in one group. A refused call fails with `error`.
    async fn run_in_one(
        lines: &[u16],
        error: &str,
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<StepReply<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        run_by(lines, |_| 0, error, refuses).await
    }

    async fn run_by(
        lines: &[u16],
        group: fn(&u16) -> u16,
        error: &str,
        refuses: fn(&[u16]) -> bool,
    ) -> (Result<StepReply<Vec<Option<u16>>>, Failure>, Vec<Vec<u16>>) {
        let calls = Mutex::new(Vec::new());
        let outcome = super::run(lines.to_vec(), group, |lines: &[u16]| {
            calls.lock().expect("unpoisoned").push(lines.to_vec());
            let reply = if refuses(lines) {
                Err(failure(error))
            } else {
                let value = lines.iter().map(|line| Some(*line)).collect();
                let replicas = u32::from(lines[0]);
                Ok(StepReply { replicas, ..StepReply::new(value, sent(u64::from(lines[0]))) })
            };
            Box::pin(std::future::ready(reply))
        })
        .await;
        (outcome, calls.into_inner().expect("unpoisoned"))
    }

    #[tokio::test]
    async fn outcomes_come_in_the_order_of_the_lines() {
        let (outcome, calls) = run(&[21, 11, 22, 12, 31], |_| false).await;
        let reply = outcome.expect("a reply");
        assert_eq!(reply.value, [Some(21), Some(11), Some(22), Some(12), Some(31)]);
        assert!(reply.failure.is_none());
        assert_eq!(calls, [vec![11, 12], vec![21, 22], vec![31]]);
        // The earliest time of sending, and the fewest replicas.
        assert_eq!((reply.sent.at, reply.replicas), (sent(11).at, 11));
    }

    #[tokio::test]
    async fn a_batch_that_fails_as_a_whole_is_split_into_lines() {
        let (outcome, calls) = run(&[11, 12, 13], |lines| lines.len() > 1 || lines == [12]).await;
        assert_eq!(outcome.expect("a reply").value, [Some(11), None, Some(13)]);
        assert_eq!(calls.len(), 4);
    }

    #[tokio::test]
    async fn a_batch_fails_only_if_all_lines_fail() {
        let (outcome, _) = run(&[11, 21], |lines| lines == [11]).await;
        let reply = outcome.expect("a reply");
        assert_eq!(reply.value, [None, Some(21)]);
        assert!(reply.failure.is_some());
        let (outcome, _) = run(&[11, 21], |_| true).await;
        assert!(outcome.is_err());
    }

    #[tokio::test]
    async fn one_denied_key_costs_no_other_line_and_few_calls() {
        let lines: Vec<u16> = (1_000..1_256).collect();
        for error in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            let in_one_call = |lines: &[u16]| lines.contains(&1_077);
            let (outcome, calls) = run_in_one(&lines, error, in_one_call).await;
            let value = outcome.expect("a reply").value;
            let missing: Vec<_> = lines.iter().zip(&value).filter(|(_, outcome)| outcome.is_none()).collect();
            assert_eq!(missing.len(), 1, "{missing:?}");
            assert_eq!(*missing[0].0, 1_077);
            assert_eq!(calls.len(), 1 + 2 * 8, "two calls for each halving");
        }
    }

    #[tokio::test]
    async fn an_error_about_the_whole_batch_does_not_split_it() {
        for error in [
            "NOPERM User reader has no permissions to run the 'evalsha' command",
            "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
            "READONLY You can't write against a read only replica.",
        ] {
            let (outcome, calls) = run_in_one(&[1, 2, 3, 4], error, |_| true).await;
            assert!(outcome.is_err());
            assert_eq!(calls.len(), 1, "{error}");
        }
    }
}
