//! What is known about functions: `/v1/functions`.

use segue_model::owner::Owner;
use serde::{Deserialize, Serialize};

/// The life of the function behind a SID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FunctionReport {
    /// LOC:FUNCT of the SID.
    pub sid: String,
    /// Endpoint behaviour.
    pub behaviour: String,
    /// IFACE-OUT.
    pub to_function: LinkReport,
    /// IFACE-IN.
    pub from_function: LinkReport,
    /// `up` or `down`.
    pub state: String,
    /// Why.
    pub reason: String,
    /// When it became so: milliseconds since 1970, UTC.
    pub since_ms: u64,
    /// How long it has been so, milliseconds.
    pub for_ms: u64,
    /// How often it changed, also under agents before this one.
    pub changes: u64,
    /// What the SID does while the function is down: `drop`, `bypass`, `withdraw` or `reroute`.
    pub on_failure: String,
    /// The SID that packets go to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// What became of the last probe, if it is probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeReport>,
    /// How long a failure lasts at least, as things are, milliseconds: more than configured if it flapped.
    pub hold_ms: u64,
    /// Which of several instances of a function it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceReport>,
    /// The virtual functions of a network card that lead to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vf: Option<VirtualFunctionsReport>,
    /// The operator's or the planner's comment on the SID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// The chain that the SID was made for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::owner_schema))]
    pub owner: Option<Owner>,
}

/// One of several instances of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InstanceReport {
    /// The function.
    pub function: String,
    /// The instance.
    pub name: String,
    /// Flows that it has, of both directions.
    pub flows: u64,
    /// False: it is taken out, or drained, and keeps the flows that it has.
    pub takes_new_flows: bool,
}

/// Virtual functions of a network card that lead to a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VirtualFunctionsReport {
    /// The card.
    pub device: String,
    /// The interface by which the node reaches the card's VLANs, if it is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The one that packets of the forward direction go in by.
    pub west: VirtualFunctionReport,
    /// The one that they come back by.
    pub east: VirtualFunctionReport,
}

/// A virtual function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VirtualFunctionReport {
    /// Its number at the card; none while it has got none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The VLAN that the card has it in.
    pub vlan: u16,
    /// Its link-layer address.
    pub mac: String,
    /// Whether the function has it.
    pub attached: bool,
}

/// A link to a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkReport {
    /// Name of the interface.
    pub name: String,
    /// Whether it is there, up, and has a carrier.
    pub up: bool,
}

/// Probes of a function.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProbeReport {
    /// `neighbour`, `icmp`, `icmp through`, `tcp` or `tcp through`.
    pub kind: String,
    /// What the last one came to: `answered`, or why not. Empty before the first.
    pub last: String,
    /// How long its answer took, microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_us: Option<u64>,
    /// Probes that were answered.
    pub answered: u64,
    /// Probes that were not.
    pub failed: u64,
}
