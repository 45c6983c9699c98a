//! The spans of acquires, holds and releases, as an OTLP receiver gets them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::routing::post;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper_util::client::legacy::Client as HttpConnections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::trace::SdkTracerProvider;
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Instrument, Subscriber, info_span};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use turnlock::{Client, MemoryStore};
use turnlock_core::LockName;
use turnlock_core::model::{Acquired, Reply, Step};
use turnlock_store::{
    Cause, Failure, FailureKind, ReplyFuture, Sent, Signals, StepOptions, StepReply, Store, clock,
};

/// The longest reply of the receiver, in bytes.
const MAX_REPLY: usize = 1024;

/// The spans that a receiver of OTLP over HTTP has got.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Span>>>);

impl Received {
    /// Serves on a free port, and returns the URL.
    async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
        let router = Router::new().route("/v1/traces", post(Self::receive)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    #[expect(clippy::unused_async, reason = "a handler of axum")]
    async fn receive(State(Self(spans)): State<Self>, body: Bytes) {
        let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
        let scopes = request.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        spans.lock().expect("no panic").extend(scopes.flat_map(|scope| scope.spans));
    }

    /// The spans of this name, in the order of their starts.
    fn named(&self, name: &str) -> Vec<Span> {
        let mut spans: Vec<_> =
            self.0.lock().expect("no panic").iter().filter(|span| span.name == name).cloned().collect();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }
}

/// Sends on a runtime: the exporter has a thread of its own, and the client needs tokio.
#[derive(Debug)]
struct OnRuntime(Handle, HttpConnections<HttpConnector, Body>);

impl HttpClient for OnRuntime {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> BoxFuture<'b, Result<Response<Bytes>, HttpError>>
    where
        'a: 'b,
    {
        let reply = self.1.request(request.map(Body::from));
        let received = self.0.spawn(async move {
            let (head, body) = reply.await?.into_parts();
            let body = to_bytes(Body::new(body), MAX_REPLY).await?;
            Ok(Response::from_parts(head, body))
        });
        Box::pin(async { received.await? })
    }
}

fn fields(span: &Span) -> HashMap<&str, Value> {
    let value = |value: &opentelemetry_proto::tonic::common::v1::AnyValue| value.value.clone();
    let fields = span.attributes.iter();
    fields.filter_map(|field| Some((field.key.as_str(), field.value.as_ref().and_then(value)?))).collect()
}

fn text(value: &str) -> Value {
    Value::StringValue(value.to_owned())
}

fn number(value: &Value) -> f64 {
    match value {
        Value::DoubleValue(number) => *number,
        other => panic!("not a number: {other:?}"),
    }
}

#[tokio::test]
async fn a_receiver_gets_the_spans_of_a_lock_under_the_span_of_its_caller() {
    let received = Received::default();
    let url = received.serve().await;
    let connections = HttpConnections::builder(TokioExecutor::new()).build_http();
    let client = OnRuntime(Handle::current(), connections);
    let exporter = SpanExporter::builder().with_http().with_http_client(client);
    let exporter = exporter.with_protocol(Protocol::HttpBinary).with_endpoint(url);
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter.build().expect("an exporter")).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let filter = Targets::new()
        .with_target("spans", LevelFilter::INFO)
        .with_target("turnlock::spans", LevelFilter::DEBUG);
    let subscriber = tracing_subscriber::registry().with(layer.with_filter(filter));
    let tracing = tracing::subscriber::set_default(subscriber);

    let client = Client::builder().memory(&MemoryStore::new()).expect("a memory store");
    let lock = client.fenced_lock("account:7");
    let (owner, token) = async {
        let guard = lock.lock().await.expect("free");
        assert!(lock.lock().now_or_never().is_none());
        assert!(lock.try_lock().await.expect("a reply").is_busy());
        tokio::time::sleep(Duration::from_millis(20)).await;
        let identity = (guard.owner_id().to_string(), guard.token().expect("a token"));
        guard.unlock().await.expect("held");
        identity
    }
    .instrument(info_span!("ship order"))
    .await;
    drop(client.lock("dropped").lock().await.expect("free"));
    assert!(client.shutdown(Duration::from_secs(60)).await.is_clean());
    drop(tracing);
    tokio::task::spawn_blocking(move || provider.shutdown().expect("flushed")).await.expect("no panic");

    let [caller] = received.named("ship order").try_into().expect("one span of the caller");
    let acquires = received.named("turnlock.acquire");
    let outcomes: Vec<_> = acquires.iter().map(|span| fields(span)["outcome"].clone()).collect();
    assert_eq!(outcomes, ["granted", "cancelled", "busy", "granted"].map(text));
    let [acquire, cancelled, ..] = &acquires[..] else { panic!("{acquires:?}") };
    let [hold, dropped_hold] = &received.named("turnlock.hold")[..] else { panic!("two holds") };
    let [release, dropped_release] = &received.named("turnlock.release")[..] else { panic!("two releases") };
    for span in [acquire, cancelled, hold, release] {
        assert_eq!(span.parent_span_id, caller.span_id, "{span:?}");
        assert_eq!(span.trace_id, caller.trace_id, "{span:?}");
        let fields = fields(span);
        assert_eq!((&fields["name"], &fields["kind"]), (&text("account:7"), &text("fenced")));
    }
    for span in [acquire, hold, release] {
        assert_eq!(fields(span)["owner"], text(&owner), "{span:?}");
    }
    for span in [acquire, hold] {
        assert_eq!(fields(span)["token"], Value::IntValue(i64::try_from(token).expect("not so high")));
    }
    assert!(number(&fields(acquire)["waited_ms"]) >= 0.0);
    assert!(number(&fields(hold)["held_ms"]) >= 20.0);
    assert!(hold.end_time_unix_nano - hold.start_time_unix_nano >= 20_000_000, "{hold:?}");
    assert!(
        acquire.end_time_unix_nano <= hold.end_time_unix_nano && !fields(cancelled).contains_key("owner")
    );
    for (span, outcome) in
        [(hold, "released"), (dropped_hold, "released"), (release, "released"), (dropped_release, "released")]
    {
        assert_eq!(fields(span)["outcome"], text(outcome));
    }
    assert!(dropped_release.parent_span_id.is_empty());
}

/// The name, the lock and the outcome of each span that has ended, in their order.
#[derive(Clone, Default)]
struct Ended(Arc<Mutex<Vec<[String; 3]>>>);

impl Ended {
    /// The outcomes of these spans of a lock.
    fn outcomes(&self, span: &str, lock: &str) -> Vec<String> {
        let ended = self.0.lock().expect("no panic");
        let of_lock = ended.iter().filter(|[name, of, _]| name == span && of == lock);
        of_lock.map(|[.., outcome]| outcome.clone()).collect()
    }
}

/// The lock and the outcome of a span.
#[derive(Default)]
struct Fields([String; 2]);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "name" => value.clone_into(&mut self.0[0]),
            "outcome" => value.clone_into(&mut self.0[1]),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Ended {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).expect("a span").extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).expect("a span");
        values.record(span.extensions_mut().get_mut::<Fields>().expect("a new span"));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).expect("a span");
        let Fields([lock, outcome]) = span.extensions_mut().remove().expect("a new span");
        self.0.lock().expect("no panic").push([span.name().to_owned(), lock, outcome]);
    }
}

/// A store that grants everything, and fails with all releases: they are denied, or get no reply.
#[derive(Debug)]
struct NoReleases;

impl Store for NoReleases {
    fn call(&self, step: Step, _: StepOptions) -> ReplyFuture<Reply> {
        let sent = Sent { connection: 1, at: clock::now() };
        let cause: Cause = Arc::new(io::Error::other("a test"));
        Box::pin(ready(match step {
            Step::Release(claim) if claim.name.as_str() == "denied" => {
                Err(Failure::refused(FailureKind::Denied(cause)))
            }
            Step::Release(_) => {
                let kind = FailureKind::Unavailable(cause);
                Err(Failure { in_doubt: Some(sent), ..Failure::refused(kind) })
            }
            _ => Ok(StepReply::new(Reply::Acquired(Acquired::Granted), sent)),
        }))
    }

    fn subscribe(&self, _: &LockName) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }

    fn unsubscribe(&self, _: &LockName) {}

    fn attach(&self, _: Weak<dyn Signals>) {}
}

#[tokio::test]
async fn each_span_has_its_outcome() {
    let ended = Ended::default();
    let filter = Targets::new().with_target("turnlock::spans", LevelFilter::DEBUG);
    let subscriber = tracing_subscriber::registry().with(ended.clone().with_filter(filter));
    let _tracing = tracing::subscriber::set_default(subscriber);

    // It hands locks over, also on a busy machine.
    let builder = Client::builder().watchdog_timeout(Duration::from_secs(600));
    let builder = builder.hand_over_window(Duration::from_secs(60));
    let client = builder.memory(&MemoryStore::new()).expect("a memory store");
    let lock = client.lock("held");
    let guard = lock.lock().await.expect("free");
    assert!(lock.try_lock().await.expect("a reply").is_busy());
    assert!(lock.try_lock_for(Duration::from_millis(20)).await.expect("a reply").is_busy());
    assert!(lock.lock().now_or_never().is_none());
    lock.with_replicas(1).try_lock().await.expect_err("a memory store has no replicas");
    let mut next = Box::pin(lock.lock());
    assert!((&mut next).now_or_never().is_none());
    guard.unlock().await.expect("held");
    next.await.expect("handed over").unlock().await.expect("held");
    let guard = client.lock("left").lock().await.expect("free");
    guard.unlock_after(Duration::from_secs(1)).await.expect("held");
    let guard = client.lock("lost").with_lease(Duration::from_millis(50)).lock().await.expect("free");
    guard.lost().await;
    guard.unlock().await.expect_err("lost");
    // Lost, and noticed by nothing before the release.
    let store = MemoryStore::new();
    let other = Client::builder().memory(&store).expect("a memory store");
    let guard = other.lock("gone").lock().await.expect("free");
    store.lose_data();
    guard.unlock().await.expect_err("gone");
    let builder = Client::builder().retry_for(Duration::from_millis(10));
    let failing = builder.store(|_| Arc::new(NoReleases)).expect("a store");
    for name in ["denied", "no reply"] {
        failing.lock(name).lock().await.expect("free").unlock().await.expect_err(name);
    }

    let acquires = ["granted", "busy", "timed_out", "cancelled", "failed", "handed_over"];
    assert_eq!(ended.outcomes("turnlock.acquire", "held"), acquires);
    for (lock, hold, release) in [
        ("left", "left_to_store", None),
        ("lost", "lost", Some("lost")),
        ("gone", "released", Some("lost")),
        ("denied", "released", Some("failed")),
        ("no reply", "released", Some("in_doubt")),
    ] {
        assert_eq!(ended.outcomes("turnlock.hold", lock), [hold], "{lock}");
        assert_eq!(ended.outcomes("turnlock.release", lock), Vec::from_iter(release), "{lock}");
    }
    assert_eq!(ended.outcomes("turnlock.hold", "held"), ["handed_over", "released"]);
    // A hand-over sends nothing.
    assert_eq!(ended.outcomes("turnlock.release", "held"), ["released"]);
}
