//! `comment`.

use std::fmt::Write;

use super::{Complaint, Extension, Given, Spec, missing, plain};
use crate::error::RuleError;
use crate::head::Head;
use crate::lexer;
use crate::values;

/// `-m comment`: matches every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comment {
    /// The comment, at most 255 octets.
    pub text: Option<String>,
}

impl Extension for Comment {
    fn options(&self) -> &'static [Spec] {
        const { &[plain(&["--comment"])] }
    }

    fn take(&mut self, given: &Given<'_, '_>) -> Result<(), RuleError> {
        let text = values::text(given.value(), 255)?;
        given.once(&mut self.text, text)
    }

    fn finish(&mut self, _: &Head) -> Result<(), Complaint> {
        self.text.as_ref().map(|_| ()).ok_or_else(|| missing("comment without a text", "add --comment TEXT"))
    }

    fn save(&self, out: &mut String) {
        if let Some(text) = &self.text {
            out.push_str(" --comment ");
            lexer::quote(text, out);
        }
    }

    fn list(&self, out: &mut String) {
        if let Some(text) = &self.text {
            let _ = write!(out, " /* {text} */");
        }
    }
}
