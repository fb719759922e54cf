//! Rule files: read, refused, printed, and what they mean.

mod errors;
mod lower;
mod mutations;
mod packets;
mod print;
mod real;
mod stock;
mod yaml;
