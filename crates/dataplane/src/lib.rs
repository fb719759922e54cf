//! Loads Segue's data plane.
