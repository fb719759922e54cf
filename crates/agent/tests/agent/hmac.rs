//! The boundary of the SR domain with HMAC (RFC 8754 sections 2.1.2 and 5.1): an access port with `accept_hmac` lets in what
//! the kernel verifies with a key that the agent has given it, and nothing else.
//!
//! The kernel is an older draft's: its text lacks the D bit and the reserved bits, it looks for the TLV in the last 40 octets,
//! and only if flag 0x08 is set. So that is what outside has to send.

use std::{fs, net::Ipv6Addr, time::Duration};

use crate::support::{Agent, Network};
use segue_testkit::packet_socket::PacketSocket;
use segue_wire::{HmacVariant, Ipv6Repr, MacAddress, PacketBuilder, SrhRepr, TlvRepr, UdpRepr, srh::LINUX_HMAC_FLAG};

const KEY_ID: u32 = 7;
const SECRET: &str = "swordfish";

/// `accept_hmac` and the key's file are filled in.
const STATE: &str = r#"
node: edge
source_address: "fc00:0:1::1"
domain: {sid_blocks: ["fc00::/32"]}
hmac_keys: [{id: 7, algorithm: sha256, secret_file: "SECRET_FILE"}]
ports:
  - {name: west, role: access, accept_hmac: ACCEPT}
  - {name: east, role: core}
sids:
  - {sid: "fc00:0:1:1::/64", behaviour: End}
  - {sid: "fc00:0:1:2::/64", behaviour: End, flavours: [PSP]}
"#;

fn address(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

fn outside() -> Ipv6Addr {
    address("2001:db8:1::2")
}

/// A path through the node's End to the next node.
fn path() -> [Ipv6Addr; 2] {
    [address("fc00:0:1:1::"), address("fc00:0:2:1::")]
}

fn frame(source: Ipv6Addr, destination: Ipv6Addr, srh: SrhRepr) -> PacketBuilder {
    PacketBuilder::ethernet(MacAddress([2, 0, 0, 0, 1, 2]), MacAddress([2, 0, 0, 0, 1, 1]))
        .ipv6(Ipv6Repr::new(source, destination))
        .srh(srh)
        .udp(UdpRepr::new(1000, 2000))
        .payload(b"from outside")
}

fn linux(srh: SrhRepr) -> SrhRepr {
    srh.with_hmac(HmacVariant::Linux, outside(), KEY_ID, SECRET.as_bytes())
}

/// The node with its neighbours, a running agent, and sockets at both ends.
struct Boundary<'a> {
    agent: Agent<'a>,
    secret: tempfile::NamedTempFile,
    outside: PacketSocket,
    inside: PacketSocket,
}

impl<'a> Boundary<'a> {
    fn new(network: &'a Network) -> Self {
        // Nothing is to be resolved while packets are counted.
        network.node.sh("ip neigh replace 2001:db8:2::2 lladdr 02:00:00:00:02:02 nud permanent dev east");
        let secret = tempfile::NamedTempFile::new().unwrap();
        fs::write(secret.path(), format!("{SECRET}\n")).unwrap();
        let agent = Agent::start(network);
        let boundary = Self {
            agent,
            secret,
            outside: PacketSocket::open(&network.left, "n"),
            inside: PacketSocket::open(&network.right, "n"),
        };
        boundary.accept(true);
        boundary
    }

    fn accept(&self, hmac: bool) {
        let file = self.secret.path().to_str().unwrap();
        self.agent.apply(&STATE.replace("SECRET_FILE", file).replace("ACCEPT", &hmac.to_string()));
    }

    /// How many packets of the access port came to this end.
    fn counted(&self, outcome: &str) -> u64 {
        let all = self.agent.get("/v1/outcomes");
        let rows = all.as_array().unwrap().iter().filter(|row| row["port"] == "west" && row["outcome"] == outcome);
        rows.map(|row| row["counter"]["packets"].as_u64().unwrap()).sum()
    }

    /// Sends a frame from outside, checks that it is counted once as `outcome`, and returns what arrives inside.
    fn send(&self, case: &str, frame: &PacketBuilder, outcome: &str) -> Option<Vec<u8>> {
        let before = self.counted(outcome);
        self.inside.drain();
        self.outside.send(&frame.build());
        let carries = |bytes: &[u8]| bytes.ends_with(b"from outside");
        let found = self.inside.receive_where(Duration::from_millis(100), carries);
        assert_eq!(self.counted(outcome), before + 1, "{case}: counted as {outcome}");
        found
    }

    fn let_in(&self, case: &str, frame: &PacketBuilder, expected: &PacketBuilder) {
        let found = self.send(case, frame, "passed_hmac");
        let expected = expected.clone().with_bytes(0, &[2, 0, 0, 0, 2, 2, 2, 0, 0, 0, 2, 1]).build();
        assert_eq!(found, Some(expected), "{case}");
    }

    fn kept_out(&self, case: &str, frame: &PacketBuilder, outcome: &str) {
        assert_eq!(self.send(case, frame, outcome), None, "{case}");
    }
}

#[test]
#[ignore = "needs root"]
fn what_the_kernel_verifies_is_let_in() {
    let network = Network::new();
    let boundary = Boundary::new(&network);
    let [own, next] = path();
    let srh = linux(SrhRepr::new(&path()));
    let advanced = |srh: &SrhRepr| {
        let packet =
            PacketBuilder::ethernet([0; 6], [0; 6]).ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(outside(), next) });
        packet.srh(srh.clone().with_segments_left(0)).udp(UdpRepr::new(1000, 2000)).payload(b"from outside")
    };
    boundary.let_in("full SRH", &frame(outside(), own, srh.clone()), &advanced(&srh));
    let reduced = linux(SrhRepr::reduced(&path()));
    boundary.let_in("reduced SRH", &frame(outside(), own, reduced.clone()), &advanced(&reduced));
    let psp = [address("fc00:0:1:2::"), next];
    let popped =
        PacketBuilder::ethernet([0; 6], [0; 6]).ipv6(Ipv6Repr { hop_limit: 63, ..Ipv6Repr::new(outside(), next) });
    let popped = popped.udp(UdpRepr::new(1000, 2000)).payload(b"from outside");
    let case = "PSP takes the HMAC along";
    boundary.let_in(case, &frame(outside(), psp[0], linux(SrhRepr::new(&psp))), &popped);

    boundary.accept(false);
    boundary.kept_out("without accept_hmac", &frame(outside(), own, srh.clone()), "drop_sr_from_outside");
    boundary.accept(true);
    boundary.let_in("with it again", &frame(outside(), own, srh.clone()), &advanced(&srh));
}

#[test]
#[ignore = "needs root"]
fn all_else_is_kept_out() {
    let network = Network::new();
    let boundary = Boundary::new(&network);
    let [own, next] = path();
    let plain = || SrhRepr::new(&path());
    let hmac = |variant, key_id, secret: &str| plain().with_hmac(variant, outside(), key_id, secret.as_bytes());
    let flag = |srh: SrhRepr| srh.with_flags(LINUX_HMAC_FLAG);

    for (case, srh) in [
        ("wrong secret", hmac(HmacVariant::Linux, KEY_ID, "herring")),
        ("unknown key", hmac(HmacVariant::Linux, 8, SECRET)),
        ("RFC 8754's text, which this kernel does not know", {
            let flagged = flag(plain());
            flagged.with_hmac(HmacVariant::Rfc8754, outside(), KEY_ID, SECRET.as_bytes())
        }),
        ("another segment list than the signed one", {
            let mut srh = linux(plain());
            srh.segments[0] = address("fc00:0:2:99::");
            srh
        }),
    ] {
        // Segue sees that there is an HMAC; the kernel sees that it is wrong.
        boundary.kept_out(case, &frame(outside(), own, srh), "passed_hmac");
    }
    let stolen = frame(address("2001:db8:1::3"), own, linux(plain()));
    boundary.kept_out("signed for another source", &stolen, "passed_hmac");

    for (case, srh) in [
        ("no HMAC", plain()),
        ("the flag alone", flag(plain())),
        ("an HMAC without the flag, which the kernel would not verify", linux(plain()).with_flags(0)),
        ("an HMAC that is not the last TLV, which the kernel would not find", {
            linux(plain()).with_tlv(TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0; 6] })
        }),
        ("another TLV of the same length", {
            flag(plain()).with_tlv(TlvRepr::Unknown { tlv_type: 0x7d, value: vec![0; 38] })
        }),
        ("no segments left", linux(plain()).with_segments_left(0)),
    ] {
        boundary.kept_out(case, &frame(outside(), own, srh), "drop_sr_from_outside");
    }

    // Only the node that a packet is addressed to looks at its HMAC: here that would be a node inside the domain.
    let path = [next, address("fc00:0:3:1::")];
    let signed = SrhRepr::new(&path).with_hmac(HmacVariant::Linux, outside(), KEY_ID, SECRET.as_bytes());
    boundary.kept_out("addressed to another node's SID", &frame(outside(), next, signed), "drop_sr_from_outside");
    let forged = SrhRepr::new(&path).with_hmac(HmacVariant::Linux, outside(), KEY_ID, b"herring");
    boundary.kept_out("the same, forged", &frame(outside(), next, forged), "drop_sr_from_outside");
    let host = address("2001:db8:2::2");
    let forged = SrhRepr::new(&[host, next]).with_hmac(HmacVariant::Linux, outside(), KEY_ID, b"herring");
    boundary.kept_out("forged, to a host inside", &frame(outside(), host, forged), "drop_sr_from_outside");
}
