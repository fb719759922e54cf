//! The handlers, capture apart.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use segue_model::node::NodeState;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::{
    Context,
    revision::{self, Condition},
};
use crate::{
    apply::ApplyReport,
    background,
    diff::Change,
    firewall::{self, FirewallReport},
    liveness::FunctionReport,
    metrics,
    observe::{self, Detail, Snapshot},
    problem::{ErrorBody, Failure, Fault, Problem},
    report::{
        ChainReport, DropReport, OutcomeReport, PolicyReport, PortReport, Report, SidReport, SteeringReport, Version,
    },
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

/// Answer of POST /v1/diff.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DiffReport {
    /// The differences; none if applying would change nothing.
    pub changes: Vec<Change>,
}

/// What counts, read beside the node's own thread. One report at a time: many at once would only take memory.
async fn report(context: &Context, detail: Detail) -> Result<Report, Failure> {
    /// If something is applied each time while it is read, some numbers may be those of what was there before.
    const ATTEMPTS: usize = 3;
    let _turn = context.reports.lock().await;
    for _ in 1..ATTEMPTS {
        let read = move |taken: Snapshot| Ok((taken.report(detail)?, taken.is_current()));
        if let (report, true) = background::apart(&context.node, observe::snapshot, read).await? {
            return Ok(report);
        }
    }
    background::apart(&context.node, observe::snapshot, move |taken| taken.report(detail)).await
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
            let taken = Arc::clone(&state);
            let revision = background::aside(move || revision::of(&taken)).await??;
            ([(header::ETAG, revision::header(&revision))], Json(&*state)).into_response()
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
pub async fn sids(State(context): State<Context>) -> Answer<Vec<SidReport>> {
    Ok(Json(report(&context, Detail::Full).await?.sids))
}

/// SR policies with their segment lists and counters.
#[utoipa::path(get, path = "/v1/policies", responses((status = 200, description = "Policies", body = Vec<PolicyReport>)))]
pub async fn policies(State(context): State<Context>) -> Answer<Vec<PolicyReport>> {
    Ok(Json(report(&context, Detail::Full).await?.policies))
}

/// This node's part in each chain.
#[utoipa::path(get, path = "/v1/chains", responses((status = 200, description = "Chains", body = Vec<ChainReport>)))]
pub async fn chains(State(context): State<Context>) -> Answer<Vec<ChainReport>> {
    let report = report(&context, Detail::Full).await?;
    Ok(Json(observe::chains(&report)))
}

/// The life of the functions behind proxy SIDs.
#[utoipa::path(get, path = "/v1/functions", responses((status = 200, description = "Functions that are watched, by SID", body = Vec<FunctionReport>)))]
pub async fn functions(State(context): State<Context>) -> Answer<Vec<FunctionReport>> {
    Ok(Json(context.liveness.report().await))
}

/// Ports with their totals.
#[utoipa::path(get, path = "/v1/ports", responses((status = 200, description = "Ports", body = Vec<PortReport>)))]
pub async fn ports(State(context): State<Context>) -> Answer<Vec<PortReport>> {
    Ok(Json(report(&context, Detail::Full).await?.ports))
}

/// Steering rules with their counters.
#[utoipa::path(get, path = "/v1/steering", responses((status = 200, description = "Steering rules", body = Vec<SteeringReport>)))]
pub async fn steering(State(context): State<Context>) -> Answer<Vec<SteeringReport>> {
    Ok(Json(report(&context, Detail::Full).await?.steering))
}

/// Firewalls with the counters of their rules.
#[utoipa::path(get, path = "/v1/firewalls", responses((status = 200, description = "Firewalls", body = Vec<FirewallReport>)))]
pub async fn firewalls(State(context): State<Context>) -> Answer<Vec<FirewallReport>> {
    let counted = context.node.call(firewall::counted).await?;
    Ok(Json(background::aside(move || firewall::report(counted)).await?))
}

/// Drops by port and reason, each with the last such packet.
#[utoipa::path(get, path = "/v1/drops", responses((status = 200, description = "Drops", body = Vec<DropReport>)))]
pub async fn drops(State(context): State<Context>) -> Answer<Vec<DropReport>> {
    Ok(Json(background::apart(&context.node, observe::snapshot, |taken| taken.drops()).await?))
}

/// What became of packets, by port.
#[utoipa::path(get, path = "/v1/outcomes", responses((status = 200, description = "Outcomes", body = Vec<OutcomeReport>)))]
pub async fn outcomes(State(context): State<Context>) -> Answer<Vec<OutcomeReport>> {
    Ok(Json(report(&context, Detail::Full).await?.outcomes))
}

/// All counters at one moment.
#[utoipa::path(get, path = "/v1/counters", responses((status = 200, description = "Everything that counts", body = Report)))]
pub async fn counters(State(context): State<Context>) -> Answer<Report> {
    Ok(Json(report(&context, Detail::Full).await?))
}

/// What runs.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, description = "Versions", body = Version)))]
pub async fn version(State(context): State<Context>) -> Answer<Version> {
    let node = context.node.call(|node| Ok(node.state().map(|state| state.node.clone()).unwrap_or_default())).await?;
    Ok(Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), abi: segue_abi::SEGUE_ABI_VERSION, node }))
}

/// All counters for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, description = "OpenMetrics text", body = String, content_type = "application/openmetrics-text")))]
pub async fn metrics(State(context): State<Context>) -> Result<Response, Failure> {
    let report = report(&context, Detail::Metrics).await?;
    let functions = context.liveness.report().await;
    let text = background::aside(move || metrics::encode(report, functions)).await?.map_err(|error| {
        Failure::one(Fault::Agent, Problem::new("metrics", error.to_string(), "report this: it is a fault of Segue"))
    })?;
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}
