//! Network namespaces that remove themselves.

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use segue_host::{Run, Temporary, sysctl};

use crate::command::{output, run, sh};

const PREFIX: &str = "sg-t-";

/// Family and rest of a line of `ip`; none if it is something else, or has other options.
fn ip_line(line: &str) -> Option<(Option<&str>, &str)> {
    let rest = line.strip_prefix("ip ")?.trim_start();
    let (first, behind) = rest.split_once(' ')?;
    match first {
        "-4" | "-6" => Some((Some(first), behind.trim_start())).filter(|(_, rest)| !rest.starts_with('-')),
        _ if first.starts_with('-') => None,
        _ => Some((None, rest)),
    }
}

/// A network namespace with loopback up, IPv4 and IPv6 forwarding on and duplicate address detection off. It goes away with
/// all that runs in it when the value is dropped, also by a panic.
#[derive(Debug)]
pub struct Netns(Temporary);

impl Netns {
    /// Makes a namespace `sg-t-<process>-<number>`.
    ///
    /// # Panics
    ///
    /// Without root.
    #[allow(clippy::new_without_default)] // it changes the machine
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let netns = Self(Temporary::make(PREFIX, &number).unwrap_or_else(|error| panic!("{error}")));
        netns.enter(|| {
            for setting in [
                "ipv6.conf.all.forwarding=1",
                "ipv4.ip_forward=1",
                "ipv4.conf.all.rp_filter=0",
                "ipv4.conf.default.rp_filter=0",
                "ipv6.conf.all.accept_dad=0",
                "ipv6.conf.default.accept_dad=0",
                "ipv6.conf.default.accept_ra=0",
                "ipv6.conf.default.router_solicitations=0",
                "ipv6.conf.default.mldv1_unsolicited_report_interval=0",
            ] {
                set(setting);
            }
        });
        netns
    }

    /// Its name below `/run/netns`.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Calls `body` in a thread of its own that lives in this namespace. Programs that it starts live there too.
    ///
    /// # Panics
    ///
    /// When the namespace cannot be entered, or when `body` panics.
    pub fn enter<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        self.0.inside(body).unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`sh`], inside.
    pub fn sh(&self, line: &str) -> String {
        self.enter(|| sh(line))
    }

    /// Runs several lines one after the other; blank ones are skipped. Lines of `ip` in a row are one run of it, as far as they have the
    /// same family.
    pub fn script(&self, lines: &str) {
        let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        self.enter(|| {
            for part in lines.chunk_by(|one, other| {
                ip_line(one).is_some_and(|(family, _)| ip_line(other).is_some_and(|(other, _)| family == other))
            }) {
                match part {
                    [_, _, ..] => {
                        let (families, lines): (Vec<_>, Vec<_>) = part.iter().filter_map(|line| ip_line(line)).unzip();
                        let family = families.first().copied().flatten();
                        let ip = Run::new("ip", family.into_iter().chain(["-batch", "-"]));
                        ip.input(lines.join("\n") + "\n")
                            .text()
                            .unwrap_or_else(|error| panic!("{error}\n{}", lines.join("\n")));
                    }
                    _ => part.iter().for_each(|line| drop(sh(line))),
                }
            }
        });
    }

    /// As [`run`], inside.
    pub fn run(&self, command: &mut Command) -> String {
        self.enter(|| run(command))
    }

    /// As [`output`], inside.
    pub fn output(&self, command: &mut Command) -> Output {
        self.enter(|| output(command))
    }

    /// Starts a program inside that ends with the namespace at the latest.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn spawn(&self, command: &mut Command) -> Child {
        self.enter(|| command.stdin(Stdio::null()).spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sets `net.<name>=<value>`, written as in sysctl.conf without the leading `net.`.
    ///
    /// # Panics
    ///
    /// When the setting does not exist.
    pub fn sysctl(&self, setting: &str) {
        self.enter(|| set(setting));
    }

    /// The interface's index.
    ///
    /// # Panics
    ///
    /// When there is none of this name.
    pub fn ifindex(&self, interface: &str) -> u32 {
        self.enter(|| nix::net::if_::if_nametoindex(interface).unwrap_or_else(|error| panic!("{interface}: {error}")))
    }

    /// The interface's link-layer address.
    ///
    /// # Panics
    ///
    /// When there is no such interface.
    pub fn mac(&self, interface: &str) -> [u8; 6] {
        let text = self.sh(&format!("cat /sys/class/net/{interface}/address"));
        parse_mac(text.trim())
    }
}

fn set(setting: &str) {
    let (name, value) = setting.split_once('=').expect("name=value");
    sysctl::set(&format!("net/{}", name.replace('.', "/")), value).unwrap_or_else(|error| panic!("{error}"));
}

/// One end of a veth pair to be.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Where it lies.
    pub netns: &'a Netns,
    /// Its name there.
    pub name: &'a str,
    /// Its link-layer address, six octets with colons.
    pub mac: &'a str,
}

/// Reads `02:00:00:00:00:01`.
///
/// # Panics
///
/// When it is none.
pub fn parse_mac(text: &str) -> [u8; 6] {
    let octets: Vec<u8> = text.split(':').map(|part| u8::from_str_radix(part, 16).expect("a MAC address")).collect();
    octets.try_into().expect("six octets")
}
