use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::FutureExt;

use super::*;

fn hold(lease_mode: LeaseMode) -> Arc<Hold> {
    let (name, owner) = (LockName::parse("n").expect("a good name"), OwnerId::from_wire("a:1"));
    let now = clock::now();
    Arc::new(Hold::granted(Claim::new(&name, &owner, 1), lease_mode, (now, now), None))
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).expect("a good lease")
}

/// Without a watchdog, as when it has ended or its runtime does not run.
#[test]
fn the_end_of_the_lease_is_noticed_without_a_watchdog() {
    let hold = hold(LeaseMode::Renewed(lease(100)));
    let (sender, receiver) = mpsc::channel();
    thread::spawn({
        let hold = Arc::clone(&hold);
        move || {
            let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let reason = bare.block_on(hold.until_lost());
            sender.send((reason, clock::now() >= hold.valid_until())).expect("a receiver");
        }
    });
    // A confirmation moves the end.
    hold.confirm_for(lease(300), clock::now());
    let (reason, is_over) = receiver.recv_timeout(Duration::from_secs(10)).expect("lost");
    assert!(is_over && matches!(reason, LostReason::NotRenewed { .. }), "{reason}");
    hold.confirm_for(lease(60_000), clock::now());
    assert!(!hold.is_valid(), "a lost hold became valid again");
}

#[tokio::test]
async fn the_lease_end_of_a_released_hold_is_not_a_loss() {
    let lease_mode = LeaseMode::Fixed(lease(20));
    let hold = hold(lease_mode);
    let mut lost = Box::pin(hold.until_lost());
    assert!(lost.as_mut().now_or_never().is_none());
    hold.end_guard(lease_mode, Event::GuardEnded, clock::now());
    let outcome = tokio::time::timeout(Duration::from_millis(100), lost).await;
    assert!(outcome.is_err(), "released, not lost");
    assert!(hold.until_lost().now_or_never().is_none());
}
