//! A program of services: the command line of `segue-service`, with services in Python.

use std::ffi::OsString;

use pyo3::prelude::*;
use segue_service::Registered;

use crate::kind::Kind;

/// Does what `arguments` say with services of these classes, and returns the exit status. `words`: what starts the program again.
#[pyfunction]
pub(crate) fn program(
    py: Python<'_>,
    services: Vec<Bound<'_, PyAny>>,
    arguments: Vec<OsString>,
    words: Vec<OsString>,
) -> PyResult<u8> {
    let kinds: PyResult<Vec<_>> = services.iter().map(Kind::of).collect();
    let registered = |kind: Kind| -> &'static dyn Registered { Box::leak(Box::new(kind)) };
    // A process runs one program: what it runs is there as long as it is.
    let kinds: &'static [&'static dyn Registered] = Vec::leak(kinds?.into_iter().map(registered).collect());
    // Workers take the GIL.
    Ok(py.detach(|| segue_runner::interpreted(kinds, &arguments, &words)))
}
