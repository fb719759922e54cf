//! `tun`: programs that know nothing of Segment Routing see inner packets on its device.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use segue_service::driver::srv6;
use segue_wire::{Ipv4Repr, PacketBuilder, UdpRepr};

use crate::site::{Site, expected, frame};

/// A question to a DNS server, each with another identification.
fn question(number: u16) -> Vec<u8> {
    let mut octets = number.to_be_bytes().to_vec();
    octets.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    octets.extend(b"\x05segue\x07example\x03com\x00\x00\x01\x00\x01");
    let addresses = Ipv4Repr {
        source: "192.0.2.1".parse().unwrap(),
        destination: "192.0.2.53".parse().unwrap(),
        ..Ipv4Repr::default()
    };
    let ports = UdpRepr { source_port: 40_000, destination_port: 53 };
    srv6(&PacketBuilder::new().ipv4(addresses).udp(ports).payload(&octets).build())
}

/// What a program says on the device while packets pass, until it ends by itself.
fn watched(site: &Site, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = site.far.spawn(&mut command);
    let (end, mut number) = (Instant::now() + Duration::from_secs(30), 0);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            let output = child.wait_with_output().unwrap();
            panic!("{words:?} does not end: {}", String::from_utf8_lossy(&output.stderr));
        }
        // The packet goes on whatever the program does with its copy.
        let packet = frame(&question(number));
        site.port.send(&packet);
        assert_eq!(site.returned(1), [expected(&packet)]);
        number += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    said
}

#[test]
#[ignore = "needs root"]
fn tcpdump_and_ndpi_see_inner_packets() {
    let mut site = Site::new(1500, 1);
    site.start("service: tun\n");
    // Another configuration may name another device: for that alone it keeps a right.
    assert_eq!(site.status()["confinement"]["capabilities"], serde_json::json!(["CAP_NET_ADMIN"]));
    let said = watched(&site, &["tcpdump", "-n", "-i", "segue-tun", "-c", "5"]);
    assert!(said.contains("192.0.2.1.40000 > 192.0.2.53.53") && said.contains("A? segue.example.com."), "{said}");
    let said = watched(&site, &["ndpiReader", "-i", "segue-tun", "-s", "2"]);
    let dns = said.lines().find(|line| line.trim_start().starts_with("DNS ")).unwrap_or_else(|| panic!("{said}"));
    assert!(dns.contains("flows: 1"), "{said}");
    // Another configuration takes the device over; and another device, if it says so.
    let device = site.far.sh("ip -o link show dev segue-tun");
    site.write("service: tun\nconfig: {flow_timeout_s: 60}\n");
    site.ask("reload").unwrap();
    assert_eq!(site.far.sh("ip -o link show dev segue-tun"), device);
    assert!(watched(&site, &["tcpdump", "-n", "-i", "segue-tun", "-c", "1"]).contains("192.0.2.53"));
    site.write("service: tun\nconfig: {device: other}\n");
    site.ask("reload").unwrap();
    assert!(site.far.sh("ip -o link").contains("other:"));
    assert!(watched(&site, &["tcpdump", "-n", "-i", "other", "-c", "1"]).contains("192.0.2.53"));
    site.stop();
    assert!(!site.far.sh("ip -o link").contains("segue-tun"), "the device goes with the service");
}
