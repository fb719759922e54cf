//! A topology file that was read.

use std::path::{Path, PathBuf};

use segue_model::topology::Topology;
use segue_wiring::LabPlan;

/// A topology file, read, checked and planned.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// What it says.
    pub topology: Topology,
    /// What follows from it.
    pub plan: LabPlan,
}

impl Loaded {
    /// The directory of the file; none: the one that this program is in.
    #[must_use]
    pub fn directory(&self) -> Option<&Path> {
        self.file.parent().filter(|directory| *directory != Path::new(""))
    }
}
