//! `turnlock bench`: what the store can do, measured in seconds.

mod course;
mod latencies;
mod measure;
mod progress;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use turnlock::Client;

use self::course::Course;
use super::stop_signal::StopSignal;
use crate::arguments::{BenchArguments, StoreArguments};
use crate::store;
use crate::visible::json;

/// How long to wait at the end until all is given back.
const TIDY: Duration = Duration::from_secs(5);

pub(crate) async fn bench(store: &StoreArguments, arguments: BenchArguments) -> anyhow::Result<ExitCode> {
    let store = shared(store);
    let builder = || Client::builder().label("turnlock bench");
    let clients = [store::connect(&store, builder()).await?, store::connect(&store, builder()).await?];
    let mut stop = StopSignal::new()?;
    let course = Course::new(&clients, &arguments);
    let outcome = tokio::select! {
        code = stop.received() => Err(code),
        measured = progress::beside(course.duration(), |bar| course.run(bar)) => Ok(measured),
    };
    // What was dropped where it stood is given back in the background.
    for client in &clients {
        if !client.shutdown(TIDY).await.is_clean() {
            let names = &arguments.names;
            let text = format!(
                "the store has not confirmed that all is given back: some locks {names:?}… end with their leases"
            );
            writeln!(anstream::stderr(), "turnlock: {text}")?;
        }
    }
    let measure = match outcome {
        Err(code) => return Ok(code),
        Ok(measured) => measured?,
    };
    let mut out = anstream::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json(&measure)?)?;
    } else {
        measure.write(&mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The store, under a name if it is one in memory: two clients must meet there.
fn shared(arguments: &StoreArguments) -> StoreArguments {
    let mut arguments = arguments.clone();
    if store::is_memory(&arguments) {
        let url = arguments.store.as_deref().unwrap_or_default().trim();
        let (place, query) = url.split_at(url.find('?').unwrap_or(url.len()));
        if place.trim_end_matches('/').ends_with(':') {
            arguments.store = Some(format!("memory://turnlock-bench{query}"));
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clients_meet_in_memory() {
        let shared_url = |url: &str| {
            let arguments = StoreArguments { store: Some(url.to_owned()), password_file: None };
            shared(&arguments).store.unwrap()
        };
        assert_eq!(shared_url("memory://"), "memory://turnlock-bench");
        assert_eq!(shared_url("Memory:?a=b"), "memory://turnlock-bench?a=b");
        assert_eq!(shared_url("memory://mine"), "memory://mine");
        assert_eq!(shared_url("redis://host"), "redis://host");
    }
}
