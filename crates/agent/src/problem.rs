//! What went wrong, and whose fault it is.

pub use segue_api::problem::{ErrorBody, Problem};

/// Whose fault a failure is; decides the status code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request or the desired state (400).
    Request,
    /// The state is not the one that the request was made for (412).
    Precondition,
    /// The kernel refused, or an interface is not there (409).
    Kernel,
    /// The agent (500).
    Agent,
}

/// Why the agent could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Failure {
    /// Whose fault it is.
    pub fault: Fault,
    /// What is wrong; at least one.
    pub problems: Vec<Problem>,
}

impl Failure {
    /// One problem.
    pub fn one(fault: Fault, problem: Problem) -> Self {
        Self { fault, problems: vec![problem] }
    }
}
