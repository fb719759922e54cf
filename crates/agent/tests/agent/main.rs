//! A node with a real agent, between neighbours and with functions.

mod background;
mod boundary;
mod doctor;
mod exact;
mod firewall;
mod functions;
mod hmac;
mod instances;
mod label_functions;
mod label_services;
mod labels;
mod learned_labels;
mod lifecycle;
mod liveness;
mod neighbours;
mod netfilter;
mod oci;
mod ports;
mod restart_traffic;
mod scale;
mod services;
mod support;
