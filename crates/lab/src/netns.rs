//! Whose network namespaces are: the lab's share of what [`segue_host::namespace`] finds on the system.

use std::collections::BTreeMap;

use segue_host::link::LinkSocket;
pub use segue_host::namespace::{Identity, all, exists, identity, inside};
pub use segue_host::process::{end as end_processes, inside as processes};

use crate::{names, state};

/// The lab's namespaces: those that start with its prefix and are not another lab's. Works without any record.
#[must_use]
pub fn of_lab(roots: &names::Roots, lab: &str) -> BTreeMap<String, String> {
    let prefix = names::namespace_prefix(lab);
    let mut other_labs: Vec<String> = state::recorded_labs(roots);
    other_labs.retain(|other| other != lab && names::namespace_prefix(other).starts_with(&prefix));
    all()
        .into_iter()
        .filter_map(|namespace| {
            let node = namespace.strip_prefix(&prefix)?.to_owned();
            let ours = match alias(&namespace).as_deref().and_then(names::parse_mark) {
                Some((owner, _)) => owner == lab,
                // `up` died before it could mark the namespace.
                None => !other_labs.iter().any(|other| namespace.starts_with(&names::namespace_prefix(other))),
            };
            ours.then_some((namespace, node))
        })
        .collect()
}

/// Labs that have namespaces, with the nodes of each, by the marks on the namespaces.
#[must_use]
pub fn marked() -> BTreeMap<String, Vec<String>> {
    let mut labs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for namespace in all().into_iter().filter(|namespace| namespace.starts_with("sg-")) {
        if let Some((lab, node)) = alias(&namespace).as_deref().and_then(names::parse_mark) {
            labs.entry(lab.to_owned()).or_default().push(node.to_owned());
        }
    }
    labs
}

/// Alias of the namespace's `lo` interface.
fn alias(namespace: &str) -> Option<String> {
    let loopback = inside(namespace, || LinkSocket::open()?.find("lo")).ok()?.ok()??;
    Some(loopback.alias)
}
