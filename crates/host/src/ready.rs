//! When a namespace can be reached by IPv6. The kernel gives an interface its link-local address, and has it listen to the groups of its
//! addresses, in a work queue that waits for whoever changes links elsewhere: on a busy host that is seconds after `ip` has returned. Until
//! then neighbours are neither asked for nor answered, and packets for them are dropped without a word.

use std::fs;
use std::io::{Error, ErrorKind};
use std::net::Ipv6Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::link::LinkSocket;
use crate::{HostError, Result, namespace, sysctl};

/// How long the kernel may take.
const WITHIN: Duration = Duration::from_secs(30);
const REMEDY: &str = "look at `ip -6 addr` in this namespace: an address is `tentative`, or an interface that is up has none that begins with fe80. If the machine is busy with something else, try again";
/// `IFA_F_TENTATIVE`
const TENTATIVE: u8 = 0x40;

/// Waits until each of these interfaces of a namespace has its link-local address, if it has a carrier and is to have one, until none of its
/// addresses is tentative, and until it listens for those who ask for them.
///
/// # Errors
/// If there is no such namespace, or if it takes longer than 30 seconds.
pub fn wait(namespace: &str, interfaces: &[&str]) -> Result<()> {
    namespace::inside(namespace, || {
        let begun = Instant::now();
        loop {
            let Some(unready) = unready_here(interfaces)? else { return Ok(()) };
            if begun.elapsed() > WITHIN {
                let cause = Error::new(ErrorKind::TimedOut, unready);
                return Err(HostError::io("use IPv6 in", namespace::path(namespace), REMEDY)(cause));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })?
}

/// What is not ready in the calling thread's namespace.
fn unready_here(interfaces: &[&str]) -> Result<Option<String>> {
    let read = |name: &str| {
        let path = Path::new("/proc/thread-self/net").join(name);
        match fs::read_to_string(&path) {
            // A kernel without IPv6 has nothing to wait for.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            result => result.map_err(HostError::io("read", &path, "mount /proc")),
        }
    };
    let mut link_local = Vec::new();
    for link in LinkSocket::open()?.all()? {
        if link.carrier && interfaces.contains(&link.name.as_str()) && gives_link_local(&link.name)? {
            link_local.push(link.name);
        }
    }
    Ok(unready(&read("if_inet6")?, &read("igmp6")?, &link_local))
}

/// Whether the kernel makes a link-local address for an interface.
fn gives_link_local(interface: &str) -> Result<bool> {
    let value = |name: &str| sysctl::get(&format!("net/ipv6/conf/{interface}/{name}"));
    Ok(value("disable_ipv6")?.is_some_and(|value| value == "0")
        && value("addr_gen_mode")?.is_some_and(|value| value != "1"))
}

/// `addresses` and `groups`: `if_inet6` and `igmp6` of /proc/net. `link_local`: interfaces that are to have such an address; others are not
/// looked at.
fn unready(addresses: &str, groups: &str, link_local: &[String]) -> Option<String> {
    let groups: Vec<[&str; 2]> = groups
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            Some([words.next()?, words.next()?])
        })
        .collect();
    let mut without: Vec<&str> = link_local.iter().map(String::as_str).collect();
    for line in addresses.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, _, _, flags, interface] = words[..] else { continue };
        if !link_local.iter().any(|name| name == interface) {
            continue;
        }
        let shown = || {
            u128::from_str_radix(address, 16)
                .map_or_else(|_| address.to_owned(), |bits| Ipv6Addr::from(bits).to_string())
        };
        if u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & TENTATIVE != 0) {
            return Some(format!("{} of {interface} is tentative", shown()));
        }
        // Solicited-node (RFC 4291 section 2.7.1).
        let group = format!("ff0200000000000000000001ff{}", address.get(26..).unwrap_or_default());
        if !groups.contains(&[interface, &group]) {
            return Some(format!("{interface} does not listen for {} yet", shown()));
        }
        if address.starts_with("fe80") {
            without.retain(|name| *name != interface);
        }
    }
    without.first().map(|interface| format!("{interface} has no link-local address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: &str = "00000000000000000000000000000001 01 80 10 80       lo\n";
    const ADDRESSES: &str = "fe80000000000000005e00fffe000201 03 40 20 80     nfv1\n20010db8000200000000000000000001 03 40 00 80     nfv1\n";
    const GROUPS: &str = "1    lo              ff020000000000000000000000000001     1 0000000C 0
3    nfv1            ff0200000000000000000001ff000201     1 00000004 0
3    nfv1            ff0200000000000000000001ff000001     1 00000004 0
";

    fn of(addresses: &str, groups: &str) -> Option<String> {
        unready(&format!("{LOOPBACK}{addresses}"), groups, &["nfv1".to_owned()])
    }

    #[test]
    fn all_is_there() {
        assert_eq!(of(ADDRESSES, GROUPS), None);
        assert_eq!(unready("", "", &[]), None);
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(of("", GROUPS).unwrap(), "nfv1 has no link-local address");
        let tentative = ADDRESSES.replacen("20 80 ", "20 c0 ", 1);
        assert_eq!(of(&tentative, GROUPS).unwrap(), "fe80::5e:ff:fe00:201 of nfv1 is tentative");
        let deaf: String =
            GROUPS.lines().filter(|line| !line.contains("ff000001")).map(|line| format!("{line}\n")).collect();
        assert_eq!(of(ADDRESSES, &deaf).unwrap(), "nfv1 does not listen for 2001:db8:2::1 yet");
    }
}
