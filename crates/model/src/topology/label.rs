//! Labels in chains: `$client`, `$nfv1` and `$nfv1.firewall` name hosts, waypoints and functions as they do everywhere else in a lab.

use super::{Endpoint, Topology, WAYPOINT};
use crate::error::{Errors, KeyPath, Report};
use crate::near::nearest;

/// What a label begins with.
pub const LABEL: char = '$';

impl Topology {
    /// Replaces the labels of chains and of traffic by the names that `from`, `to` and `via` have without them.
    ///
    /// # Errors
    /// Every label that names nothing, with those that look like it.
    pub fn name_by_labels(&mut self) -> Result<(), Errors> {
        let mut report = Report::default();
        let mut chains = std::mem::take(&mut self.chains);
        let key = KeyPath::root().at("chains");
        for (name, chain) in &mut chains {
            let key = key.at(name);
            for (end, side) in [(&mut chain.from, "from"), (&mut chain.to, "to")] {
                if let Endpoint::Host(host) = end
                    && let Some(label) = host.strip_prefix(LABEL)
                {
                    if self.hosts.contains_key(label) {
                        *host = label.to_owned();
                    } else {
                        self.unknown(label, self.hosts.keys().cloned(), "host", &key.at(side), &mut report);
                    }
                }
            }
            for (position, stop) in chain.via.iter_mut().enumerate() {
                let Some(label) = stop.strip_prefix(LABEL) else { continue };
                match self.stop(label) {
                    Some(name) => *stop = name,
                    None => {
                        let key = key.at("via").at(position);
                        self.unknown(label, self.stops(), "function or node", &key, &mut report);
                    }
                }
            }
        }
        self.chains = chains;
        let mut traffic = std::mem::take(&mut self.traffic);
        let key = KeyPath::root().at("traffic");
        for (name, source) in &mut traffic {
            for (host, side) in [(&mut source.from, "from"), (&mut source.to, "to")] {
                let Some(label) = host.strip_prefix(LABEL) else { continue };
                if self.hosts.contains_key(label) {
                    *host = label.to_owned();
                } else {
                    self.unknown(label, self.hosts.keys().cloned(), "host", &key.at(name).at(side), &mut report);
                }
            }
        }
        self.traffic = traffic;
        report.finish()
    }

    /// What `via` calls the label's node or function.
    fn stop(&self, label: &str) -> Option<String> {
        match label.split_once('.') {
            Some((node, function)) => {
                self.functions.get(function).filter(|found| found.node == node).map(|_| function.to_owned())
            }
            None if self.nodes.contains_key(label) => Some(format!("{WAYPOINT}{label}")),
            None => self.functions.contains_key(label).then(|| label.to_owned()),
        }
    }

    /// All labels that `via` knows, without the `$`.
    fn stops(&self) -> impl Iterator<Item = String> {
        let functions =
            self.functions.iter().flat_map(|(name, function)| [format!("{}.{name}", function.node), name.clone()]);
        self.nodes.keys().cloned().chain(functions)
    }

    fn unknown(
        &self,
        label: &str,
        known: impl Iterator<Item = String>,
        what: &str,
        key: &KeyPath,
        report: &mut Report,
    ) {
        let known: Vec<String> = known.collect();
        let near = nearest(label, known.iter().map(String::as_str), 3);
        let near: Vec<String> = near.into_iter().map(|name| format!("{LABEL}{name}")).collect();
        let remedy = match near.is_empty() {
            true => format!("write {LABEL} and the name of a {what}"),
            false => format!("did you mean {}?", near.join(" or ")),
        };
        report.error(key, format!("the label {:?} names no {what}", format!("{LABEL}{label}")), remedy);
    }
}

#[cfg(test)]
mod tests {
    use crate::load::load_topology;
    use crate::topology::Endpoint;

    const TOPOLOGY: &str = "
name: x
nodes: { edge1: {}, nfv1: {}, edge2: {} }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, nfv1] }, { between: [nfv1, edge2] }]
functions: { firewall: { node: nfv1 } }
chains:
  web: { from: $client, to: $server, via: [$nfv1.firewall, $edge2] }
";

    #[test]
    fn labels_are_names() {
        let topology = load_topology(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}"));
        let chain = &topology.chains["web"];
        assert_eq!(chain.via, ["firewall", "node:edge2"]);
        assert_eq!(
            (&chain.from, &chain.to),
            (&Endpoint::Host("client".to_owned()), &Endpoint::Host("server".to_owned()))
        );
    }

    #[test]
    fn an_unknown_label_has_its_line_and_those_that_are_near() {
        let refused = |from: &str, to: &str| {
            let text = TOPOLOGY.replace(from, to);
            assert_ne!(text, TOPOLOGY);
            load_topology(&text, "t").unwrap_err().to_string()
        };
        let error = refused("$nfv1.firewall", "$nfv1.firewal");
        assert!(
            error.contains("t:8:44: chains.web.via[0]: ") && error.contains("did you mean $nfv1.firewall"),
            "{error}"
        );
        // A function that is on another node.
        let error = refused("$nfv1.firewall", "$edge1.firewall");
        assert!(error.contains("$nfv1.firewall"), "{error}");
        let error = refused("$client", "$clientele");
        assert!(error.contains("names no host; did you mean $client?"), "{error}");
        let error = refused("$edge2]", "$z]");
        assert!(error.contains("write $ and the name of a function or node"), "{error}");
    }
}
