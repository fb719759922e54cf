//! `trace`, `ping`, `traceroute`: what happens to packets.

use anyhow::Result;
use segue_api::client::Client;
use segue_lab::{
    names::Roots,
    trace::{
        self, TraceArguments,
        event::{Trace, Verdict},
        nodes,
        ping::{self, EchoArguments, Echoes, RouteArguments},
        text,
    },
};

use crate::{
    args::{Global, Output},
    output,
    target::{self, WrongUsage},
};

/// Traces in the lab that the options name, or on deployed nodes; 1 if the packet does not arrive as it should.
pub fn trace(global: &Global, arguments: &TraceArguments) -> Result<u8> {
    let trace = match deployed(global, arguments)? {
        Some(agents) => nodes::trace(agents, arguments)?,
        None => {
            if global.node.is_some() {
                let usage = "a trace is of a whole lab: give --lab without --node, or --ingress NODE:PORT";
                return Err(WrongUsage(usage.into()).into());
            }
            trace::trace(&Roots::default(), &target::lab(global)?, arguments)?
        }
    };
    match global.output {
        Output::Table => output::print(&text::text(&trace))?,
        format => output::structured(&trace, format)?,
    }
    Ok(u8::from(!is_well(&trace)))
}

/// Whether the packet arrived, or left the nodes that are known, and as the simulation says.
fn is_well(trace: &Trace) -> bool {
    matches!(trace.verdict, Verdict::Delivered | Verdict::Left) && trace.differs.is_none()
}

/// The agents of deployed nodes, unless it is a lab's trace.
fn deployed(global: &Global, arguments: &TraceArguments) -> Result<Option<Vec<(String, Client)>>> {
    if let Some(file) = &arguments.nodes {
        if global.lab.is_some() || global.node.is_some() || global.socket.is_some() {
            return Err(WrongUsage("--nodes names the nodes: give it without --lab, --node and --socket".into()).into());
        }
        return Ok(Some(nodes::read(file)?));
    }
    // Without a host and a lab it can only be this node's.
    let of_lab = global.lab.is_some() || global.node.is_some() || arguments.from.is_some();
    let no_lab = segue_lab::state::recorded_labs(&Roots::default()).is_empty();
    let colon = arguments.ingress.as_ref().is_some_and(|ingress| ingress.contains(':'));
    if global.socket.is_some() || (!of_lab && (no_lab || (arguments.ingress.is_some() && !colon))) {
        let socket = global.socket.clone().unwrap_or_else(|| crate::args::DEFAULT_SOCKET.into());
        return Ok(Some(vec![(String::new(), Client::new(socket))]));
    }
    Ok(None)
}

/// Pings; 1 if nothing answers.
pub fn ping(global: &Global, mut arguments: EchoArguments) -> Result<u8> {
    let lab = lab_of(global, &mut arguments.ping.from)?;
    let agents = watched(global, lab.is_none() && arguments.ping.oam);
    told(global, &ping::ping(&Roots::default(), lab.as_deref(), agents, &arguments)?)
}

/// Traces the route; 1 if the target does not answer.
pub fn traceroute(global: &Global, mut arguments: RouteArguments) -> Result<u8> {
    let lab = lab_of(global, &mut arguments.ping.from)?;
    let agents = watched(global, lab.is_none() && arguments.ping.oam);
    told(global, &ping::traceroute(&Roots::default(), lab.as_deref(), agents, &arguments)?)
}

/// The lab that is meant, if any; who asks is `from`, or the node that the options name.
fn lab_of(global: &Global, from: &mut Option<String>) -> Result<Option<String>> {
    *from = from.take().or_else(|| global.node.clone());
    Ok(match (&global.lab, &from) {
        (None, None) => None,
        _ => Some(target::lab(global)?),
    })
}

/// This machine's agent, if its data plane is to be watched.
fn watched(global: &Global, wanted: bool) -> Vec<trace::Source> {
    let socket = global.socket.clone().unwrap_or_else(|| crate::args::DEFAULT_SOCKET.into());
    let agents = wanted.then(|| ("this node".to_owned(), Client::new(socket)));
    ping::watched(agents.into_iter().collect())
}

fn told(global: &Global, echoes: &Echoes) -> Result<u8> {
    match global.output {
        Output::Table => output::print(&text::echoes(echoes))?,
        format => output::structured(echoes, format)?,
    }
    Ok(u8::from(!echoes.reached))
}
