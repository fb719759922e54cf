//! What `segued` and everybody who talks to it have in common: the types of requests and answers of `/v1`, the format in which
//! captured packets go over the wire, and the client of its Unix socket.
//!
//! It is for agents, command lines, labs, orchestrators and tests alike, and light: it makes no report, serves no socket, touches no
//! kernel, and needs no runtime. What a desired state looks like is the model's.
#![forbid(unsafe_code)]

pub mod capture;
pub mod client;
pub mod doctor;
pub mod firewall;
pub mod function;
pub mod http;
pub mod pcap;
pub mod problem;
pub mod report;
pub mod simulation;
pub mod state;

/// The model makes the schema of an owner, beside that of the desired state.
#[cfg(feature = "openapi")]
fn owner_schema() -> utoipa::openapi::Ref {
    utoipa::openapi::Ref::from_schema_name("Owner")
}
