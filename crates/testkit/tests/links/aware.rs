//! SR-aware functions, End.AN: user-space programs that read and change the segment list, and the kernel's own seg6local; what each
//! permission accepts and drops. Real frames in and out.

use std::net::Ipv6Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use segue_testkit::netns::Netns;
use segue_testkit::node::Node;
use segue_testkit::packet_socket::PacketSocket;
use segue_testkit::site::{EAST_HOST, Site, WEST_HEADEND, WEST_HOST, east, from_core, local, to_core, west_macs};
use segue_testkit::vnf::{Steered, Vnf, is_chatter, turned};
use segue_testkit::wait::wait_for;
use segue_wire::ipv6_extension::OptionsRepr;
use segue_wire::{Ipv4Repr, Ipv6Repr, PacketBuilder, SrhRepr, TlvRepr, UdpRepr};

/// A frame's way through takes microseconds, unless the machine is very busy.
const ARRIVES_WITHIN: Duration = Duration::from_secs(20);

/// The SID of the function, and of what follows it on the path.
const OWN: Ipv6Addr = local(0xa);
const FIRST: Ipv6Addr = east(1);
const SECOND: Ipv6Addr = east(2);
const THIRD: Ipv6Addr = east(3);
/// Segments that a function adds.
const NEW: Ipv6Addr = east(0x11);
const OTHER: Ipv6Addr = east(0x12);
const ELSEWHERE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 0x66);

const PERMISSIONS: [&str; 5] = ["nothing", "insert_next", "insert", "replace", "replace_all"];
const RETURNED: &str = "returned fc00:0:1:a::/64";

/// What a function makes of a steered packet.
type Program = Box<dyn FnMut(Steered) -> Vec<Vec<u8>> + Send>;

/// A node with one SR-aware function in user space, on one link in and out.
struct Aware<'a> {
    node: Node<'a>,
    west: PacketSocket,
    east: PacketSocket,
    program: Arc<Mutex<Program>>,
    vnf: Vnf,
}

fn configuration(site: &Site, may_change: &str) -> String {
    site.state(&format!(
        "sids:\n  - sid: 'fc00:0:1:a::/64'\n    behaviour: End.AN\n    next_hop_mac: '{}'\n    \
         proxy: {{to_function: f0-w, from_function: f0-w, may_change: {may_change}}}\n",
        west_macs(0).1
    ))
}

impl<'a> Aware<'a> {
    fn new(site: &'a Site, may_change: &str) -> Self {
        let program: Arc<Mutex<Program>> = Arc::new(Mutex::new(Box::new(|_| Vec::new())));
        let (wire, own) = (Arc::new(site.socket(0, "west")), program.clone());
        let vnf = Vnf::start(wire.clone(), wire, move |frame| {
            let steered = Steered::parse(frame).unwrap_or_else(|| panic!("to the function: {frame:02x?}"));
            own.lock().unwrap()(steered)
        });
        let node = Node::load(&site.node, &configuration(site, may_change));
        Self { node, west: site.core(0), east: site.core(1), program, vnf }
    }

    fn set_program(&self, program: impl FnMut(Steered) -> Vec<Vec<u8>> + Send + 'static) {
        *self.program.lock().unwrap() = Box::new(program);
    }

    fn count(&self, counter: &str) -> u64 {
        self.node.counters().get(counter).map_or(0, |(packets, _)| *packets)
    }

    /// Sends a frame from the west, and returns what of it arrives in the east.
    fn arrives(&self, case: &str, frame: &[u8]) -> Vec<u8> {
        let before = self.count(RETURNED);
        self.east.drain();
        self.west.send(frame);
        let found = self.east.receive_where(ARRIVES_WITHIN, |frame| !is_chatter(frame));
        let found = found.unwrap_or_else(|| panic!("{case}: nothing arrives; {:?}", self.node.counters()));
        assert_eq!(self.count(RETURNED), before + 1, "{case}: {:?}", self.node.counters());
        found
    }

    /// Sends a frame from the west; nothing of it arrives in the east, and `outcome` counts at the function's port what it gave
    /// back.
    fn dropped(&self, case: &str, frame: &[u8], outcome: &str) {
        let counter = format!("f0-w {outcome}");
        let (before, returned) = (self.count(&counter), self.count(RETURNED));
        self.east.drain();
        self.west.send(frame);
        let end = Instant::now() + ARRIVES_WITHIN;
        while self.count(&counter) == before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let all = self.node.counters();
        assert_eq!((self.count(&counter), self.count(RETURNED)), (before + 1, returned), "{case}: {all:?}");
        let found = self.east.receive_where(Duration::ZERO, |frame| !is_chatter(frame));
        assert_eq!(found, None, "{case}: {all:?}");
    }
}

fn outer(destination: Ipv6Addr, hop_limit: u8) -> Ipv6Repr {
    Ipv6Repr { hop_limit, traffic_class: 0x28, flow_label: 0xabcde, ..Ipv6Repr::new(WEST_HEADEND, destination) }
}

fn inner(packet: PacketBuilder) -> PacketBuilder {
    let header = Ipv6Repr { hop_limit: 61, flow_label: 0x54321, ..Ipv6Repr::new(WEST_HOST, EAST_HOST) };
    packet.inner_ipv6(header).udp(UdpRepr::new(40_000, 40_001)).payload(b"for a function that knows")
}

fn path(rest: &[Ipv6Addr]) -> Vec<Ipv6Addr> {
    [&[OWN], rest].concat()
}

/// The frame that comes in for the function, with three more segments to visit.
fn sent() -> Vec<u8> {
    inner(from_core(0).ipv6(outer(OWN, 64)).srh(SrhRepr::new(&path(&[FIRST, SECOND, THIRD])))).build()
}

/// A function that does what End does, and gives the frame back by the link that it came in by.
fn end(mut steered: Steered) -> Vec<Vec<u8>> {
    steered.advance();
    vec![turned(steered.frame())]
}

#[test]
#[ignore = "needs root"]
fn a_function_reads_the_past_and_the_coming_segments() {
    let site = Site::new(1);
    let aware = Aware::new(&site, "nothing");
    type Lists = (Vec<Ipv6Addr>, Vec<Ipv6Addr>);
    let read: Arc<Mutex<Vec<Lists>>> = Arc::default();
    let reading = read.clone();
    aware.set_program(move |steered| {
        let left = usize::from(steered.srh.segments_left);
        let past = steered.srh.segments.get(left + 1..).unwrap_or(&[]).iter().rev().copied().collect();
        reading.lock().unwrap().push((past, steered.remaining()));
        end(steered)
    });
    let tlv = TlvRepr::Unknown { tlv_type: 0x7d, value: vec![3; 6] };
    let visited = east(0x99);
    let whole = SrhRepr::new(&[visited, OWN, FIRST, SECOND]).with_segments_left(2);
    let four = |packet: PacketBuilder| {
        let header = Ipv4Repr { time_to_live: 9, ..Ipv4Repr::new([10, 1, 0, 1].into(), [10, 2, 0, 1].into()) };
        packet.inner_ipv4(header).udp(UdpRepr::new(1, 2)).payload(b"IPv4")
    };
    let bare = |packet: PacketBuilder| packet.udp(UdpRepr::new(1, 2)).payload(b"inserted");
    type Inner<'a> = &'a dyn Fn(PacketBuilder) -> PacketBuilder;
    let cases: [(&str, SrhRepr, Inner<'_>); 6] = [
        ("whole", whole.clone(), &inner),
        ("reduced", SrhRepr::reduced(&path(&[FIRST, SECOND])), &inner),
        ("tag", whole.clone().with_tag(0x1234), &inner),
        ("a TLV, no multiple of 16 octets", whole.clone().with_tlv(tlv), &inner),
        ("inner IPv4", whole.clone(), &four),
        ("an SRH that was inserted into the packet's own header", whole, &bare),
    ];
    for (case, srh, inner) in cases {
        aware.vnf.seen();
        let left = srh.segments_left;
        let frame = inner(from_core(0).ipv6(outer(OWN, 64)).srh(srh.clone())).build();
        let found = aware.arrives(case, &frame);
        // It came to the function as it was, but one hop further; the function did End; one more hop.
        let (node, function) = west_macs(0);
        let expected = inner(PacketBuilder::ethernet(node, function).ipv6(outer(OWN, 63)).srh(srh.clone()));
        assert_eq!(aware.vnf.seen(), [expected.build()], "{case}: to the function");
        let advanced = srh.clone().with_segments_left(left - 1);
        let next = advanced.segments[usize::from(left) - 1];
        assert_eq!(found, inner(to_core(1).ipv6(outer(next, 62)).srh(advanced)).build(), "{case}: behind it");
        let past = if case == "reduced" { vec![] } else { vec![visited] };
        assert_eq!(read.lock().unwrap().pop(), Some((past, vec![FIRST, SECOND])), "{case}: what it read");
    }
}

/// Each change with the first permission in [`PERMISSIONS`] that allows it.
fn changes() -> [(&'static str, Vec<Ipv6Addr>, usize); 14] {
    [
        ("nothing", vec![FIRST, SECOND, THIRD], 0),
        ("one more next", vec![NEW, FIRST, SECOND, THIRD], 1),
        ("two more next", vec![NEW, OTHER, FIRST, SECOND, THIRD], 1),
        // It would get the packet again, and do the same again.
        ("itself once more", vec![OWN, FIRST, SECOND, THIRD], PERMISSIONS.len()),
        ("one more later", vec![FIRST, NEW, SECOND, THIRD], 2),
        ("one more in front of the last", vec![FIRST, SECOND, NEW, THIRD], 2),
        ("more at two places", vec![NEW, FIRST, SECOND, OTHER, THIRD], 2),
        ("one left out", vec![SECOND, THIRD], 3),
        ("on to the last", vec![THIRD], 3),
        ("one replaced", vec![NEW, SECOND, THIRD], 3),
        ("another order", vec![SECOND, FIRST, THIRD], 3),
        ("another end", vec![FIRST, SECOND, NEW], 4),
        ("the last left out", vec![FIRST, SECOND], 4),
        ("one behind the last", vec![FIRST, SECOND, THIRD, NEW], 4),
    ]
}

#[test]
#[ignore = "needs root"]
fn every_permission_takes_what_it_allows_and_drops_the_rest() {
    let site = Site::new(1);
    let mut aware = Aware::new(&site, "nothing");
    for (permission, name) in PERMISSIONS.iter().enumerate() {
        aware.node.apply(&configuration(&site, name));
        for (change, remaining, needed) in changes() {
            let case = format!("{change}, with may_change: {name}");
            let list = remaining.clone();
            aware.set_program(move |mut steered| {
                steered.set_remaining(&list);
                end(steered)
            });
            if needed > permission {
                aware.dropped(&case, &sent(), "drop_header_changed");
                continue;
            }
            let found = aware.arrives(&case, &sent());
            let srh = SrhRepr::new(&path(&remaining)).with_segments_left(remaining.len() as u8 - 1);
            let expected = inner(to_core(1).ipv6(outer(remaining[0], 62)).srh(srh)).build();
            assert_eq!(found, expected, "{case}");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn what_no_permission_allows_is_dropped() {
    let site = Site::new(1);
    let aware = Aware::new(&site, "replace_all");
    type Change = fn(&mut Steered);
    let cases: [(&str, Change); 9] = [
        ("another source address", |steered| steered.ipv6[8..24].copy_from_slice(&EAST_HOST.octets())),
        ("another tag", |steered| steered.srh.tag = 7),
        ("flags", |steered| steered.srh.flags = 0x20),
        ("a destination that is not the active segment", |steered| {
            steered.ipv6[24..40].copy_from_slice(&THIRD.octets());
        }),
        ("a destination outside the domain", |steered| {
            steered.ipv6[24..40].copy_from_slice(&ELSEWHERE.octets());
        }),
        ("a segment outside the domain, now", |steered| {
            steered.srh.segments[2] = ELSEWHERE;
            steered.ipv6[24..40].copy_from_slice(&ELSEWHERE.octets());
        }),
        ("a segment outside the domain, later", |steered| steered.srh.segments[1] = ELSEWHERE),
        ("a multicast segment", |steered| steered.srh.segments[1] = "ff0e::1".parse().unwrap()),
        ("more segments left than there are", |steered| steered.srh.segments_left = 9),
    ];
    for (case, change) in cases {
        aware.set_program(move |mut steered| {
            steered.advance();
            change(&mut steered);
            vec![turned(steered.frame())]
        });
        aware.dropped(case, &sent(), "drop_header_changed");
    }
    // And the same function without a fault is let through.
    aware.set_program(end);
    aware.arrives("no fault", &sent());
}

#[test]
#[ignore = "needs root"]
fn garbage_and_lying_lengths_are_dropped() {
    let site = Site::new(1);
    let aware = Aware::new(&site, "replace_all");
    // Offsets in the frame: 14 the IPv6 header, 54 the SRH, 126 the inner packet.
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let cases: [(&str, Damage, &str); 10] = [
        ("cut inside the IPv6 header", |frame| frame[..40].to_vec(), "drop_truncated"),
        ("cut inside the SRH", |frame| frame[..70].to_vec(), "drop_bad_length"),
        ("cut inside the inner packet", |frame| frame[..140].to_vec(), "drop_bad_length"),
        ("Payload Length larger than the frame", |frame| patched(frame, 18, &[0x0f, 0xff]), "drop_bad_length"),
        ("Payload Length that ends in the SRH", |frame| patched(frame, 18, &[0, 32]), "drop_bad_length"),
        ("Hdr Ext Len beyond the packet", |frame| patched(frame, 55, &[0xff]), "drop_bad_length"),
        ("Hdr Ext Len that ends inside the list", |frame| patched(frame, 55, &[2]), "drop_header_changed"),
        ("Last Entry beyond the header", |frame| patched(frame, 58, &[200]), "drop_header_changed"),
        ("another routing type", |frame| patched(frame, 56, &[3]), "drop_header_changed"),
        ("IP version 5", |frame| patched(frame, 14, &[0x52]), "drop_bad_version"),
    ];
    for (case, damage, outcome) in cases {
        aware.set_program(move |steered| end(steered).into_iter().map(damage).collect());
        aware.dropped(case, &sent(), outcome);
    }
    aware.set_program(end);
    aware.arrives("the port still works", &sent());
}

fn patched(mut frame: Vec<u8>, at: usize, octets: &[u8]) -> Vec<u8> {
    frame[at..at + octets.len()].copy_from_slice(octets);
    frame
}

#[test]
#[ignore = "needs root"]
fn headers_in_other_places_do_not_get_past() {
    let site = Site::new(1);
    let aware = Aware::new(&site, "replace_all");
    let rebuilt = |front: fn(PacketBuilder) -> PacketBuilder| {
        move |_: Steered| {
            let (node, function) = west_macs(0);
            vec![inner(front(PacketBuilder::ethernet(function, node).ipv6(outer(FIRST, 63)))).build()]
        }
    };
    aware.set_program(rebuilt(|front| {
        let advanced = SrhRepr::new(&path(&[FIRST, SECOND, THIRD])).with_segments_left(2);
        front.destination_options(OptionsRepr::default()).srh(advanced)
    }));
    aware.dropped("destination options in front of the SRH", &sent(), "drop_header_changed");
    aware.set_program(rebuilt(|front| front));
    aware.dropped("no SRH, to a SID", &sent(), "drop_from_function");
}

#[test]
#[ignore = "needs root"]
fn packets_that_it_never_got_and_other_chains_headers_are_dropped() {
    let site = Site::new(1);
    let aware = Aware::new(&site, "replace");
    let flow = |port: u16, last: Ipv6Addr, start: PacketBuilder, advanced: bool| {
        let list = path(&[FIRST, last]);
        let (destination, hop_limit, left) = if advanced { (FIRST, 63, 1) } else { (OWN, 64, 2) };
        let header = Ipv6Repr { hop_limit: 61, ..Ipv6Repr::new(WEST_HOST, EAST_HOST) };
        start
            .ipv6(outer(destination, hop_limit))
            .srh(SrhRepr::new(&list).with_segments_left(left))
            .inner_ipv6(header)
            .udp(UdpRepr::new(port, 1))
            .payload(b"flow")
            .build()
    };
    let (node, function) = west_macs(0);
    let back = move |port, last| flow(port, last, PacketBuilder::ethernet(function, node), true);
    let there = |port, last| flow(port, last, from_core(0), false);
    // Two chains that part behind the second segment.
    aware.set_program(end);
    aware.arrives("one chain", &there(1, SECOND));
    aware.arrives("the other", &there(2, THIRD));
    aware.set_program(move |_| vec![back(1, THIRD)]);
    aware.dropped("the other chain's header on a packet of the one", &there(1, SECOND), "drop_header_changed");
    aware.set_program(move |_| vec![back(3, SECOND)]);
    aware.dropped("a flow that it never got", &there(1, SECOND), "drop_unknown_flow");
    aware.set_program(end);
    let found = aware.arrives("the one chain is as it was", &there(1, SECOND));
    assert_eq!(Steered::parse(&found).unwrap().remaining(), [SECOND]);
}

#[test]
#[ignore = "needs root"]
fn traffic_of_its_own_is_dropped_or_routed_by_the_kernel() {
    let site = Site::new(1);
    let mut aware = Aware::new(&site, "nothing");
    let (node, function) = west_macs(0);
    let own = |destination: Ipv6Addr, hop_limit| {
        let header = Ipv6Repr { hop_limit, ..Ipv6Repr::new("fd00:0:f00::2".parse().unwrap(), destination) };
        move |start: PacketBuilder| start.ipv6(header).udp(UdpRepr::new(53, 4000)).payload(b"its own").build()
    };
    let back = move || PacketBuilder::ethernet(function, node);
    aware.set_program(move |_| vec![own(EAST_HOST, 64)(back())]);
    // What comes without SRH from a function that got it with one may as well be a packet that lost its SRH.
    aware.dropped("unless the operator says otherwise", &sent(), "drop_from_function");
    aware.node.apply(&configuration(&site, "nothing, own_traffic: route"));
    aware.east.drain();
    aware.west.send(&sent());
    let found = aware.east.receive_where(ARRIVES_WITHIN, |frame| !is_chatter(frame));
    assert_eq!(found, Some(own(EAST_HOST, 63)(to_core(1))), "{:?}", aware.node.counters());
    aware.set_program(move |_| vec![own(local(0xa), 64)(back())]);
    aware.dropped("to a SID", &sent(), "drop_from_function");
}

/// A namespace whose kernel is the function: in by west, out by east.
fn kernel_function<'a>(site: &'a Site, action: &str) -> &'a Netns {
    let function = site.forwards(0);
    function.script(&format!(
        "ip -6 route add fc00:0:1:a::/64 encap seg6local action {action} dev west
         ip -6 route add fc00::/16 via fd00:0:f01::1 dev east"
    ));
    function
}

fn two_links(site: &Site, may_change: &str) -> String {
    configuration(site, may_change).replace("from_function: f0-w", "from_function: f0-e")
}

#[test]
#[ignore = "needs root"]
fn the_kernels_end_is_an_sr_aware_function() {
    let site = Site::new(1);
    let _function = kernel_function(&site, "End");
    let node = Node::load(&site.node, &two_links(&site, "nothing"));
    let (west, east) = (site.core(0), site.core(1));
    for srh in [
        SrhRepr::new(&path(&[FIRST, SECOND, THIRD])),
        SrhRepr::new(&path(&[FIRST])),
        SrhRepr::new(&path(&[FIRST, SECOND])).with_tag(9),
    ] {
        let left = srh.segments_left;
        east.drain();
        west.send(&inner(from_core(0).ipv6(outer(OWN, 64)).srh(srh.clone())).build());
        let found = east.receive_where(ARRIVES_WITHIN, |frame| !is_chatter(frame));
        // Segue, the function's kernel and Segue again are a hop each.
        let expected = inner(to_core(1).ipv6(outer(FIRST, 61)).srh(srh.with_segments_left(left - 1))).build();
        assert_eq!(found, Some(expected), "{:?}", node.counters());
    }
}

#[test]
#[ignore = "needs root"]
fn the_kernels_insertion_is_more_than_any_permission() {
    let site = Site::new(1);
    // The kernel's End.B6 puts an SRH of its own in front of the packet's.
    let _function = kernel_function(&site, &format!("End.B6 srh segs {NEW}"));
    let node = Node::load(&site.node, &two_links(&site, "replace_all"));
    let (west, east) = (site.core(0), site.core(1));
    west.send(&sent());
    // A second routing header was not there when the function got the packet.
    wait_for("the drop", ARRIVES_WITHIN, || node.counters().contains_key("f0-e drop_header_changed").then_some(()));
    assert_eq!(east.receive_where(Duration::ZERO, |frame| !is_chatter(frame)), None);
}
