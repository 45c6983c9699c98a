//! A connection under many schedules of its callers, its driver and the server.

use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use redis::Value;
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use turnlock_core::model::{Claim, Step};
use turnlock_core::{Kind, LockName, Moment, OwnerId};
use turnlock_store::{Caller, Presence, Sent, clock};
use turnlock_testkit::schedules;

use super::driver;
use super::multiplexer::Multiplexer;
use crate::handshake::Stream;
use crate::lua::ServerMode;
use crate::reply_slot::{Outcome, ReplySlot, Unsent};
use crate::script_call::ScriptCall;
use crate::steps;

/// Runs `test` under so many schedules, inside a runtime whose time stands still.
fn explore(number: usize, test: impl Fn() + Send + Sync + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    // Never dropped: after a failure, its timers would wake tasks that are gone.
    let runtime: &'static tokio::runtime::Runtime = Box::leak(Box::new(runtime.expect("a runtime")));
    let _inside = runtime.enter();
    schedules::explore(number, test);
}

/// Returns a random number below `limit`, which belongs to the schedule.
fn choose(limit: usize) -> usize {
    thread_rng().gen_range(0..limit)
}

fn replied(number: i64) -> Outcome {
    Outcome::Replied(Value::Int(number), Sent { connection: 1, at: Moment::from_micros(1) })
}

/// Polls `future` once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[test]
fn a_reply_reaches_the_caller_or_the_task_that_goes_on_for_it() {
    explore(400, || {
        let slot = Arc::new(ReplySlot::default());
        slot.begin(Moment::NEVER);
        let connection = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.end(replied(1))
        });
        let mut request = Box::pin(async move { slot.outcome().await });
        let seen = block_on(poll_once(&mut request));
        // As the engine does with a request whose caller is dropped.
        let outcome = seen.unwrap_or_else(|| block_on(spawn(request)).expect("no panic"));
        assert!(matches!(outcome, Outcome::Replied(Value::Int(1), _)));
        connection.join().expect("no panic");
    });
}

#[test]
fn a_reply_to_a_dropped_caller_is_not_that_of_the_next_request() {
    explore(400, || {
        let slot = Arc::new(ReplySlot::default());
        slot.begin(Moment::NEVER);
        let connection = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.end(replied(1))
        });
        block_on(async {
            let mut outcome = slot.outcome();
            let _ = poll_once(&mut outcome).await;
        });
        connection.join().expect("no panic");
        assert!(slot.deadline().is_none(), "no caller waits");
        slot.begin(Moment::NEVER);
        let connection = thread::spawn({
            let slot = Arc::clone(&slot);
            move || slot.end(replied(2))
        });
        assert!(matches!(block_on(slot.outcome()), Outcome::Replied(Value::Int(2), _)));
        connection.join().expect("no panic");
    });
}

/// Returns a call of a release of `name`, which can share a request with others.
fn call(name: &str, caller: Caller) -> Arc<ScriptCall> {
    let name = LockName::of(Kind::Lock, "", name).expect("a good name");
    let step = Step::Release(Claim::new(&name, &OwnerId::from_wire("client:1"), 0));
    Arc::new(steps::script_call(&[step]).expect("a call").for_caller(caller))
}

/// The names of the steps that the server has executed, in order.
type Executed = Arc<Mutex<Vec<String>>>;

/// A server that refuses some requests as a whole, as one that has lost its scripts.
async fn serve(mut stream: DuplexStream, executed: Executed) {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
        while let Some((args, length)) = parse(&bytes) {
            bytes.drain(..length);
            let keys: usize = args[2].parse().expect("the number of keys");
            let is_by_hash = args[0] == "EVALSHA";
            let reply = match choose(4) {
                0 if is_by_hash => "-NOSCRIPT unknown\r\n".to_owned(),
                1 if keys > 1 => "-NOPERM a key\r\n".to_owned(),
                _ => {
                    executed.lock().expect("no panic").extend(args[3..3 + keys].iter().cloned());
                    let list = if keys > 1 { format!("*{keys}\r\n") } else { String::new() };
                    list + &":1\r\n".repeat(keys)
                }
            };
            if stream.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the arguments of the first request in `bytes`, and its length, if it is complete.
fn parse(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let mut at = 0;
    let number = |at: &mut usize| -> Option<usize> {
        let end = *at + bytes.get(*at..)?.windows(2).position(|two| two == b"\r\n")?;
        let text = std::str::from_utf8(&bytes[*at + 1..end]).expect("a number");
        *at = end + 2;
        Some(text.parse().expect("a number"))
    };
    let count = number(&mut at)?;
    let mut args = Vec::new();
    for _ in 0..count {
        let length = number(&mut at)?;
        args.push(String::from_utf8_lossy(bytes.get(at..at + length)?).into_owned());
        at += length + 2;
    }
    (at <= bytes.len()).then_some((args, at))
}

/// How a caller sees the end of its step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Executed,
    NotSent,
    /// The caller was dropped, and has sent an undo. Before, the step was queued or sent.
    Undone {
        was_queued: bool,
    },
    /// The connection broke.
    InDoubt,
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Replied(Value::Int(1), _) => Self::Executed,
            Outcome::Unsent(Unsent::Closed | Unsent::Abandoned) => Self::NotSent,
            Outcome::Broken(..) => Self::InDoubt,
            _ => panic!("not an outcome of this server"),
        }
    }
}

/// Sends a step, and gives it up in one of several ways, or not.
async fn send(multiplexer: Arc<Multiplexer>, number: usize) -> End {
    let is_gone = Arc::new(AtomicBool::new(false));
    let step = call(&format!("step-{number}"), Caller::with(Arc::clone(&is_gone) as Arc<dyn Presence>));
    multiplexer.call(&step, false, clock::now(), Moment::NEVER);
    let mut outcome = step.slot.outcome();
    for _ in 0..choose(3) {
        if let Some(outcome) = poll_once(&mut outcome).await {
            return outcome.into();
        }
        shuttle::future::yield_now().await;
    }
    match choose(3) {
        // As a caller that is dropped: a step that is not sent yet must not be, and the engine awaits the outcome.
        0 => {
            is_gone.store(true, Ordering::Release);
            let was_queued = multiplexer.has_queued(&step);
            let end = outcome.await.into();
            assert!(!was_queued || end != End::Executed, "sent without a caller");
            return end;
        }
        1 => {
            drop(outcome);
            let was_queued = multiplexer.has_queued(&step);
            let undo = call(&format!("undo-{number}"), Caller::ENGINE);
            multiplexer.call(&undo, false, clock::now(), Moment::NEVER);
            let is_executed = End::from(undo.slot.outcome().await) == End::Executed;
            return if is_executed { End::Undone { was_queued } } else { End::InDoubt };
        }
        _ => {}
    }
    outcome.await.into()
}

/// Several callers on one connection, which is retired or broken meanwhile if `breaks`.
fn many_callers(breaks: bool) {
    let (client, server) = tokio::io::duplex(256);
    let (reader, writer) = tokio::io::split(Box::pin(client) as Stream);
    let multiplexer = Arc::new(Multiplexer::new(1, ServerMode::Standalone, writer));
    let executed = Executed::default();
    let server = spawn(serve(server, Arc::clone(&executed)));
    let driver = spawn(driver::run(Arc::clone(&multiplexer), reader, pending(), drop));
    let callers: Vec<JoinHandle<End>> =
        (0..5).map(|number| spawn(send(Arc::clone(&multiplexer), number))).collect();
    if breaks {
        multiplexer.retire();
        if choose(2) == 0 {
            multiplexer.fail(&std::io::Error::from(std::io::ErrorKind::BrokenPipe).into());
            server.abort();
        }
    }
    let ends: Vec<End> = callers.into_iter().map(|caller| block_on(caller).expect("no panic")).collect();
    driver.abort();
    drop(multiplexer);
    let _ = (block_on(driver), block_on(server));

    let executed = executed.lock().expect("no panic");
    let mut first = HashMap::new();
    for (at, name) in executed.iter().enumerate() {
        assert!(first.insert(name.as_str(), at).is_none(), "executed twice: {executed:?}");
    }
    for (number, end) in ends.into_iter().enumerate() {
        let (step, undo) = (format!("step-{number}"), format!("undo-{number}"));
        let (step, undo) = (first.get(step.as_str()), first.get(undo.as_str()));
        assert!(undo.is_none() || step < undo, "executed after its undo: {executed:?}");
        match end {
            End::Executed => assert!(step.is_some(), "{number} was not executed: {executed:?}"),
            End::NotSent => assert!(step.is_none(), "{number} was executed: {executed:?}"),
            End::Undone { was_queued } => {
                assert!(undo.is_some() && !(was_queued && step.is_some()), "{executed:?}");
            }
            End::InDoubt => assert!(breaks),
        }
    }
}

#[test]
fn a_step_is_executed_once_at_most_and_never_after_its_undo() {
    explore(1_000, || many_callers(false));
}

#[test]
fn on_a_connection_that_closes_every_caller_gets_an_outcome() {
    explore(500, || many_callers(true));
}
