//! `bench`.

use std::process::Stdio;
use std::time::Duration;

use turnlock_testkit::eventually;

use crate::fixture::Fixture;
use crate::program::{code_of, signal};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    it_measures_and_releases_its_locks,
    it_releases_its_locks_when_interrupted,
    more_than_an_hour_is_rejected
];

async fn it_measures_and_releases_its_locks(fixture: Fixture) {
    let measurements = fixture.objects(&["bench", "--json", "--time", "1", "--tasks", "4"]).await;
    let [measurement] = &measurements[..] else { panic!("{measurements:?}") };
    assert!(measurement["serial"]["pairs"].as_u64().unwrap() > 0, "{measurement}");
    assert!(measurement["concurrent"]["pairs_per_second"].as_f64().unwrap() > 0.0, "{measurement}");
    assert_eq!(measurement["concurrent"]["tasks"], 4, "{measurement}");
    assert!(measurement["hand_over"]["times"].as_u64().unwrap() > 0, "{measurement}");
    let times = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"]
        .map(|time| measurement["latency"][time].as_f64().unwrap());
    assert!(times.is_sorted() && times[0] > 0.0, "{measurement}");
    let counted: u64 =
        measurement["histogram"].as_array().unwrap().iter().map(|bar| bar["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), measurement["serial"]["pairs"].as_u64(), "{measurement}");
    no_locks_are_left(&fixture).await;
}

async fn it_releases_its_locks_when_interrupted(fixture: Fixture) {
    let arguments = ["bench", "--time", "3s", "--tasks", "2", "--names", "mine:"];
    let child = fixture.program(&arguments).printing_to(Stdio::null(), Stdio::inherit()).start();
    let client = fixture.client("observer").await;
    // In this part, one of the two clients holds the lock at any time.
    eventually("the hand-over part has started", Duration::from_secs(20), || async {
        !client.find("mine:*:hand-over", 10).await.unwrap().items.is_empty()
    })
    .await;
    signal(&child, "-INT").await;
    assert_eq!(code_of(child).await, Some(130));
    no_locks_are_left(&fixture).await;
}

async fn more_than_an_hour_is_rejected(fixture: Fixture) {
    for time in ["1e19", "3601", "2h"] {
        let ended = fixture.run(&["bench", "--time", time]).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("an hour"), "{ended:?}");
    }
}

async fn no_locks_are_left(fixture: &Fixture) {
    let listed = fixture.run(&["ls"]).await;
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""), "{listed:?}");
}
