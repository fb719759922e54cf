//! Topology files: from other formats, into other formats, and made by a rule.

pub mod clab;
pub mod dot;
pub mod generate;
mod layout;
pub mod ntfl;
mod picture;
pub mod svg;
mod write;
