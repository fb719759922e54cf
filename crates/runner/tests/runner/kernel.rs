//! Packets that a service gives to the kernel of its namespace, by a program of its own.

use segue_service::driver::{SID, srv6};

use crate::site::{NODE, Site, expected, frame};

/// The kernel gets the packet that the service was asked about and one that it made; its End sends both back.
#[test]
#[ignore = "needs root"]
fn the_kernel_of_the_namespace_gets_packets() {
    let mut site = Site::new(1500, 1);
    for line in [
        "sysctl -q -w net.ipv6.conf.all.forwarding=1 net.ipv6.conf.all.seg6_enabled=1 net.ipv6.conf.port.seg6_enabled=1",
        &format!("ip -6 neighbour add fe80::1 lladdr {NODE} dev port nud permanent"),
        "ip -6 route add default via fe80::1 dev port",
        &format!("ip -6 route add {SID}/128 encap seg6local action End dev port"),
    ] {
        site.far.sh(line);
    }
    site.program(env!("CARGO_BIN_EXE_segue-service").replace("segue-service", "examples/to-kernel"));
    site.start("service: to-kernel\nconfig: {source: \"fc00:5e9:1::1\"}\n");
    let whole = frame(&srv6(&[0x60; 100]));
    for _ in 0..20 {
        site.port.send(&whole);
        let back = site.returned(2);
        assert_eq!(back, [expected(&whole), expected(&whole)], "{:#}", site.status());
    }
    // Another source: one segment further, as from any service.
    let mut other = whole.clone();
    other[14 + 23] = 9;
    site.port.send(&other);
    assert_eq!(site.returned(1), [expected(&other)]);
    let total = site.status()["total"].clone();
    assert_eq!(
        (&total["received"], &total["kernel"], &total["onward"], &total["own"], &total["own_out"]),
        (&21.into(), &20.into(), &1.into(), &20.into(), &20.into())
    );
    site.stop();
    // The device goes with the service.
    assert!(!site.far.sh("ip -o link").contains("segue-kernel"));
}
