//! What the agent asks of the data plane. [`crate::xdp::Xdp`] is the real one; `apply` is tested with a fake.

use std::collections::BTreeSet;

use ipnet::Ipv6Net;
use segue_dataplane::{Interfaces, MissingInterface, PathMtu};
use segue_model::node::NodeState;

use crate::problem::Problem;

/// What applying did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Activated {
    /// The generation that is active now.
    pub generation: u32,
    /// What the operator should know, such as a port that was left out.
    pub warnings: Vec<String>,
}

/// The part of the data plane that changes with the desired state.
pub trait DataPlane {
    /// Compiles the state without changing anything.
    fn check(&mut self, state: &NodeState, interfaces: &Interfaces) -> Result<(), Vec<Problem>>;
    /// Makes the data plane do what the state says; it does so wholly or not at all.
    fn apply(
        &mut self,
        state: &NodeState,
        interfaces: &Interfaces,
        missing: MissingInterface,
    ) -> Result<Activated, Vec<Problem>>;
    /// Follows which interfaces are up, in place; nothing else about them has changed since the last apply. False if it takes an apply.
    fn follow_links(&mut self, interfaces: &Interfaces) -> Result<bool, Vec<Problem>>;
    /// Makes limits of what the data plane was told of paths that packets do not fit, and takes off those that hold no more.
    fn follow_path_mtus(&mut self, interfaces: &Interfaces) -> Result<(), Vec<Problem>>;
    /// The limits that hold.
    fn path_mtus(&self) -> Vec<PathMtu>;
    /// What the data plane has judged and gives to the kernel has this link-layer source from now on.
    fn sign(&mut self, signature: [u8; 6]) -> Result<(), Vec<Problem>>;
    /// Takes the data plane off all ports and removes what is pinned.
    fn remove(&mut self) -> Result<(), Vec<Problem>>;
    /// SIDs whose functions are down.
    fn down(&self) -> BTreeSet<Ipv6Net>;
    /// Drops cached adjacencies, because routes, neighbours or links changed.
    fn bump_caches(&mut self) -> Result<(), Vec<Problem>>;
}
