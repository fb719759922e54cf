//! Sysctls of the calling thread's network namespace, through `/proc/sys`.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::{HostError, Result};

const REMEDY: &str =
    "check that the kernel has this sysctl and takes this value, that /proc/sys can be written, and that you are root";

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(file(name))
}

/// The file of a sysctl below `/proc/sys`. Like sysctl(8): the first separator says whether dots or slashes separate.
#[must_use]
pub fn file(key: &str) -> String {
    match (key.find('.'), key.find('/')) {
        (Some(dot), slash) if slash.is_none_or(|slash| dot < slash) => key
            .chars()
            .map(|c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => key.to_owned(),
    }
}

/// The value without its newline; `None` if there is no such sysctl.
///
/// # Errors
/// If it cannot be read.
pub fn get(name: &str) -> Result<Option<String>> {
    let path = path(name);
    match fs::read_to_string(&path) {
        Ok(value) => Ok(Some(value.trim_end().to_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostError::io("read sysctl", path, REMEDY)(error)),
    }
}

/// Writes the value.
///
/// # Errors
/// If there is no such sysctl, or the kernel refuses the value.
pub fn set(name: &str, value: &str) -> Result<()> {
    let path = path(name);
    fs::write(&path, value).map_err(HostError::io("set sysctl", path, REMEDY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_both_spellings() {
        assert_eq!(file("net.ipv4.ip_forward"), "net/ipv4/ip_forward");
        assert_eq!(file("net/ipv4/conf/a.b/forwarding"), "net/ipv4/conf/a.b/forwarding");
        assert_eq!(file("net.ipv4.conf.a/b.forwarding"), "net/ipv4/conf/a.b/forwarding");
    }

    #[test]
    fn what_is_there_and_what_is_not() {
        assert!(get("kernel.ostype").unwrap().is_some_and(|value| value == "Linux"));
        assert_eq!(get("net.ipv4.there_is_none").unwrap(), None);
        let error = set("net/ipv4/there_is_none", "1").unwrap_err().to_string();
        assert!(error.contains("set sysctl /proc/sys/net/ipv4/there_is_none"), "{error}");
    }
}
