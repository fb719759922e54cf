//! Functions that stand in for failed ones. Whether their proxies can, the planner knows.

use super::Check;
use crate::error::KeyPath;

impl Check<'_> {
    /// Whether a backup is there.
    pub(super) fn backup(&mut self, name: &str, backup: &str, key: &KeyPath) {
        if !self.topology.functions.contains_key(backup) {
            let message = format!("there is no function {backup:?}");
            return self.report.error(key, message, "add it to `functions`, or correct the name");
        }
        if backup == name {
            self.report.error(key, "the backup is this function itself", "name another function");
        }
    }
}
