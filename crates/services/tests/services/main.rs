//! Every service, with the driver.

mod forward;
mod list;
