//! Which runtime a kind of function has.

use crate::function::{Function, Kind};
use crate::runtime::Runtime;
use crate::{namespace, service, tap};

impl Kind {
    /// Its runtime: the one place where kinds are registered.
    #[must_use]
    pub fn runtime(self) -> &'static dyn Runtime {
        match self {
            Self::Namespace => &namespace::Namespace,
            Self::Tap => &tap::Tap,
            Self::Service => &service::Service,
        }
    }
}

impl Function {
    /// Its runtime.
    #[must_use]
    pub fn runtime(&self) -> &'static dyn Runtime {
        self.kind.runtime()
    }
}
