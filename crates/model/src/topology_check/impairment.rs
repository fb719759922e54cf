//! Checks of what a link does to packets.

use super::Check;
use crate::error::KeyPath;
use crate::topology::{DELAY_MAX_MS, Impairment};

impl Check<'_> {
    pub(super) fn impairment(&mut self, impaired: &Impairment, key: &KeyPath) {
        for (name, value) in [("delay_ms", impaired.delay_ms), ("jitter_ms", impaired.jitter_ms)] {
            if !(0.0..=DELAY_MAX_MS).contains(&value) {
                let message = format!("{value} ms is out of range");
                self.report.error(&key.at(name), message, format!("choose 0 to {DELAY_MAX_MS}"));
            }
        }
        for (name, value) in [
            ("loss_percent", impaired.loss_percent),
            ("duplicate_percent", impaired.duplicate_percent),
            ("reorder_percent", impaired.reorder_percent),
        ] {
            if !(0.0..=100.0).contains(&value) {
                let message = format!("{value} of a hundred packets is not possible");
                self.report.error(&key.at(name), message, "choose 0 to 100");
            }
        }
        if impaired.jitter_ms > impaired.delay_ms.max(0.0) {
            let message = format!("packets cannot arrive up to {} ms before they were sent", impaired.jitter_ms);
            self.report.error(&key.at("jitter_ms"), message, "choose at most `delay_ms`");
        }
    }
}
