//! Why a configuration cannot become map entries.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use segue_model::service_label::{key_label, sid_or_label};

use crate::facts::Table;

/// A configuration that does not fit this data plane or this machine. Nothing has been applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// An interface of the configuration does not exist.
    #[error(
        "{place}: there is no interface {name} in this network namespace; create it, or take it out of the configuration"
    )]
    InterfaceMissing {
        /// Where the configuration names it.
        place: String,
        /// Name of the interface.
        name: String,
    },
    /// An interface's number does not fit the data plane's tables.
    #[error(
        "{place}: interface {name} has ifindex {ifindex}, and the data plane takes those below {limit}; create it anew"
    )]
    InterfaceNumber {
        /// Where the configuration names it.
        place: String,
        /// Name of the interface.
        name: String,
        /// Its ifindex.
        ifindex: u32,
        /// The first one that is too large.
        limit: u32,
    },
    /// A name that must be one of `ports` is not.
    #[error("{place}: {name} is not among the node's ports; add it to `ports`")]
    PortUnknown {
        /// Where the configuration names it.
        place: String,
        /// Name of the interface.
        name: String,
    },
    /// More interfaces than can be told apart have the same slot of the port table by their numbers.
    #[error(
        "ports {first} (ifindex {first_index}) and {second} (ifindex {second_index}): more than {most} ports have an ifindex that is equal \
         modulo {slots}; create some of these interfaces anew"
    )]
    PortCollision {
        /// The last port that could be told apart.
        first: String,
        /// Its ifindex.
        first_index: u32,
        /// The first one that could not.
        second: String,
        /// Its ifindex.
        second_index: u32,
        /// Size of the table.
        slots: u32,
        /// Ports that may have one slot by their numbers.
        most: u32,
    },
    /// A policy is named that does not exist.
    #[error("{place}: there is no policy {name}; add it to `policies`")]
    PolicyUnknown {
        /// Where the configuration names it.
        place: String,
        /// Name of the policy.
        name: String,
    },
    /// Two objects have the same name.
    #[error("{place}: there are two of them; names and SIDs are unique on a node")]
    Duplicate {
        /// The object.
        place: String,
    },
    /// A list without segments, or with more than fit in front of a frame.
    #[error("{place}: {count} segments; a list has 1 to {max}, because an XDP frame has no room for more headers")]
    Segments {
        /// Which list.
        place: String,
        /// Segments in it.
        count: usize,
        /// Segments allowed in this mode.
        max: usize,
    },
    /// More lists than a policy can have.
    #[error("policy {policy}: {count} segment lists; a policy has at most {max}")]
    Lists {
        /// Name of the policy.
        policy: String,
        /// Lists in it.
        count: usize,
        /// Lists allowed.
        max: usize,
    },
    /// A weight of 0.
    #[error("policy {policy}, list {list}: weight 0; give it a weight from 1, or take the list out")]
    Weight {
        /// Name of the policy.
        policy: String,
        /// Position, from 1.
        list: usize,
    },
    /// A table is too small.
    #[error("{place}: the table of {table} is full; it holds {capacity}, and cannot grow further. Use fewer of them")]
    TableFull {
        /// The object that has no room.
        place: String,
        /// What the table holds.
        table: Table,
        /// For how many it was made.
        capacity: u32,
        /// How many it would have to hold, at least.
        needed: u32,
    },
    /// Something that `segue_model`'s validation refuses.
    #[error("{place}: {problem}")]
    Invalid {
        /// Where.
        place: String,
        /// What, and what to do.
        problem: String,
    },
}

impl CompileError {
    pub(super) fn invalid(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), problem: problem.into() }
    }
}

/// How messages name a SID, or a label that stands in its place.
pub(super) fn sid_place(sid: &Ipv6Net) -> String {
    let named = sid_or_label(sid);
    if key_label(sid).is_some() { named } else { format!("SID {named}") }
}

/// A single address as a prefix.
pub(super) fn host(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::from(address)
}
