//! Checks of what a lab sends and captures by itself.

use std::collections::HashMap;

use super::Check;
use crate::error::KeyPath;
use crate::topology::{Capture, RATE_MAX, SIZE_MAX, SIZE_MIN, SNAP_MIN, Traffic, TrafficProtocol};

/// Seconds of a day.
const DAY: f64 = 86_400.0;
/// Milliseconds of an hour.
const HOUR_MS: u32 = 3_600_000;

impl Check<'_> {
    pub(super) fn traffic(&mut self, traffic: &Traffic, key: &KeyPath) {
        for (name, host) in [("from", &traffic.from), ("to", &traffic.to)] {
            self.host_exists(host, &key.at(name));
        }
        if traffic.from == traffic.to {
            let message = format!("packets from {} to itself meet no network", traffic.to);
            self.report.error(&key.at("to"), message, "name another host");
        }
        if traffic.protocol == TrafficProtocol::Icmp {
            for (name, port) in [("port", traffic.port), ("source_port", traffic.source_port)] {
                if port.is_some() {
                    self.report.error(&key.at(name), "ICMP has no ports", "remove the key, or write `protocol: udp`");
                }
            }
        }
        for (name, port) in [("port", traffic.port), ("source_port", traffic.source_port)] {
            if port == Some(0) {
                self.report.error(&key.at(name), "0 is no port", "write 1 to 65535, or remove the key");
            }
        }
        if !(traffic.rate > 0.0 && traffic.rate <= RATE_MAX) {
            let message = format!("{} packets a second are not possible", traffic.rate);
            self.report.error(&key.at("rate"), message, format!("write a number above 0, at most {RATE_MAX}"));
        }
        if !(SIZE_MIN..=SIZE_MAX).contains(&traffic.size) {
            let message = format!("a payload of {} octets is not possible", traffic.size);
            self.report.error(&key.at("size"), message, format!("write {SIZE_MIN} to {SIZE_MAX}"));
        }
        if traffic.count.is_none() && traffic.seconds.is_none() {
            let remedy = "add `count:` with a number of packets, or `seconds:`";
            self.report.error(key, "nothing says when it ends", remedy);
        }
        if traffic.count == Some(0) {
            self.report.error(&key.at("count"), "0 packets are none", "write a number above 0, or remove the source");
        }
        if traffic.seconds.is_some_and(|seconds| !(seconds > 0.0 && seconds <= DAY)) {
            self.report.error(&key.at("seconds"), "that is no time", format!("write a number above 0, at most {DAY}"));
        }
        if traffic.delay_ms > HOUR_MS {
            let message = format!("{} ms are more than an hour", traffic.delay_ms);
            self.report.error(&key.at("delay_ms"), message, format!("write 0 to {HOUR_MS}"));
        }
    }

    fn host_exists(&mut self, name: &str, key: &KeyPath) {
        if !self.topology.hosts.contains_key(name) {
            let remedy = if self.topology.nodes.contains_key(name) {
                "name a host; this is a node"
            } else {
                "add it to `hosts`, or correct the name"
            };
            self.report.error(key, format!("there is no host {name:?}"), remedy);
        }
    }

    /// Two sources with one receiver would take each other's packets.
    pub(super) fn receivers(&mut self) {
        let mut taken: HashMap<(&str, TrafficProtocol, u16), &str> = HashMap::new();
        let root = KeyPath::root().at("traffic");
        for (name, traffic) in &self.topology.traffic {
            if traffic.protocol == TrafficProtocol::Icmp {
                continue;
            }
            let place = (traffic.to.as_str(), traffic.protocol, traffic.port());
            if let Some(other) = taken.insert(place, name) {
                let message = format!("the source {other} goes to the same port of {}", traffic.to);
                self.report.error(&root.at(name), message, "write another `port:`");
            }
        }
    }

    pub(super) fn capture(&mut self, capture: &Capture, key: &KeyPath) {
        if !capture.at.contains("--") && !capture.at.starts_with(crate::topology::LABEL) {
            let message = format!("{:?} is no link, and no label of a SID or a chain", capture.at);
            self.report.error(&key.at("at"), message, "write `A--B`, `$NODE.FUNCTION` or `$chain.NAME`");
        }
        if capture.file.as_ref().is_some_and(|file| file.trim().is_empty()) {
            self.report.error(&key.at("file"), "the name is empty", "write a path, or remove the key");
        }
        if capture.snap_length.is_some_and(|octets| !(SNAP_MIN..=65_535).contains(&octets)) {
            let message = "so many octets of a packet are not possible";
            self.report.error(&key.at("snap_length"), message, format!("write {SNAP_MIN} to 65535, or remove the key"));
        }
        for (name, none) in [
            ("count", capture.count == Some(0)),
            ("seconds", capture.seconds == Some(0)),
            ("megabytes", capture.megabytes == 0),
        ] {
            if none {
                self.report.error(
                    &key.at(name),
                    "nothing could be captured",
                    "write a number above 0, or remove the key",
                );
            }
        }
    }

    /// Two captures into one file would write over each other.
    pub(super) fn files(&mut self) {
        let mut taken: HashMap<String, &str> = HashMap::new();
        let root = KeyPath::root().at("captures");
        for (name, capture) in &self.topology.captures {
            if let Some(other) = taken.insert(capture.file(name), name) {
                let message = format!("the capture {other} has the same file");
                self.report.error(&root.at(name), message, "write another `file:`");
            }
        }
    }
}
