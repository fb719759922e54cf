//! `trace`: what happens to one packet.

use anyhow::Result;
use segue_lab::trace::{self, TraceArguments, event::Verdict};

use crate::{
    args::{Global, Output},
    output,
    target::{self, WrongUsage},
};

/// Traces in the lab that the options name; 1 if the probe did not arrive as it should.
pub fn trace(global: &Global, arguments: &TraceArguments) -> Result<u8> {
    if global.socket.is_some() || global.node.is_some() {
        return Err(WrongUsage("a trace is of a whole lab: give --lab, without --socket and --node".into()).into());
    }
    let lab = target::lab(global)?;
    let trace = trace::trace(&segue_lab::names::Roots::default(), &lab, arguments)?;
    match global.output {
        Output::Table => output::print(&trace::text::text(&trace))?,
        format => output::structured(&trace, format)?,
    }
    Ok(u8::from(trace.verdict != Verdict::Delivered))
}
