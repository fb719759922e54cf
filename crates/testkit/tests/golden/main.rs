//! Golden packets: for one packet in, verdict, octets and counters; and packets at random with the same node.

mod aware_mutation;
mod boundary;
mod decapsulation;
mod domain;
mod end;
mod errors;
mod garbage;
mod generations;
mod headend;
mod isolation;
mod label_binding;
mod label_entropy;
mod label_firewall;
mod label_functions;
mod label_paths;
mod label_udp;
mod labels;
mod memory;
mod mistakes;
mod mutation;
mod odd;
mod proxy;
mod review;
mod usual;
mod usual_labels;
mod ways;
