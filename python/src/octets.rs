//! Octets that Python code gives.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

/// `bytes`, `bytearray` or `memoryview`. Not any sequence of numbers, which would be taken one by one, and not a text.
pub(crate) struct Octets(pub(crate) Vec<u8>);

impl<'a, 'py> FromPyObject<'a, 'py> for Octets {
    type Error = PyErr;

    fn extract(value: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if let Ok(array) = value.cast::<PyByteArray>() {
            return Ok(Self(array.to_vec()));
        }
        if value.cast::<PyMemoryView>().is_ok() {
            let bytes = value.call_method0("tobytes")?;
            return Ok(Self(bytes.cast::<PyBytes>()?.as_bytes().to_vec()));
        }
        let kind = value.get_type().name()?;
        Err(PyTypeError::new_err(format!("octets are wanted (bytes, bytearray, memoryview), not {kind}")))
    }
}
