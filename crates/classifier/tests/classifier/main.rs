//! Rules, their files, and the structures that they are compiled to.

mod analysis;
mod classbench;
mod edges;
mod iptables;
mod iptables_errors;
mod iptables_lower;
mod iptables_mutations;
mod iptables_packets;
mod iptables_real;
mod iptables_yaml;
mod random;
mod stock;
