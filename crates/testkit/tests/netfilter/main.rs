//! The firewall beside the kernel's netfilter: the same packets at random through both, which must say the same.

mod alike;
mod connections;
mod fragments;
mod tcp;
mod track;
