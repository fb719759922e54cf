//! SIDs and policies as they are told: made of what is there while they are written. There may be 100,000 of each; to make the texts of
//! a [`SidReport`] first, and to write them out then, costs several times as much.

use std::fmt::{self, Display};

use ipnet::{IpNet, Ipv6Net};
use segue_dataplane::MemoryCounters;
use segue_model::node::{HeadendMode, NodeState, Policy, SegmentList, Sid};
use serde::{Serialize, Serializer};

use super::{Counted, name};
use crate::{
    kernel::{RouteTarget, SidRoute},
    report::{Counter, MemoryReport, OutcomeReport, PolicyReport, PortReport, Report, SegmentListReport, SidReport},
};

/// Parts of a report that are written as they are read; as JSON what [`Report`] is.
#[derive(Serialize)]
pub struct Told<'a> {
    pub node: &'a str,
    pub time: u64,
    pub generation: u32,
    pub ports: &'a [PortReport],
    pub sids: Rows<Sids<'a>>,
    pub policies: Rows<Policies<'a>>,
    pub steering: &'a [crate::report::SteeringReport],
    pub outcomes: &'a [OutcomeReport],
    pub icmp: crate::report::IcmpReport,
}

impl<'a> Told<'a> {
    /// What is few of it is in `report`.
    pub fn new(report: &'a Report, sids: Rows<Sids<'a>>, policies: Rows<Policies<'a>>) -> Self {
        let Report { node, time, generation, ports, sids: _, policies: _, steering, outcomes, icmp } = report;
        Self { node, time: *time, generation: *generation, ports, sids, policies, steering, outcomes, icmp: *icmp }
    }
}

/// A list that is made while it is written.
pub struct Rows<T>(pub Option<T>);

/// What such a list is made of.
pub trait Source {
    /// A row of it.
    type Row<'a>: Serialize
    where
        Self: 'a;
    /// All rows.
    fn rows(&self) -> impl Iterator<Item = Self::Row<'_>>;
}

impl<T: Source> Serialize for Rows<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().flat_map(Source::rows))
    }
}

/// A [`SidReport`].
#[derive(Serialize)]
pub struct SidRow<'a> {
    #[serde(serialize_with = "text")]
    sid: Shown,
    behaviour: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "names")]
    flavours: Vec<String>,
    #[serde(skip_serializing_if = "Destination::is_empty", serialize_with = "text")]
    to: Destination<'a>,
    #[serde(skip_serializing_if = "KernelRoute::is_empty", serialize_with = "text")]
    kernel_route: KernelRoute<'a>,
    counter: Counter,
    #[serde(skip_serializing_if = "Option::is_none")]
    returned: Option<Counter>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<MemoryReport>,
    #[serde(skip_serializing_if = "Comment::is_none", serialize_with = "text")]
    comment: Comment<'a>,
}
