//! Functions on TAP devices: what a namespace would have, they have not.

use super::Check;
use crate::error::KeyPath;
use crate::topology::{Function, FunctionKind, ProxyChoice};

impl Check<'_> {
    /// A function on TAP is a program in user space or a virtual machine: the lab knows nothing of what is inside.
    pub(super) fn program(&mut self, function: &Function, key: &KeyPath) {
        if function.kind != FunctionKind::Tap {
            if function.program.is_some() {
                let message = "only a function on TAP devices is a program";
                self.report.error(&key.at("program"), message, "add `kind: tap`, or use `commands`");
            }
            return;
        }
        if function.program.as_ref().is_some_and(|program| program.trim().is_empty()) {
            let message = "the program is empty";
            self.report.error(&key.at("program"), message, "write a shell command, or remove the key");
        }
        if function.proxy == ProxyChoice::Exact {
            let message = "the exact proxy needs a function on the kernel's path: a program that reads packets and writes others \
                           makes new ones, to which no header belongs";
            self.report.error(&key.at("proxy"), message, "write dynamic-flow, or remove the key: it chooses");
        }
        let given = [
            ("nftables", function.nftables.is_some()),
            ("sysctls", !function.sysctls.is_empty()),
            ("commands", !function.commands.is_empty()),
        ];
        for (other, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let message = format!("a function on TAP has no namespace: it has nothing for the key {other:?}");
            self.report.error(&key.at(other), message, "remove the key; `program` is what runs");
        }
    }
}
