//! A topology for containerlab: its containers and links, and in each container addresses, routes and what else the plan has for its namespace.

use std::fmt::Write;

use segue_model::topology::{Dataplane, Topology};
use segue_wiring::LabPlan;

use crate::wiring::{Space, spaces};

/// Image of hosts, functions and nodes: anything with a shell and iproute2; of Segue nodes with `segued` besides.
const IMAGE: &str = "segue:latest";

/// A containerlab file. Segue nodes take their desired state from `NODE.yaml` beside it, which [`states`] gives; functions with a ruleset take it from `FUNCTION.nft`.
/// Impairments become containerlab's own (`containerlab tools netem`), as comments: its topology files have no key for them.
#[must_use]
pub fn export(topology: &Topology, plan: &LabPlan) -> String {
    let mut text = format!(
        "# By `segue lab export clab`. Build an image {IMAGE} with segued, iproute2, nftables and procps first.\nname: {}\n\ntopology:\n  defaults: {{kind: linux, image: \"{IMAGE}\"}}\n  nodes:\n",
        plan.name
    );
    for space in spaces(plan) {
        let _ = writeln!(text, "    {}:", space.name);
        let segue = plan.nodes.get(space.name).is_some_and(|node| node.dataplane == Dataplane::Segue);
        let rules = topology.functions.get(space.name).and_then(|function| function.ruleset()).is_some();
        let binds: Vec<String> = segue
            .then(|| format!("\"{0}.yaml:/etc/segue/node.yaml\"", space.name))
            .into_iter()
            .chain(rules.then(|| format!("\"{0}.nft:/etc/segue/rules.nft\"", space.name)))
            .collect();
        if !binds.is_empty() {
            let _ = writeln!(text, "      binds: [{}]", binds.join(", "));
        }
        text.push_str("      exec:\n");
        for command in commands(&space, segue, rules) {
            let _ = writeln!(text, "        - {command}");
        }
    }
    text.push_str("\n  links:\n");
    let namespace = |name: &str| plan.functions.get(name).is_none_or(|function| function.has_namespace());
    for [(a, near), (b, far)] in plan.links() {
        if !namespace(a) || !namespace(b) {
            let _ = writeln!(
                text,
                "    # {a}:{} - {b}:{}: TAP devices of a function, which containerlab has not",
                near.name, far.name
            );
            continue;
        }
        let _ =
            writeln!(text, "    - endpoints: [\"{a}:{}\", \"{b}:{}\"]\n      mtu: {}", near.name, far.name, near.mtu);
        if let Some(impaired) = &near.impaired {
            let _ = writeln!(
                text,
                "      # containerlab tools netem set -n clab-{}-{a} -i {} --delay {}ms --jitter {}ms --loss {}",
                plan.name, near.name, impaired.delay_ms, impaired.jitter_ms, impaired.loss_percent
            );
        }
    }
    text
}

/// The desired state of each Segue node, by its file's name.
#[must_use]
pub fn states(plan: &LabPlan) -> Vec<(String, String)> {
    let state = |(name, node): (&String, &segue_wiring::LabNode)| {
        Some((format!("{name}.yaml"), crate::state::json(node.state.as_ref()?)))
    };
    plan.nodes.iter().filter_map(state).collect()
}

/// What makes a container the namespace that the plan wants, in order, each as a YAML string.
fn commands(space: &Space<'_>, segue: bool, rules: bool) -> Vec<String> {
    let mut lines: Vec<String> =
        space.network.sysctls.iter().map(|(key, value)| format!("sysctl -qw {key}={value}")).collect();
    for interface in space.interfaces {
        lines.push(format!("ip link set dev {} address {} up", interface.name, interface.mac));
    }
    lines.extend(space.network.addresses().lines().map(|line| format!("ip {line}")));
    for family in ["-4", "-6"] {
        lines.extend(space.network.routes(family).lines().map(|line| format!("ip {family} {line}")));
    }
    lines.extend(rules.then(|| "nft -f /etc/segue/rules.nft".to_owned()));
    lines.extend(segue.then(|| "sh -c 'segued --config /etc/segue/node.yaml >/var/log/segued.log 2>&1 &'".to_owned()));
    // JSON strings are YAML strings.
    lines.into_iter().map(|line| serde_json::Value::String(line).to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{dot, svg};

    const TOPOLOGY: &str = "
name: x
nodes: { edge1: {}, nfv1: {}, edge2: { dataplane: kernel } }
hosts: { client: { node: edge1 }, server: { node: edge2 } }
links: [{ between: [edge1, nfv1], weight: 3, impaired: { delay_ms: 2, loss_percent: 1 } }, { between: [nfv1, edge2] }]
functions: { fw: { node: nfv1 }, vm: { node: nfv1, tap: {}, proxy: dynamic } }
chains: { web: { from: client, to: server, via: [fw, vm] } }
";

    fn topology() -> (Topology, LabPlan) {
        segue_wiring::load_plan(TOPOLOGY, "t").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn containers_links_and_states_are_those_of_the_plan() {
        let (topology, plan) = topology();
        let text = export(&topology, &plan);
        assert!(text.contains("- endpoints: [\"edge1:nfv1\", \"nfv1:edge1\"]\n      mtu: 9000\n      # containerlab tools netem set -n clab-x-edge1 -i nfv1 --delay 2ms"), "{text}");
        let ends = text.matches("- endpoints").count() + text.matches("TAP devices of a function").count();
        assert_eq!(ends, plan.links().len());
        for (name, node) in &plan.nodes {
            assert!(
                text.contains(&format!("ip address add {}/128 dev lo", node.loopback))
                    || text.contains(&format!("{}/128 dev lo", node.loopback)),
                "{name}: {text}"
            );
        }
        assert_eq!(
            states(&plan).iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(),
            ["edge1.yaml", "nfv1.yaml"]
        );
        for (file, state) in states(&plan) {
            segue_model::load::load_node_state(&state, &file).unwrap_or_else(|errors| panic!("{errors}"));
        }
        assert!(!text.contains("    vm:"), "a function on TAP is no container");
    }

    #[test]
    fn pictures_have_all_nodes_links_and_chains() {
        let (topology, plan) = topology();
        let dot = dot::export(&topology, &plan);
        let svg = svg::export(&topology, &plan);
        for name in ["edge1", "nfv1", "edge2", "client", "server", "fw", "vm"] {
            assert!(dot.contains(&format!("  \"{name}\" [label=")), "{dot}");
            assert!(svg.contains(&format!(">{name}</text>")), "{svg}");
        }
        assert!(dot.contains("weight 3, 2 ms, loses 1 %") && svg.contains("weight 3, 2 ms, loses 1 %"));
        // client, edge1, nfv1, fw, nfv1, vm, nfv1, edge2, server
        assert_eq!(dot.matches("tooltip=\"web\"").count(), 8, "{dot}");
        assert_eq!(svg.matches("<path").count(), 1);
        // Two links, two hosts, two functions; and the legend.
        assert_eq!(svg.matches("<line").count(), 7);
        assert_eq!(svg::export(&topology, &plan), svg, "the same picture every time");
    }
}
