//! An axum service that ships each order once, however many instances of it run.
//!
//! | outcome of the lock | response |
//! |---|---|
//! | acquired | the work, then 200 OK |
//! | busy: another instance ships the order | 409 Conflict |
//! | the store is not available | 503 Service Unavailable, with `Retry-After` |
//! | any other error | 500 Internal Server Error |
//!
//! ```text
//! cargo run --example axum                                            # starts, checks itself, and ends
//! cargo run --example axum -- redis://127.0.0.1                       # the same with locks on Redis
//! cargo run --example axum -- redis://127.0.0.1 127.0.0.1:3000        # serves until Ctrl-C
//! ```

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turnlock::Client;

/// How long a request waits for a busy order: less than its caller waits for the response.
const WAIT: Duration = Duration::from_millis(100);

fn service(client: Client) -> Router {
    Router::new().route("/orders/{id}/ship", post(ship)).with_state(client)
}

async fn ship(State(client): State<Client>, Path(id): Path<String>) -> Result<String, ShipError> {
    let lock = client.lock(&format!("example:order:{id}"));
    let Some(guard) = lock.try_lock_for(WAIT).await?.acquired() else {
        return Err(ShipError::Busy);
    };
    // If the caller disconnects, axum drops this future here: the guard is dropped, and the lock is released.
    print_label(&id).await;
    guard.unlock().await?;
    Ok(format!("order {id} is shipped\n"))
}

/// Stands for the work that must not run twice at a time.
async fn print_label(_id: &str) {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[derive(Debug)]
enum ShipError {
    Busy,
    Lock(turnlock::Error),
}

impl From<turnlock::Error> for ShipError {
    fn from(error: turnlock::Error) -> Self {
        Self::Lock(error)
    }
}

impl IntoResponse for ShipError {
    fn into_response(self) -> Response {
        match self {
            Self::Busy => (StatusCode::CONFLICT, "the order is being shipped\n").into_response(),
            Self::Lock(error) if error.is_retryable() => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], format!("{error}\n"))
                    .into_response()
            }
            Self::Lock(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "memory://".to_owned());
    let address = arguments.next();
    let client = Client::connect(&url).await?;
    let listener = TcpListener::bind(address.as_deref().unwrap_or("127.0.0.1:0")).await?;
    let local = listener.local_addr()?.to_string();
    println!("listening on {local}");

    let serve = axum::serve(listener, service(client.clone()));
    if address.is_some() {
        let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
        serve.with_graceful_shutdown(stop).await?;
    } else {
        tokio::select! {
            ended = async { serve.await } => ended?,
            checked = check(&url, &local) => checked?,
        }
    }

    // After the last request: waits until all locks are released.
    let report = client.shutdown(Duration::from_secs(5)).await;
    println!("clean shutdown: {}", report.is_clean());
    Ok(())
}

/// Sends requests to the service, and checks the status of each response.
async fn check(url: &str, address: &str) -> Result<(), Box<dyn Error>> {
    let other_instance = Client::connect(url).await?;
    let held = other_instance.lock("example:order:7").await?;
    expect("order 7, locked by another instance", &status(address, "/orders/7/ship").await?, "409")?;
    expect("order 8", &status(address, "/orders/8/ship").await?, "200")?;
    held.unlock().await?;
    expect("order 7, released", &status(address, "/orders/7/ship").await?, "200")?;

    // No server listens on this port, so connecting fails as a request does during an outage.
    let port = TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port();
    let builder = Client::builder().connect_timeout(Duration::from_millis(500));
    let Err(error) = builder.connect(&format!("redis://127.0.0.1:{port}")).await else {
        return Err("connected to a closed port".into());
    };
    let response = ShipError::from(error).into_response();
    assert!(response.headers().contains_key(header::RETRY_AFTER));
    expect("no store", response.status().as_str(), "503")
}

fn expect(request: &str, status: &str, expected: &str) -> Result<(), Box<dyn Error>> {
    println!("{request}: {status}");
    if status == expected { Ok(()) } else { Err(format!("expected {expected}, got {status}").into()) }
}

/// Sends a POST request, and returns the status code.
async fn status(address: &str, path: &str) -> Result<String, Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await?;
    let code = response.split(' ').nth(1).ok_or_else(|| format!("not an HTTP response: {response:?}"))?;
    Ok(code.to_owned())
}
