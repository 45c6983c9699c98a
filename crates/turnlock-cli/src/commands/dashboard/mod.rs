//! `turnlock dashboard`: a web page of the locks, with its server.

mod access;
mod app;
mod assets;
mod connections;
mod examination;
mod feed;
mod history;
mod lock_records;
mod observation;
mod secret;
mod tls;
mod unlock_request;
mod viewer;
mod write_timeout;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use turnlock::Client;

use super::stop_signal::StopSignal;
use crate::arguments::StoreArguments;
use crate::dashboard_arguments::DashboardArguments;
use crate::store;
use access::Access;
use app::App;
use connections::Connections;

/// How long an acquire or a release of the doctor is retried. A query is not: the next one follows.
const RETRY_FOR: Duration = Duration::from_secs(2);

/// `turnlock dashboard`: serves the page until a signal ends it.
pub(crate) async fn dashboard(
    store: &StoreArguments,
    arguments: DashboardArguments,
) -> anyhow::Result<ExitCode> {
    let tls = tls::acceptor(&arguments)?;
    let address = arguments.listen;
    let access = Access::new(&arguments)?;
    let client = super::connect(store, Client::builder().retry_for(RETRY_FOR)).await?;
    let mut stop = StopSignal::new()?;
    let listener = TcpListener::bind(address).await;
    let listener = listener
        .with_context(|| format!("cannot listen on {address}: give another address or port with --listen"))?;
    let address = listener.local_addr()?;
    let url = store::printable_url(store);
    let scheme = if tls.is_some() { "https" } else { "http" };
    if tls.is_none() && !address.ip().is_loopback() {
        let text = "turnlock: without --tls-cert the token and the page are readable on the network: put a proxy with TLS in front";
        writeln!(anstream::stderr(), "{text}")?;
    }
    let app = Arc::new(App::new(client, url.clone(), access.on_port(address.port()), &arguments));
    writeln!(anstream::stdout(), "Dashboard of {url} at {scheme}://{address}/")?;
    let connections = Connections::new(listener, tls);
    tokio::select! {
        () = app.run() => {}
        () = connections.serve(app::router(&app)) => {}
        _ = stop.received() => {}
    }
    app.end();
    connections.shut_down().await;
    Ok(ExitCode::SUCCESS)
}
