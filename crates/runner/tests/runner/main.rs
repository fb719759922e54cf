//! `segue-service`: what it says, and services on a veth.

mod command;
mod counter;
mod forward;
mod kernel;
mod labels;
mod new;
mod python;
mod site;
mod transfer;
mod tun;
