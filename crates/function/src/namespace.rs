//! Functions that are the kernel of a network namespace: its forwarding, its netfilter, or whatever commands make of it.

use std::time::Duration;

use segue_host::{Run, namespace, network, process};

use crate::function::mac;
use crate::runtime::{links, remove_ends};
use crate::{Function, FunctionError, Link, Result, Runtime, Status};

/// How long processes in a function may take to end before they are killed.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Namespace;

impl Runtime for Namespace {
    fn name(&self) -> &'static str {
        "namespace"
    }

    fn needs(&self, function: &Function) -> Vec<&'static str> {
        let wanted = [("ip", true), ("nft", function.ruleset.is_some())];
        wanted.into_iter().filter_map(|(program, wanted)| wanted.then_some(program)).collect()
    }

    fn prepare(&self, function: &Function) -> Result<()> {
        segue_host::Namespace::make(&function.namespace)?;
        network::mark(&function.namespace, &function.mark)?;
        Ok(function.network.before_links(&function.namespace)?)
    }

    fn attach(&self, function: &Function) -> Result<()> {
        let (namespace, network) = (&function.namespace, &function.network);
        for link in &function.links {
            network::batch(&link.node.namespace, &[], &veth(namespace, link))?;
        }
        network.bring_up(namespace)?;
        network.assign(namespace)?;
        Ok(network.route(namespace)?)
    }

    fn start(&self, function: &Function) -> Result<()> {
        if let Some(text) = &function.ruleset {
            Run::new("nft", ["-f", "-"])
                .inside(&function.namespace)
                .input(text.clone())
                .remedy("fix the ruleset of this function (`nft -c -f FILE` checks one)")
                .text()?;
        }
        Ok(())
    }

    fn status(&self, function: &Function) -> Result<Status> {
        if namespace::identity(&function.namespace).is_none() {
            return Ok(Status::Absent);
        }
        let there = links(&function.namespace)?;
        let up = |name: &str| there.iter().any(|link| link.name == name && link.carrier);
        let marked = there.iter().any(|link| link.name == "lo" && link.alias == function.mark);
        let whole = marked && function.links.iter().all(|link| up(&link.name));
        Ok(if whole { Status::Running } else { Status::Partial })
    }

    fn stop(&self, function: &Function) -> Result<()> {
        let namespace = &function.namespace;
        let there = links(namespace)?;
        // Without a mark: `prepare` died before it could give it one.
        if let Some(lo) =
            there.iter().find(|link| link.name == "lo" && !link.alias.is_empty() && link.alias != function.mark)
        {
            let (function, namespace, mark) = (function.name.clone(), namespace.clone(), lo.alias.clone());
            return Err(FunctionError::NotOurs { function, namespace, mark });
        }
        if let Some(identity) = namespace::identity(namespace) {
            process::end(&[identity].into(), PATIENCE);
        }
        // The kernel removes links of a namespace that goes a little later, in a thread of its own; the node's ends go with them.
        remove_ends(function)?;
        Ok(namespace::remove_all([namespace.as_str()])?)
    }

    fn execute(&self, function: &Function, command: &str) -> Result<String> {
        let run = Run::new("sh", ["-c", command]).inside(&function.namespace);
        Ok(run.remedy("fix this command of the function").text()?)
    }
}

/// Both ends are made where they belong, so that their interface numbers count from 2 in each namespace.
fn veth(namespace: &str, link: &Link) -> String {
    let Link { node, name, mtu, .. } = link;
    let (near, far) = (mac(node.mac), mac(link.mac));
    // A bare name could be read as an option's abbreviation.
    format!(
        "link add name {0} address {near} mtu {mtu} type veth peer name {name} netns {namespace} address {far} mtu {mtu}\n\
         link set dev {0} up\n",
        node.name
    )
}
