//! Where labels are learned from.

use std::path::Path;

use crate::error::KeyPath;
use crate::learn::{HOLD_TIME_MAX, LEARNED_LABELS_MAX};

use super::Check;

impl Check<'_> {
    pub(super) fn learn(&mut self) {
        let Some(learn) = self.state.learn() else { return };
        let key = KeyPath::root().at("mpls").at("learn");
        match (&learn.file, learn.kernel) {
            (Some(_), true) => {
                self.error(&key, "there are two sources of labels", "keep one of `kernel` and `file`");
            }
            (None, false) => {
                let remedy = "write `kernel: true`, or `file:` with a path";
                self.error(&key, "nothing says where labels are learned from", remedy);
            }
            _ => {}
        }
        if let Some(file) = learn.file.as_ref().filter(|file| !Path::new(file).is_absolute()) {
            let message = format!("{file:?} is no absolute path");
            self.error(&key.at("file"), message, "write the path from the root on, such as /run/segue/labels.json");
        }
        if learn.max_labels.is_some_and(|labels| !(1..=LEARNED_LABELS_MAX).contains(&labels)) {
            let message = "so many labels cannot be learned";
            self.error(&key.at("max_labels"), message, format!("choose 1 to {LEARNED_LABELS_MAX}"));
        }
        if learn.hold_time.is_some_and(|seconds| seconds > HOLD_TIME_MAX) {
            let message = "labels must not outlive their source so long";
            self.error(&key.at("hold_time"), message, format!("choose 0 to {HOLD_TIME_MAX} seconds"));
        }
    }
}
