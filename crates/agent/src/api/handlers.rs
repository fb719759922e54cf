//! The handlers, capture apart.

use std::{sync::Arc, time::Instant};

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use segue_api::{
    doctor::DoctorReport,
    firewall::FirewallReport,
    function::FunctionReport,
    report::{
        ChainReport, DropReport, OutcomeReport, PathMtuReport, PolicyReport, PortReport, Report, SidReport,
        SteeringReport, Version,
    },
    state::{ApplyReport, DiffReport},
};
use segue_dataplane::Sums;
use segue_model::node::NodeState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::IntoParams;

use super::{
    Context,
    revision::{self, Condition},
};
use crate::{
    background, doctor, firewall, functions,
    metrics::{self, Few, Format, LearnedLabels, Names},
    observe::{self, Parts, Snapshot, Told},
    problem::{ErrorBody, Failure, Fault, Problem},
    validate,
};

type Answer<T> = Result<Json<T>, Failure>;

/// Options of PUT /v1/state.
#[derive(Debug, Clone, Copy, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PutOptions {
    /// Only check; change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Tells these parts of what counts, read and written beside the node's own thread and the API's. One report at a time: many at once
/// would only take memory.
async fn tell(
    context: &Context,
    parts: Parts,
    pick: impl Fn(&Told<'_>) -> Result<Vec<u8>, Failure> + Clone + Send + 'static,
) -> Result<Response, Failure> {
    let mut scrapes = context.scrapes.lock().await;
    let (known, routes) = (scrapes.names.take(), scrapes.routes.clone());
    let made = of_current(context, move |taken| {
        let names = taken.names(known.clone());
        let text = taken.tell(parts, names.as_deref(), &routes, &pick)?;
        Ok((names, text))
    });
    let (names, text) = made.await?;
    scrapes.names = names;
    Ok(json(text))
}

fn written(part: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(part).map_err(|error| own_fault("report", error.to_string()))
}

fn listed(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut text = Vec::new();
    write(&mut text);
    text
}

fn json(text: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response()
}

fn own_fault(what: &str, error: String) -> Failure {
    Failure::one(Fault::Agent, Problem::new(what, error, "report this: it is a fault of Segue"))
}

/// Makes something of what was taken from the node, again if something else was applied meanwhile.
async fn of_current<T: Send + 'static>(
    context: &Context,
    make: impl Fn(&Snapshot) -> Result<T, Failure> + Clone + Send + 'static,
) -> Result<T, Failure> {
    /// If something is applied each time while it is read, some numbers may be those of what was there before.
    const ATTEMPTS: usize = 3;
    let mut attempt = 1;
    loop {
        let make = make.clone();
        let read = move |taken: Snapshot| Ok((make(&taken)?, taken.is_current()));
        let (made, current) = background::apart(&context.node, observe::snapshot, read).await?;
        if current || attempt == ATTEMPTS {
            return Ok(made);
        }
        attempt += 1;
    }
}

/// The body as a desired state. It may be YAML too: every JSON text is one.
fn parse(body: &str) -> Result<NodeState, Failure> {
    segue_model::load::load_node_state(body, "request body")
        .map_err(|errors| Failure { fault: Fault::Request, problems: errors.iter().map(validate::problem).collect() })
}

/// This document.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "This document", body = Value)))]
pub async fn openapi() -> Json<Value> {
    Json(super::openapi_document())
}

/// The desired state that was applied last.
#[utoipa::path(get, path = "/v1/state", responses(
    (status = 200, description = "The desired state", body = Value,
        headers(("ETag" = String, description = "Its revision: a hash of it, the same wherever the state is the same"))),
    (status = 404, description = "Nothing was applied yet", body = ErrorBody)))]
pub async fn get_state(State(context): State<Context>) -> Result<Response, Failure> {
    let state = context.node.call(|node| Ok(node.shared_state())).await?;
    Ok(match state {
        Some(state) => {
            let (revision, text) = background::aside(move || revision::with_text(&state)).await??;
            let kind = HeaderValue::from_static("application/json");
            ([(header::ETAG, revision::header(&revision)), (header::CONTENT_TYPE, kind)], text).into_response()
        }
        None => Failure::one(Fault::Request, Problem::new("state", "nothing was applied yet", "apply a configuration"))
            .with_status(StatusCode::NOT_FOUND),
    })
}

/// Makes the node what the state says: all of it or nothing. If-Match with the ETag that GET gave refuses it if another
/// state was applied meanwhile; If-None-Match with * if any was (RFC 9110 section 13.1).
#[utoipa::path(put, path = "/v1/state", request_body = Value,
    params(PutOptions,
        ("If-Match" = Option<String>, Header, description = "Only if this revision is the one that is applied"),
        ("If-None-Match" = Option<String>, Header, description = "*: only if nothing was applied yet")),
    responses(
    (status = 200, description = "Applied, or with dry_run: fit to be applied", body = ApplyReport),
    (status = 412, description = "Another state is applied than If-Match says; nothing was changed", body = ErrorBody),
    (status = 400, description = "The state is invalid; nothing was changed", body = ErrorBody),
    (status = 409, description = "The kernel refused; everything is as before", body = ErrorBody)))]
pub async fn put_state(
    State(context): State<Context>,
    options: Result<Query<PutOptions>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
    body: String,
) -> Answer<ApplyReport> {
    let Query(options) = options.map_err(|error| {
        Failure::one(Fault::Request, Problem::new("query", error.to_string(), "the only option is dry_run=true"))
    })?;
    let condition = Condition::from_headers(&headers)?;
    // In the order in which they came, whatever each takes to be compiled.
    let _turn = context.applies.lock().await;
    let prepared = async {
        condition.check(&context).await?;
        let state = Arc::new(background::aside(move || parse(&body)).await??);
        let prepared = background::prepare(&context.node, &state).await?;
        // Nothing else changes what is applied: this has the turn.
        let changes = background::changes(&context.node, &state).await?;
        Ok::<_, Failure>((state, changes, prepared))
    };
    let mut stopped = context.stop.clone();
    let (state, changes, _prepared) = tokio::select! {
        prepared = prepared => prepared?,
        _ = stopped.wait_for(|stop| *stop) => return Err(ending()),
    };
    let report = context.node.call(move |node| match options.dry_run {
        true => node.check(&state, changes),
        false => node.apply_changes(&state, changes),
    });
    Ok(Json(report.await?))
}

fn ending() -> Failure {
    let remedy = "apply again when it has started; forwarding goes on meanwhile";
    Failure::one(Fault::Agent, Problem::new("segued", "the agent was told to end; nothing was changed", remedy))
}

/// What would change if the state in the body were applied.
#[utoipa::path(post, path = "/v1/diff", request_body = Value, responses(
    (status = 200, description = "The differences", body = DiffReport),
    (status = 400, description = "The state is invalid", body = ErrorBody)))]
pub async fn post_diff(State(context): State<Context>, body: String) -> Answer<DiffReport> {
    let state = Arc::new(background::aside(move || parse(&body)).await??);
    let changes = background::changes(&context.node, &state).await?;
    Ok(Json(DiffReport { changes }))
}

/// Local SIDs with their counters and kernel routes.
#[utoipa::path(get, path = "/v1/sids", responses((status = 200, description = "SIDs", body = Vec<SidReport>)))]
pub async fn sids(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { sids: true, kernel_routes: true, ..Parts::default() };
    tell(&context, parts, |told| Ok(listed(|out| told.sids.write(out)))).await
}

/// SR policies with their segment lists and counters.
#[utoipa::path(get, path = "/v1/policies", responses((status = 200, description = "Policies", body = Vec<PolicyReport>)))]
pub async fn policies(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { policies: true, ..Parts::default() };
    tell(&context, parts, |told| Ok(listed(|out| told.policies.write(out)))).await
}

/// This node's part in each chain.
#[utoipa::path(get, path = "/v1/chains", responses((status = 200, description = "Chains", body = Vec<ChainReport>)))]
pub async fn chains(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { sids: true, policies: true, ..Parts::default() };
    tell(&context, parts, |told| written(&observe::chains(&told.report()))).await
}

/// The life of the functions behind proxy SIDs.
#[utoipa::path(get, path = "/v1/functions", responses((status = 200, description = "Functions that are watched, by SID", body = Vec<FunctionReport>)))]
pub async fn functions(State(context): State<Context>) -> Answer<Vec<FunctionReport>> {
    let mut reports = context.liveness.report().await;
    let (made, reader) = context.node.call(|node| Ok((node.made(), node.plane.reader()))).await?;
    background::aside(move || {
        if let Some(made) = made {
            if let Some(reader) = reader {
                functions::report::instances(&made, &reader, &mut reports);
            }
            functions::virtual_report::tell(&made, &mut reports);
        }
        Ok(Json(reports))
    })
    .await?
}

/// What loses packets on this node, or will, and what to do about it. Takes a few seconds if neighbours do not answer.
#[utoipa::path(get, path = "/v1/doctor", responses((status = 200, description = "All that was looked at", body = DoctorReport)))]
pub async fn examine(State(context): State<Context>) -> Answer<DoctorReport> {
    Ok(Json(doctor::examine(&context.node, &context.liveness).await?))
}

/// Ports with their totals.
#[utoipa::path(get, path = "/v1/ports", responses((status = 200, description = "Ports", body = Vec<PortReport>)))]
pub async fn ports(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { ports: true, devices: true, ..Parts::default() };
    tell(&context, parts, |told| written(&told.ports)).await
}

/// Steering rules with their counters.
#[utoipa::path(get, path = "/v1/steering", responses((status = 200, description = "Steering rules", body = Vec<SteeringReport>)))]
pub async fn steering(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { steering: true, ..Parts::default() };
    tell(&context, parts, |told| written(&told.steering)).await
}

/// Firewalls with the counters of their rules.
#[utoipa::path(get, path = "/v1/firewalls", responses((status = 200, description = "Firewalls", body = Vec<FirewallReport>)))]
pub async fn firewalls(State(context): State<Context>) -> Answer<Vec<FirewallReport>> {
    let counted = |taken: Snapshot| Ok(firewall::report(firewall::counted(&taken)?));
    Ok(Json(background::apart(&context.node, observe::snapshot, counted).await?))
}

/// Drops by port and reason, each with the last such packet.
#[utoipa::path(get, path = "/v1/drops", responses((status = 200, description = "Drops", body = Vec<DropReport>)))]
pub async fn drops(State(context): State<Context>) -> Answer<Vec<DropReport>> {
    Ok(Json(background::apart(&context.node, observe::snapshot, |taken| taken.drops()).await?))
}

/// What became of packets, by port.
#[utoipa::path(get, path = "/v1/outcomes", responses((status = 200, description = "Outcomes", body = Vec<OutcomeReport>)))]
pub async fn outcomes(State(context): State<Context>) -> Result<Response, Failure> {
    let parts = Parts { ports: true, ..Parts::default() };
    tell(&context, parts, |told| written(&told.outcomes)).await
}

/// All counters at one moment.
#[utoipa::path(get, path = "/v1/counters", responses((status = 200, description = "Everything that counts", body = Report)))]
pub async fn counters(State(context): State<Context>) -> Result<Response, Failure> {
    tell(&context, Parts::COUNTERS, |told| Ok(told.json())).await
}

/// Paths that packets do not fit.
#[utoipa::path(get, path = "/v1/path-mtus", responses((status = 200, description = "Path MTUs", body = Vec<PathMtuReport>)))]
pub async fn path_mtus(State(context): State<Context>) -> Answer<Vec<PathMtuReport>> {
    Ok(Json(context.node.call(|node| Ok(node.path_mtus())).await?))
}

/// What runs.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, description = "Versions", body = Version)))]
pub async fn version(State(context): State<Context>) -> Answer<Version> {
    let node = context.node.call(|node| Ok(node.state().map(|state| state.node.clone()).unwrap_or_default())).await?;
    Ok(Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), abi: segue_abi::SEGUE_ABI_VERSION, node }))
}

/// All counters for Prometheus: as OpenMetrics if Accept asks for that, else in its text format 0.0.4.
#[utoipa::path(get, path = "/metrics",
    params(("Accept" = Option<String>, Header, description = "application/openmetrics-text, or text/plain")),
    responses((status = 200, description = "Metrics", content(
        (String = "text/plain"), (String = "application/openmetrics-text")))))]
pub async fn metrics(State(context): State<Context>, headers: HeaderMap) -> Result<Response, Failure> {
    let asked = Instant::now();
    let format = Format::accepted(headers.get_all(header::ACCEPT).iter().filter_map(|field| field.to_str().ok()));
    let mut scrapes = context.scrapes.lock().await;
    let text = match scrapes.made_since(asked, format) {
        Some(text) => text,
        None => {
            let begun = Instant::now();
            let functions = context.liveness.report().await;
            let names = scrapes.names.take();
            let made =
                of_current(&context, move |taken| scrape(taken, names.clone(), functions.clone(), format)).await?;
            scrapes.names = made.0;
            scrapes.made(begun, format, made.1)
        }
    };
    let told = [(header::CONTENT_TYPE, format.content_type()), (header::VARY, "accept")];
    Ok((told, Body::from(Bytes::from_owner(text))).into_response())
}

/// A scrape, and the names that the next one may use.
fn scrape(
    taken: &Snapshot,
    names: Option<Arc<Names>>,
    functions: Vec<FunctionReport>,
    format: Format,
) -> Result<(Option<Arc<Names>>, String), Failure> {
    let names = taken.names(names);
    let report = taken.state.as_ref().map(|state| taken.few(true, state)).transpose()?.unwrap_or_default();
    let learned = taken.learned.as_ref().map(|learned| LearnedLabels {
        done: learned.labels.len(),
        refused: learned.refused.iter().filter(|refused| refused.wholly).count(),
        followed: learned.problem.is_none(),
    });
    let few = Few { report, memories: taken.memories()?, functions, learned };
    let counted = match &names {
        Some(names) => taken.counted(names.rows())?,
        None => Sums::default(),
    };
    let text = metrics::encode(few, |text| {
        if let Some(names) = &names {
            names.write(&counted, text);
        }
    });
    Ok((names, format.of(text.map_err(|error| own_fault("metrics", error.to_string()))?)))
}
