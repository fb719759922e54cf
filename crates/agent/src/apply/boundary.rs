//! The boundary around an apply: shut before anything else changes, opened for ports once the data plane is on them.

use segue_dataplane::Interfaces;
use segue_model::node::NodeState;

use super::{Agent, Undo, kernel_failure, refused};
use crate::{
    kernel::{Boundary, Kernel, KernelError},
    plane::DataPlane,
    problem::Failure,
    store::Store,
};

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// Closes what `wanted` closes beside what is closed now, and leaves open only what was and will be: until
    /// [`Self::open_boundary`], an interface that is new is outside.
    pub(super) fn shut_boundary(
        &mut self,
        wanted: &NodeState,
        links: &Interfaces,
        notes: &mut Vec<Undo>,
    ) -> Result<(), Failure> {
        let failed = |error| kernel_failure("boundary", &error);
        let before = self.kernel.boundary().map_err(failed)?;
        let next = Boundary::of(wanted, links).signed(before.as_ref());
        self.plane.sign(next.signature).map_err(|problems| refused("boundary", problems))?;
        let between = before.clone().unwrap_or_default().between(&next);
        if before.as_ref() != Some(&between) {
            self.kernel.set_boundary(Some(&between)).map_err(failed)?;
            notes.push(Undo::Boundary(before));
        }
        Ok(())
    }

    /// The boundary as `wanted` has it, once the data plane is on all ports.
    pub(super) fn open_boundary(
        &mut self,
        wanted: &NodeState,
        links: &Interfaces,
        notes: &mut Vec<Undo>,
    ) -> Result<(), KernelError> {
        let before = self.kernel.boundary()?;
        let boundary = Boundary::of(wanted, links).signed(before.as_ref());
        if before.as_ref() != Some(&boundary) {
            self.kernel.set_boundary(Some(&boundary))?;
            // If the apply fails after this, what has been opened is shut before the data plane goes.
            notes.push(Undo::Boundary(before));
        }
        Ok(())
    }

    /// After somebody else has touched the table that holds the boundary.
    pub fn hold_boundary(&mut self) -> Result<(), Failure> {
        self.kernel.restore_boundary().map_err(|error| kernel_failure("boundary", &error))
    }
}
