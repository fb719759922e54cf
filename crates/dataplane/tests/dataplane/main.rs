//! Loading, attaching, pinning and applying, with the kernel.

mod layout;
mod life;
mod lifecycle;
mod links;
mod stages;
mod steering;
mod support;
