//! The API: HTTP and JSON over the Unix socket.

mod capture;
mod handlers;
mod openapi;
mod revision;
mod simulate;

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use axum::{
    Json, Router,
    extract::DefaultBodyLimit,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};

use tokio::sync::Mutex;

pub use openapi::document as openapi_document;

use crate::{
    actor::Handle,
    liveness,
    metrics::{Format, Names},
    node::Node,
    observe::SharedRoutes,
    problem::{ErrorBody, Failure, Fault, Problem},
};

/// Octets of a desired state: some 300,000 steering rules, and about what the data plane keeps of one.
const STATE_MAX: usize = 64 << 20;

/// What every handler gets.
#[derive(Clone)]
pub struct Context {
    /// The node.
    pub node: Handle<Node>,
    /// The life of functions.
    pub liveness: liveness::Handle,
    /// Held from a state's arrival until it is applied or refused.
    pub applies: Arc<Mutex<()>>,
    /// Held while a report or a scrape is made.
    pub scrapes: Arc<Mutex<Scrapes>>,
    /// Ends captures, and what is not yet applied, when the agent ends.
    pub stop: tokio::sync::watch::Receiver<bool>,
}

/// What scrapes leave to the next.
#[derive(Debug, Default)]
pub struct Scrapes {
    /// Names of what is counted, which stay while nothing is applied.
    names: Option<Arc<Names>>,
    /// The kernel's routes for SIDs, while they do not change.
    routes: SharedRoutes,
    /// When the last one began, its form, and its text while somebody is still being sent it.
    last: Option<(Instant, Format, Weak<String>)>,
}

/// A scrape that several may be sent.
#[derive(Debug, Clone)]
struct Text(Arc<String>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Scrapes {
    /// What was begun after somebody asked is what he asked for: those who wait for their turn share it, and if they read slowly, its
    /// memory.
    fn made_since(&self, asked: Instant, wanted: Format) -> Option<Text> {
        self.last.as_ref().filter(|(begun, format, _)| *begun >= asked && *format == wanted)?.2.upgrade().map(Text)
    }

    fn made(&mut self, begun: Instant, format: Format, text: String) -> Text {
        let text = Arc::new(text);
        self.last = Some((begun, format, Arc::downgrade(&text)));
        Text(text)
    }
}

/// All paths of the socket.
pub fn router(context: Context) -> Router {
    Router::new()
        .route("/openapi.json", get(handlers::openapi))
        .route("/v1/state", get(handlers::get_state).put(handlers::put_state))
        .route("/v1/diff", post(handlers::post_diff))
        .route("/v1/sids", get(handlers::sids))
        .route("/v1/policies", get(handlers::policies))
        .route("/v1/chains", get(handlers::chains))
        .route("/v1/functions", get(handlers::functions))
        .route("/v1/doctor", get(handlers::examine))
        .route("/v1/ports", get(handlers::ports))
        .route("/v1/steering", get(handlers::steering))
        .route("/v1/firewalls", get(handlers::firewalls))
        .route("/v1/drops", get(handlers::drops))
        .route("/v1/outcomes", get(handlers::outcomes))
        .route("/v1/path-mtus", get(handlers::path_mtus))
        .route("/v1/counters", get(handlers::counters))
        .route("/v1/version", get(handlers::version))
        .route("/v1/capture", post(capture::capture))
        .route("/v1/simulate", post(simulate::simulate))
        .route("/v1/inject", post(simulate::inject))
        .route("/metrics", get(handlers::metrics))
        .fallback(async || Failure::one(Fault::Request, no_such_path()).with_status(StatusCode::NOT_FOUND))
        .method_not_allowed_fallback(async || {
            Failure::one(Fault::Request, wrong_method()).with_status(StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(DefaultBodyLimit::max(STATE_MAX))
        .with_state(context)
}

/// The paths of the TCP address for Prometheus: the metrics and nothing else.
pub fn metrics_router(context: Context) -> Router {
    Router::new().route("/metrics", get(handlers::metrics)).with_state(context)
}

fn no_such_path() -> Problem {
    Problem::new("path", "there is no such path", "see GET /openapi.json for all of them")
}

fn wrong_method() -> Problem {
    Problem::new("method", "this path does not take this method", "see GET /openapi.json")
}

impl Failure {
    fn with_status(self, status: StatusCode) -> Response {
        (status, Json(ErrorBody { error: self.problems })).into_response()
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = match self.fault {
            Fault::Request => StatusCode::BAD_REQUEST,
            Fault::Precondition => StatusCode::PRECONDITION_FAILED,
            Fault::Kernel => StatusCode::CONFLICT,
            Fault::Agent => StatusCode::INTERNAL_SERVER_ERROR,
        };
        self.with_status(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_scrape_shares_it_and_who_comes_later_does_not() {
        let mut scrapes = Scrapes::default();
        let waiting = Instant::now();
        assert!(scrapes.made_since(waiting, Format::Text).is_none());
        let text = scrapes.made(Instant::now(), Format::Text, "text".to_owned());
        let shared = scrapes.made_since(waiting, Format::Text).unwrap();
        assert!(scrapes.made_since(waiting, Format::OpenMetrics).is_none(), "it is another text");
        assert!(Arc::ptr_eq(&text.0, &shared.0), "one memory, however slowly they read");
        assert!(
            scrapes.made_since(Instant::now() + std::time::Duration::from_nanos(1), Format::Text).is_none(),
            "it may be old"
        );
        drop((text, shared));
        assert!(scrapes.made_since(waiting, Format::Text).is_none(), "nobody keeps it");
    }
}
