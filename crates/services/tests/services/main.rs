//! Every service, with the driver.

mod bulk;
mod chain;
mod compression;
mod counter;
mod forward;
mod labels;
mod list;
mod refragment;
mod tcp_bulk;
mod tun;
