use turnlock_core::hold_state::Phase;

use super::*;
use crate::engine::{ReenterRequest, reenter};

/// A guard ends while its hold is reentered, checked, and perhaps lost.
fn end_and_reenter(runtime: &'static Runtime, is_lost: bool) {
    let (fixture, tasks) = Fixture::start(runtime, Kind::Lock);
    let grant = block_on(fixture.acquire()).expect("free");
    let hold = Arc::clone(&grant.hold);
    let lost = spawn({
        let hold = Arc::clone(&hold);
        async move {
            let reason = hold.until_lost().await;
            assert!(hold.lost().is_some() && !hold.is_valid(), "{reason}");
        }
    });
    let reentry = spawn({
        let (fixture, hold) = (Arc::clone(&fixture), Arc::clone(&hold));
        async move {
            let request = ReenterRequest { lease_mode: RENEWED, wait_limit: WaitLimit::Endless, replicas: 0 };
            let reentered = reenter(&fixture.engine, &hold, request);
            match given_up_after(1 + choose(6), reentered).await {
                Some(Ok(grant)) => {
                    assert!(hold.guards() > 0, "a guard without a hold");
                    end(grant).await;
                }
                None | Some(Err(Error::NotHeld { .. } | Error::Lost { .. })) => {}
                Some(Err(error)) => panic!("{error}"),
            }
        }
    });
    let check = spawn({
        let fixture = Arc::clone(&fixture);
        async move { if is_lost { fixture.force_unlock().await } else { fixture.engine.connection_changed() } }
    });
    let end = spawn(end(grant));
    fixture.finish(vec![reentry, check, end], tasks);

    let phase = hold.inner().state.phase;
    assert_eq!(hold.guards(), 0, "a guard is left: {phase:?}");
    assert_eq!(hold.inner().renewals_under_way, 0);
    match phase {
        // Woken, or this waits in vain.
        Phase::Lost(_) => block_on(lost).expect("lost"),
        Phase::Released | Phase::Gone => {
            assert!(is_lost || phase == Phase::Released);
            lost.abort();
            assert!(block_on(lost).is_err(), "reported as lost, but it was released");
        }
        other => panic!("not ended: {other:?}"),
    }
}

#[test]
fn guards_and_phase_agree_when_a_guard_ends_during_a_reentry_and_a_renewal() {
    explore(1_000, |runtime| end_and_reenter(runtime, false));
}

#[test]
fn a_hold_is_reported_as_lost_exactly_if_it_is() {
    explore(1_000, |runtime| end_and_reenter(runtime, true));
}
