//! The agent of one node.
