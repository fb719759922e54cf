//! `segue-service`: what it says, and services on a veth.

mod command;
mod forward;
mod site;
