//! What holds for every call: a deadline, a place among the calls under way, metrics, and that a panic costs one answer.
//!
//! The layer sits between tonic's HTTP/2 server and its services. It owns each call until the last byte of its answer: the
//! permit is given back, and the code counted, when the answer's body ends or is dropped.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body::{Body as HttpBody, Frame};
use pando_engine::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::errors::{internal, refuse, status};
use crate::settings::Settings;

/// Calls that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Read,
    Write,
    Stream,
    /// Health and reflection answer however busy the server is.
    Free,
}

impl Class {
    fn of(path: &str) -> Self {
        match path {
            "/pando.v1.RecordService/Upsert" | "/pando.v1.RecordService/Delete" => Self::Write,
            "/arrow.flight.protocol.FlightService/DoPut" => Self::Stream,
            path if path.starts_with("/grpc.health.") || path.starts_with("/grpc.reflection.") => Self::Free,
            _ => Self::Read,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Stream => "stream",
            Self::Free => "free",
        }
    }
}

/// A bound on calls of one class: so many under way, so many waiting, the rest refused.
struct Gate {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

impl Gate {
    fn new(permits: usize, most_waiting: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(permits)), waiting: AtomicUsize::new(0), most_waiting }
    }

    async fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        if let Ok(permit) = self.permits.clone().try_acquire_owned() {
            return Ok(permit);
        }
        // Counted down also when the caller leaves while it waits.
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.most_waiting {
            let error = pando_engine::Error::new(
                ErrorKind::ResourceExhausted,
                "SERVER_BUSY",
                format!("{before} calls wait for their turn already; try again later"),
            );
            return Err(status(error.with_retry_after(Duration::from_millis(500))));
        }
        self.permits.clone().acquire_owned().await.map_err(|_| internal("a gate was closed"))
    }
}

/// Adds [`Edge`] to a service.
#[derive(Clone)]
pub struct EdgeLayer(Arc<Shared>);

struct Shared {
    reads: Gate,
    writes: Gate,
    streams: Gate,
    idle: Duration,
}

impl EdgeLayer {
    /// Limits as set.
    pub fn new(settings: &Settings) -> Self {
        let gate = |permits| Gate::new(permits, settings.waiting);
        Self(Arc::new(Shared {
            reads: gate(settings.reads),
            writes: gate(settings.writes),
            streams: gate(settings.streams),
            idle: settings.idle,
        }))
    }
}

impl<S> Layer<S> for EdgeLayer {
    type Service = Edge<S>;
    fn layer(&self, inner: S) -> Edge<S> {
        Edge { inner, shared: self.0.clone() }
    }
}

/// The service of [`EdgeLayer`].
#[derive(Clone)]
pub struct Edge<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for Edge<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // The service that was found ready is the one to call; the clone takes its place.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let shared = self.shared.clone();
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let class = Class::of(&path);
            let deadline = deadline(request.headers());
            let mut call = Call::start(path, class);
            let admitted = async {
                let permit = match class {
                    Class::Free => None,
                    Class::Read => Some(shared.reads.enter().await?),
                    Class::Write => Some(shared.writes.enter().await?),
                    Class::Stream => Some(shared.streams.enter().await?),
                };
                let idle = shared.idle;
                let request = request.map(|body| Body::new(IdleBody { body, idle, timer: None }));
                Ok::<_, Status>((permit, inner.call(request).await))
            };
            let answered = AssertUnwindSafe(within(deadline, admitted)).catch_unwind().await;
            let (permit, response) = match answered {
                Ok(Ok(Ok((permit, response)))) => (permit, response?),
                Ok(Ok(Err(refused))) => (None, refused.into_http()),
                Ok(Err(Expired)) => (None, expired(class).into_http()),
                Err(panic) => (None, panicked(&*panic).into_http()),
            };
            call.permit = permit;
            Ok(finish(response, call, deadline))
        })
    }
}

/// Rewrites what tonic says about messages that it could not take, and watches over the body.
fn finish(response: Response<Body>, mut call: Call, deadline: Option<Instant>) -> Response<Body> {
    let Some(status) = Status::from_header_map(response.headers()) else {
        let timer = deadline.map(|at| Box::pin(tokio::time::sleep_until(at)));
        return response.map(|body| Body::new(EdgeBody { body: Some(body), call, timer }));
    };
    call.code = Some(status.code());
    match rewrite(&status) {
        Some(better) => {
            call.code = Some(better.code());
            better.into_http()
        }
        None => response,
    }
}

/// A better status for what tonic refuses before our code sees it.
pub fn rewrite(status: &Status) -> Option<Status> {
    let message = status.message();
    if status.code() == Code::OutOfRange && message.contains("message length too large") {
        let words = "the message is larger than the 64 MiB that a message may have; \
                     send fewer records a call, or load them with Arrow Flight's DoPut in smaller batches";
        return Some(refuse(ErrorKind::ResourceExhausted, "MESSAGE_TOO_LARGE", words));
    }
    if status.code() == Code::Internal && message.contains("failed to decode Protobuf message") {
        return Some(refuse(
            ErrorKind::InvalidArgument,
            "MALFORMED_MESSAGE",
            format!("the request is not what the service expects: {message}"),
        ));
    }
    None
}

struct Expired;

async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Result<F::Output, Expired> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, future).await.map_err(|_| Expired),
        None => Ok(future.await),
    }
}

fn expired(class: Class) -> Status {
    let words = match class {
        Class::Write | Class::Stream => {
            "the call's deadline passed; whether the write was applied is not known, and repeating it is harmless"
        }
        Class::Read | Class::Free => "the call's deadline passed",
    };
    refuse(ErrorKind::DeadlineExceeded, "DEADLINE_EXCEEDED", words)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Status {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    metrics::counter!("pando_panics_total").increment(1);
    internal(format!("panic in a handler: {words}"))
}

/// When the caller stops waiting.
fn deadline(headers: &HeaderMap) -> Option<Instant> {
    Instant::now().checked_add(timeout(headers)?)
}

/// `grpc-timeout` of the request, a little early, so that our words arrive and not tonic's.
fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let value: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(value.checked_mul(3600)?),
        "M" => Duration::from_secs(value.checked_mul(60)?),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    };
    let early = (timeout / 10).min(Duration::from_millis(5));
    Some(timeout - early)
}

/// One call's place and its traces in the metrics.
struct Call {
    path: String,
    class: Class,
    start: Instant,
    code: Option<Code>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Call {
    fn start(path: String, class: Class) -> Self {
        metrics::gauge!("pando_requests_in_flight", "class" => class.name()).increment(1.0);
        Self { path, class, start: Instant::now(), code: None, permit: None }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let code = self.code.map_or("Cancelled".to_owned(), |code| format!("{code:?}"));
        // Unknown paths would let a caller fill the memory with labels.
        let known = self.path.starts_with("/pando.v1.") || self.path.starts_with("/arrow.flight.");
        let method = if known && self.code != Some(Code::Unimplemented) {
            std::mem::take(&mut self.path)
        } else {
            "other".into()
        };
        metrics::gauge!("pando_requests_in_flight", "class" => self.class.name()).decrement(1.0);
        metrics::histogram!("pando_request_seconds", "method" => method.clone())
            .record(self.start.elapsed().as_secs_f64());
        metrics::counter!("pando_requests_total", "method" => method, "code" => code).increment(1);
    }
}

/// The body of an answer: ends with words when the deadline passes or its source panics.
struct EdgeBody {
    body: Option<Body>,
    call: Call,
    timer: Option<Pin<Box<Sleep>>>,
}

impl EdgeBody {
    /// Ends the body with a status.
    fn end(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.body = None;
        self.call.code = Some(status.code());
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl HttpBody for EdgeBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(body).poll_frame(cx)));
        match polled {
            Err(panic) => this.end(panicked(&*panic)),
            Ok(Poll::Pending) => {
                let expired_now = this.timer.as_mut().is_some_and(|timer| timer.as_mut().poll(cx).is_ready());
                if expired_now { this.end(expired(this.call.class)) } else { Poll::Pending }
            }
            Ok(Poll::Ready(frame)) => {
                match &frame {
                    Some(Ok(frame)) => {
                        if let Some(trailers) = frame.trailers_ref() {
                            this.call.code = Status::from_header_map(trailers).map(|status| status.code());
                        }
                    }
                    Some(Err(status)) => this.call.code = Some(status.code()),
                    None => {}
                }
                Poll::Ready(frame)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }
}

/// The body of a request: ends with an error when its next part does not come in time.
struct IdleBody {
    body: Body,
    idle: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for IdleBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            this.timer = None;
            return Poll::Ready(frame);
        }
        let idle = this.idle;
        ready!(this.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle))).as_mut().poll(cx));
        this.timer = None;
        let words = format!(
            "nothing came for {} seconds; what was acknowledged is kept, send the rest again",
            idle.as_secs()
        );
        Poll::Ready(Some(Err(refuse(ErrorKind::DeadlineExceeded, "STREAM_IDLE", words))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(timeout: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), timeout.parse().unwrap())])
    }

    #[test]
    fn deadlines_are_read_in_every_unit() {
        let after = |text: &str| timeout(&headers(text));
        assert_eq!(after("1S"), Some(Duration::from_millis(995)));
        assert_eq!(after("10m"), Some(Duration::from_millis(9)));
        assert_eq!(after("2H"), Some(Duration::from_secs(7200) - Duration::from_millis(5)));
        assert!(after("3M").is_some() && after("5u").is_some() && after("5n").is_some());
        for bad in ["", "S", "1", "xS", "1é", "1x"] {
            let header = http::HeaderValue::from_bytes(bad.as_bytes()).unwrap();
            let headers = HeaderMap::from_iter([(http::HeaderName::from_static("grpc-timeout"), header)]);
            assert_eq!(timeout(&headers), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_full_gate_lets_some_wait_and_refuses_the_rest_with_a_time() {
        let gate = Arc::new(Gate::new(1, 1));
        let first = gate.enter().await.unwrap();
        let second = tokio::spawn({
            let gate = gate.clone();
            async move { gate.enter().await.map(drop) }
        });
        while gate.waiting.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        let refused = gate.enter().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(tonic_types::StatusExt::get_error_details(&refused).retry_info().is_some());
        drop(first);
        second.await.unwrap().unwrap();
        assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn tonics_own_refusals_get_our_words() {
        let large = Status::out_of_range(
            "Error, decoded message length too large: found 9 bytes, the limit is: 8 bytes",
        );
        assert_eq!(rewrite(&large).unwrap().code(), Code::ResourceExhausted);
        let malformed = Status::internal("failed to decode Protobuf message: Id.text: invalid string value");
        let better = rewrite(&malformed).unwrap();
        assert_eq!(better.code(), Code::InvalidArgument);
        assert!(better.message().contains("Id.text"));
        assert!(rewrite(&Status::internal("something else")).is_none());
    }
}
