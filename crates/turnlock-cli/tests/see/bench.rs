//! `bench` measures, and leaves nothing behind.

use std::process::Stdio;
use std::time::Duration;

use turnlock_testkit::eventually;

use crate::ground::Ground;
use crate::program::{code_of, signal};
use crate::{Case, cases};

pub(crate) const CASES: &[Case] =
    cases![it_measures_and_tidies_up, it_tidies_up_when_it_is_stopped, it_does_not_take_for_ever];

async fn it_measures_and_tidies_up(ground: Ground) {
    let measures = ground.objects(&["bench", "--json", "--time", "1", "--tasks", "4"]).await;
    let [measure] = &measures[..] else { panic!("{measures:?}") };
    assert!(measure["serial"]["pairs"].as_u64().unwrap() > 0, "{measure}");
    assert!(measure["concurrent"]["pairs_per_second"].as_f64().unwrap() > 0.0, "{measure}");
    assert_eq!(measure["concurrent"]["tasks"], 4, "{measure}");
    assert!(measure["hand_over"]["times"].as_u64().unwrap() > 0, "{measure}");
    let times = ["p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"]
        .map(|time| measure["latency"][time].as_f64().unwrap());
    assert!(times.is_sorted() && times[0] > 0.0, "{measure}");
    let counted: u64 =
        measure["histogram"].as_array().unwrap().iter().map(|bar| bar["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), measure["serial"]["pairs"].as_u64(), "{measure}");
    nothing_is_left(&ground).await;
}

async fn it_tidies_up_when_it_is_stopped(ground: Ground) {
    let arguments = ["bench", "--time", "3s", "--tasks", "2", "--names", "mine:"];
    let child = ground.program(&arguments).printing_to(Stdio::null(), Stdio::inherit()).start();
    let client = ground.client("onlooker").await;
    // In this part, one of the two has the lock at any time.
    eventually("the last part is under way", Duration::from_secs(20), || async {
        !client.find("mine:*:hand-over", 10).await.unwrap().things.is_empty()
    })
    .await;
    signal(&child, "-INT").await;
    assert_eq!(code_of(child).await, Some(130));
    nothing_is_left(&ground).await;
}

async fn it_does_not_take_for_ever(ground: Ground) {
    for time in ["1e19", "3601", "2h"] {
        let ended = ground.run(&["bench", "--time", time]).await;
        assert_eq!(ended.code, Some(64), "{ended:?}");
        assert!(ended.err.contains("an hour"), "{ended:?}");
    }
}

async fn nothing_is_left(ground: &Ground) {
    let listed = ground.run(&["ls"]).await;
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), ""), "{listed:?}");
}
