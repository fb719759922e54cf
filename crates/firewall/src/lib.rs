//! The one way from a firewall of the desired state, with its rule files, to a program of the classifier.
//!
//! Everyone who reads rules goes this way: the data plane that runs them, the lab and `segue firewall check` that look at
//! them first, `segue firewall explain` that tells a packet's way, the agent that prints them with their counters. So none of
//! them can disagree about which file is for which family, what a set holds, what is in two files, or where packets enter.
//!
//! [`files::read`] brings the files' texts into the document; [`Source::parse`] reads the texts; [`Source::lower`] makes one
//! program of them, for the node that they are to run on; [`sets::SetChains`] gives it the sets as chains.
//!
//! What it is not: it knows no map and no packet. How a program is found in is `segue-classifier`'s, where it lies
//! `segue-dataplane`'s.
#![forbid(unsafe_code)]

mod error;
pub mod files;
pub mod sets;
mod source;

pub use error::Error;
pub use source::{FamilyRules, Rules, Source};
