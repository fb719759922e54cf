//! Whole topologies, and agents beside other routers and functions.

mod bgp;
mod classes;
mod common;
mod connector;
mod connector_exact;
mod crash;
mod crossing;
mod examples;
mod examples_firewall;
mod examples_traffic;
mod impaired;
mod kernel_lab;
mod links_of_labels;
mod main_job;
mod offloads;
mod path_mtu;
mod path_mtu_matrix;
mod reload;
mod scale;
mod segment_routing;
mod services;
mod tap;
mod trace;
mod trace_labels;
mod traffic;
