//! The measurements run, and say what they are to say.

mod functions;
mod runs;
mod services;
