//! The kernel's routes for SIDs: put in place, replaced, and taken away.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::Ipv6Net;
use segue_dataplane::Interfaces;
use segue_model::node::NodeState;

use super::{Agent, Undo, kernel_failure};
use crate::{
    kernel::{Kernel, KernelError, RouteTarget, SidRoute, plan},
    plane::DataPlane,
    problem::Failure,
    store::Store,
};

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// Adds and replaces routes; returns those that are no longer wanted, and warnings.
    pub(super) fn put_routes(
        &mut self,
        wanted: &[SidRoute],
        notes: &mut Vec<Undo>,
    ) -> Result<(Vec<SidRoute>, Vec<String>), KernelError> {
        let mut present: BTreeMap<Ipv6Net, SidRoute> =
            self.kernel.own_routes()?.into_iter().map(|route| (route.prefix, route)).collect();
        let mut warnings = Vec::new();
        for route in wanted {
            let old = present.remove(&route.prefix);
            if let Some(warning) = self.put_route(route, old.as_ref(), notes)? {
                warnings.push(warning);
            }
        }
        Ok((present.into_values().collect(), warnings))
    }

    /// Puts one route in place; falls back to a blackhole where the kernel does not have the behaviour.
    fn put_route(
        &mut self,
        route: &SidRoute,
        old: Option<&SidRoute>,
        notes: &mut Vec<Undo>,
    ) -> Result<Option<String>, KernelError> {
        let blackhole = SidRoute { prefix: route.prefix, target: RouteTarget::Blackhole };
        let RouteTarget::Seg6Local { action, .. } = &route.target else {
            return self.place_route(&blackhole, old, notes).map(|()| None);
        };
        if self.refused.get(&route.prefix) == Some(action) {
            return self.place_route(&blackhole, old, notes).map(|()| None);
        }
        match self.place_route(route, old, notes) {
            Err(error) if not_supported(&error) => {
                self.refused.insert(route.prefix, action.clone());
                self.place_route(&blackhole, old, notes)?;
                let why = error.cause;
                Ok(Some(format!(
                    "SID {}: the kernel refuses `{}` ({why}): its route is a blackhole",
                    route.prefix, route.target
                )))
            }
            other => other.map(|()| None),
        }
    }

    fn place_route(
        &mut self,
        route: &SidRoute,
        old: Option<&SidRoute>,
        notes: &mut Vec<Undo>,
    ) -> Result<(), KernelError> {
        match old {
            Some(old) if old == route => {}
            Some(old) if old.target == RouteTarget::Unknown => {
                // It may have another metric, and then nothing replaces it. Nobody can say what it was: it is gone.
                self.kernel.delete_route(route.prefix)?;
                self.kernel.add_route(route)?;
                notes.push(Undo::DeleteRoute(route.prefix));
            }
            Some(old) => {
                self.kernel.replace_route(route)?;
                notes.push(Undo::ReplaceRoute(old.clone()));
            }
            None => {
                self.kernel.add_route(route)?;
                notes.push(Undo::DeleteRoute(route.prefix));
            }
        }
        Ok(())
    }

    pub(super) fn delete_routes(&mut self, routes: Vec<SidRoute>, notes: &mut Vec<Undo>) -> Result<(), KernelError> {
        for route in routes {
            self.kernel.delete_route(route.prefix)?;
            self.refused.remove(&route.prefix);
            if route.target != RouteTarget::Unknown {
                notes.push(Undo::AddRoute(route));
            }
        }
        Ok(())
    }

    /// After the life of functions changed: the kernel routes of failed ones that withdraw go, those of others come back. `sids`: only
    /// theirs, all at once; none: whatever is not as it should be.
    pub fn follow_life(&mut self, sids: Option<&BTreeSet<Ipv6Net>>) -> Result<(), Failure> {
        let Some(state) = self.made() else { return Ok(()) };
        let links = self.kernel.links().map_err(|error| kernel_failure("interfaces", &error))?;
        let Some(sids) = sids else { return self.put_right_routes(&state, &links) };
        let gone = plan::withdrawn(&state, &self.plane.down());
        let (withdraw, back): (Vec<Ipv6Net>, Vec<Ipv6Net>) = sids.iter().partition(|sid| gone.contains(sid));
        // What the kernel refused before is a blackhole, as when it was applied.
        let wanted = plan::routes_of(&state, &links, &back.into_iter().collect());
        let known = |route: SidRoute| match &route.target {
            RouteTarget::Seg6Local { action, .. } if self.refused.get(&route.prefix) == Some(action) => {
                SidRoute { target: RouteTarget::Blackhole, ..route }
            }
            _ => route,
        };
        let wanted: Vec<SidRoute> = wanted.into_iter().map(known).collect();
        match self.kernel.change_routes(&withdraw, &wanted) {
            Ok(()) => Ok(()),
            // Something is not as it was left.
            Err(error) => {
                tracing::debug!("{error}");
                self.put_right_routes(&state, &links)
            }
        }
    }

    pub(super) fn put_right_routes(&mut self, state: &NodeState, links: &Interfaces) -> Result<(), Failure> {
        let wanted = plan::routes_while_down(state, links, &self.plane.down());
        let (stale, warnings) =
            self.put_routes(&wanted, &mut Vec::new()).map_err(|error| kernel_failure("kernel routes", &error))?;
        self.delete_routes(stale, &mut Vec::new()).map_err(|error| kernel_failure("kernel routes", &error))?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        Ok(())
    }
}

/// EINVAL and its like: the kernel does not have this behaviour, or not with these parameters.
fn not_supported(error: &KernelError) -> bool {
    use nix::libc::{EINVAL, EOPNOTSUPP, ERANGE};
    matches!(error.errno, Some(EINVAL | EOPNOTSUPP | ERANGE))
}
