//! Sysctls of the calling thread's network namespace, through /proc/sys.

use std::{fs, io, path::PathBuf};

use super::KernelError;

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name)
}

/// The value without its newline; `None` if there is no such sysctl.
pub fn get(name: &str) -> Result<Option<String>, KernelError> {
    match fs::read_to_string(path(name)) {
        Ok(value) => Ok(Some(value.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(KernelError::file(format!("read sysctl {name}"), &error)),
    }
}

/// Writes the value.
pub fn set(name: &str, value: &str) -> Result<(), KernelError> {
    fs::write(path(name), value).map_err(|error| KernelError::file(format!("set sysctl {name} to {value}"), &error))
}
