use std::pin::pin;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};

/// Redraw interval of the bar.
const TICK: Duration = Duration::from_millis(100);

/// Runs `work`, which takes about `time`, with a progress bar on standard error if that is a terminal.
///
/// The bar is removed when the work ends or is cancelled.
pub(super) async fn with_progress_bar<F: Future>(
    time: Duration,
    work: impl FnOnce(ProgressBar) -> F,
) -> F::Output {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let style =
        ProgressStyle::with_template("{wide_bar} {msg:18}").unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(millis(time)).with_style(style).with_finish(ProgressFinish::AndClear);
    let start = Instant::now();
    let mut tick = tokio::time::interval(TICK);
    let mut work = pin!(work(bar.clone()));
    loop {
        tokio::select! {
            done = &mut work => return done,
            _ = tick.tick() => bar.set_position(millis(start.elapsed())),
        }
    }
}
