//! Checks of a node's desired state. So far: its name and address.

use crate::check;
use crate::error::{Errors, KeyPath, Report};
use crate::node::NodeState;

impl NodeState {
    /// Checks what the types alone do not say.
    ///
    /// # Errors
    /// All that is wrong, with key paths.
    pub fn validate(&self) -> Result<(), Errors> {
        let mut report = Report::default();
        if !check::is_display_name(&self.node) {
            let remedy = "use 1 to 63 visible ASCII characters";
            report.error(&KeyPath::root().at("node"), format!("{:?} cannot be a node's name", self.node), remedy);
        }
        if let Some(problem) = check::ipv6_problem(self.source_address) {
            let message = format!("{} {problem}", self.source_address);
            report.error(&KeyPath::root().at("source_address"), message, "choose a global or unique local address");
        }
        report.finish()
    }
}
