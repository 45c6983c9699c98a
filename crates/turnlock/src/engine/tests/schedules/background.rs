use shuttle::future::spawn_local;

use super::*;
use crate::engine::RunToCompletion;

/// Counts as one when it is dropped, as a grant that releases its lock.
struct CountedOnDrop(Arc<AtomicU32>);

impl Drop for CountedOnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_request_whose_caller_is_dropped_is_completed_once_and_its_result_dropped() {
    explore(400, |_| {
        let (background, runner) = BackgroundTasks::new();
        let runner = spawn(runner);
        let (began, ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let callers = (0..2).map(|_| {
            let (background, began, ended) = (background.clone(), Arc::clone(&began), Arc::clone(&ended));
            spawn_local(async move {
                let work = async move {
                    began.fetch_add(1, Ordering::Relaxed);
                    message().await;
                    message().await;
                    CountedOnDrop(ended)
                };
                drop(given_up_after(choose(4), RunToCompletion::boxed(&background, work)).await);
            })
        });
        let callers: Vec<_> = callers.collect();
        block_on(async {
            for caller in callers {
                caller.await.expect("no panic");
            }
            // The runner ends after the last of the work.
            drop(background);
            runner.await.expect("no panic");
        });
        assert_eq!(began.load(Ordering::Relaxed), ended.load(Ordering::Relaxed));
    });
}
