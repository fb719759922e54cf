mod interop;
use interop::*;
use segue_testkit::fixture::{DOMAIN, Network, address::*, arriving, configuration, function::*};
use segue_testkit::node::Node;
use segue_wire::*;
#[test]
#[ignore = "needs root"]
fn dbg() {
    let n = Network::new();
    let node = Node::load(&n.node, &configuration(DOMAIN));
    let r = Receivers::around(&n);
    let path = [local(END), behind_core1(0xa)];
    let frame =
        six(arriving("core0").ipv6(Ipv6Repr::new(HEADEND, local(END))).srh(SrhRepr::new(&path)), SERVER, 64).build();
    println!("{:?}", node.send("core0", &frame));
    r.drain();
    r.socket("core0").send(&frame);
    std::thread::sleep(std::time::Duration::from_millis(100));
    println!("{:?}", node.run_many(|r| r.outcomes("core0")));
    println!("{}", n.node.sh("ip -s -d link show core0"));
    println!("{}", n.node.sh("ip -s -d link show core1"));
    println!("{}", n.world.sh("ip -s link show core1-far"));
    println!("{}", n.world.sh("ethtool -k core1-far"));
    println!("{}", n.world.sh("ethtool -S core1-far"));
    println!("{}", n.node.sh("ethtool -S core1"));
}
