//! Measures Segue's data plane beside the kernel's, and beside a bare redirect as the limit of the machine.
//!
//! docs/developing/benchmarks.md explains the method.
#![forbid(unsafe_code)]

pub mod an_nf;
pub mod classify;
pub mod cli;
mod cli_figures;
pub mod connector;
pub mod conntrack_flood;
pub mod contest;
pub mod cost;
pub mod cost_case;
pub mod cpu;
pub mod error;
pub mod figure;
pub mod firewall;
pub mod firewall_rules;
pub mod frame;
pub mod function;
pub mod hosts;
pub mod interrupt;
pub mod lane;
pub mod lookup;
pub mod lookup_case;
pub mod netns;
mod object;
pub mod plot;
pub mod plot_curves;
pub mod plot_figure;
pub mod plot_rules;
pub mod proxy;
pub mod regression;
mod relay;
pub mod report;
pub mod scenario;
pub mod segue;
pub mod service;
pub mod service_process;
pub mod service_soak;
pub mod services;
pub mod stats;
pub mod topology;
pub mod traffic;
pub mod wrong_header;
