use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, SET_COOKIE,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::json;
use turnlock::Client;

use super::access::Access;
use super::assets::ASSETS;
use super::examination::Examination;
use super::feed::Feed;
use super::observation::Observation;
use super::unlock_request::UnlockRequest;
use super::viewer::Viewer;
use crate::commands::unlock::WARNING;
use crate::dashboard_arguments::DashboardArguments;

/// The most bytes of a body: an unlock has a name and an owner.
const MAX_BODY: usize = 32 * 1024;

/// How long a request may take: a body that comes slowly, or a store that does not reply. Tests do not wait so long.
const REQUEST_LIMIT: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 60_000 });

/// The headers of every response: nothing of another origin is loaded, and no other page may embed or read this one.
const HEADERS: [(HeaderName, &str); 8] = [
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// What all requests share.
#[derive(Debug)]
pub(super) struct App {
    client: Client,
    /// The URL of the store, without its password.
    url: String,
    access: Access,
    feed: Arc<Feed>,
    examination: Examination,
    allow_unlock: bool,
    interval: Duration,
    limit: usize,
}

impl App {
    pub(super) fn new(client: Client, url: String, access: Access, arguments: &DashboardArguments) -> Self {
        let &DashboardArguments { allow_unlock, interval, limit, .. } = arguments;
        let (feed, examination) = (Arc::new(Feed::new()), Examination::default());
        Self { client, url, access, feed, examination, allow_unlock, interval, limit }
    }

    /// Examines the store once, and then queries it for the viewers.
    pub(super) async fn run(&self) {
        let feed = self.feed.run(self.interval, || Observation::query(&self.client, self.limit));
        tokio::join!(self.examination.examine(&self.client, false), feed);
    }

    /// Ends the streams of all viewers.
    pub(super) fn end(&self) {
        self.feed.end();
    }
}

/// The routes. Without `--allow-unlock`, none of them takes or releases a lock.
pub(super) fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/api/session", get(session))
        .route("/api/login", post(login))
        .route("/api/events", get(events))
        .route("/api/holds/{name}", get(holds))
        .route("/api/doctor", get(last_examination).post(examine));
    if app.allow_unlock {
        router = router.route("/api/unlock", post(unlock));
    }
    for &(path, media_type, text) in ASSETS {
        router = router.route(path, get(move || async move { ([(CONTENT_TYPE, media_type)], text) }));
    }
    router
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found\n") })
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(Arc::clone(app), guard))
        .with_state(Arc::clone(app))
}

/// Refuses what the rules do not allow, and adds the headers to each response.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let mut response = match app.access.check(&request) {
        Ok(()) => tokio::time::timeout(REQUEST_LIMIT, next.run(request))
            .await
            .unwrap_or_else(|_| (StatusCode::REQUEST_TIMEOUT, "the request took too long\n").into_response()),
        // Whoever has no business here keeps no connection.
        Err(refusal) => ([(CONNECTION, "close")], refusal).into_response(),
    };
    let headers = response.headers_mut();
    headers.extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    if response.status() == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

async fn session(State(app): State<Arc<App>>) -> Response {
    json(&json!({
        "store": app.url,
        "version": env!("CARGO_PKG_VERSION"),
        "csrf": app.access.csrf(),
        "allow_unlock": app.allow_unlock,
        // An event stream cannot tell the page why it was refused.
        "has_room": app.feed.has_room_for(1),
        "interval_ms": u64::try_from(app.interval.as_millis()).unwrap_or(u64::MAX),
        "warning": WARNING,
    }))
}

async fn login(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    (StatusCode::NO_CONTENT, [(SET_COOKIE, app.access.cookie(&headers))]).into_response()
}

async fn events(State(app): State<Arc<App>>) -> Response {
    match Viewer::new(&app.feed) {
        Some(viewer) => Sse::new(viewer.into_events()).keep_alive(KeepAlive::default()).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "too many viewers: close other pages\n").into_response(),
    }
}

async fn holds(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response {
    // The sign is there for the names `.` and `..`, which a browser would resolve.
    match name.strip_prefix('=') {
        Some(name) => json(&app.feed.holds(name)),
        None => (StatusCode::NOT_FOUND, "not found\n").into_response(),
    }
}

async fn last_examination(State(app): State<Arc<App>>) -> Response {
    json(&app.examination.last_or_first().await)
}

async fn examine(State(app): State<Arc<App>>) -> Response {
    json(&app.examination.examine(&app.client, app.allow_unlock).await)
}

async fn unlock(State(app): State<Arc<App>>, body: Bytes) -> Response {
    let Ok(request) = serde_json::from_slice::<UnlockRequest>(&body) else {
        return (StatusCode::BAD_REQUEST, "the request is not complete: reload the page\n").into_response();
    };
    // It comes to its end even if the viewer leaves, or the limit of a request passes.
    let performed = tokio::spawn(async move {
        let outcome = request.perform(&app.client, &app.feed).await;
        app.feed.query_soon();
        outcome
    });
    match performed.await {
        Ok(outcome) => outcome.into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the request failed: look at the lock again\n")
            .into_response(),
    }
}

fn json(value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::commands::dashboard::connections::Connections;

    #[tokio::test]
    async fn a_body_that_does_not_end_is_not_awaited() {
        let command = DashboardArguments::augment_args(clap::Command::new("dashboard"));
        let matches = command.get_matches_from(["dashboard", "--allow-unlock"]);
        let arguments = DashboardArguments::from_arg_matches(&matches).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let access = Access::new(&arguments).unwrap();
        let client = Client::connect("memory://").await.unwrap();
        let app = Arc::new(App::new(client, "memory://".to_owned(), access, &arguments));
        let router = router(&app);
        tokio::spawn(async move { Connections::new(listener, None).serve(router).await });
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!(
            "POST /api/unlock HTTP/1.1\r\nHost: {address}\r\nX-Turnlock-Dashboard: {}\r\nContent-Length: 9\r\n\r\n{{",
            app.access.csrf()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = [0; 12];
        let read = stream.read_exact(&mut response);
        tokio::time::timeout(Duration::from_secs(30), read).await.expect("a response").unwrap();
        assert_eq!(&response, b"HTTP/1.1 408");
    }
}
