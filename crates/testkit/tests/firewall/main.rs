//! The firewall on single packets: rules, connections, fragments, and what it reads of a packet.

mod connections;
mod fragments;
mod iptables;
mod key;
mod layer4;
mod random;
mod rules;
mod seg6;
mod srh;
mod state;
mod verdicts;
