//! What a network interface is and what it can do: its kind and driver, what XDP can do with it, what is at its far end, which
//! work is left to it. Asked in the calling thread's network namespace.

use std::collections::BTreeMap;
use std::time::Duration;
use std::{fs, io};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use netlink_sys::protocols::{NETLINK_GENERIC, NETLINK_ROUTE};
use netlink_sys::{Socket, SocketAddr};

use crate::generic::{Attributes, Family, Generic};
use crate::netlink::{Netlink, NetlinkError};
use crate::{HostError, Result};

/// The kernel's kind of a veth.
pub const VETH: &str = "veth";

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// ifindex.
    pub index: u32,
    /// Kind of a virtual device, such as `veth`, `tun`, `bridge`, `vlan`. None for NICs.
    pub kind: Option<String>,
    /// Driver of a device on a bus, such as `virtio_net`.
    pub driver: Option<String>,
    /// It is on a bus, so hardware, or what looks like it.
    pub on_bus: bool,
    /// It is the loopback.
    pub loopback: bool,
    /// The other end of a veth, or the device that it stands on.
    pub lower: Option<Lower>,
    /// What XDP can do with it; None where the kernel does not tell (before 6.3).
    pub xdp: Option<XdpFeatures>,
    /// Packets that it dropped itself.
    pub dropped: Dropped,
}

/// Packets that a device dropped itself, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped {
    /// As they came in; of a veth or a NIC also those that XDP redirected and the other device refused.
    pub received: u64,
    /// As they were to go out; of a veth also those for which its far end had no room.
    pub sent: u64,
}

/// The other end of a veth, or the device that one stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lower {
    /// ifindex there.
    pub index: u32,
    /// It is in another network namespace.
    pub elsewhere: bool,
}

/// `NETDEV_XDP_ACT_*` of linux/netdev.h.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    const NAMES: [(u64, &'static str); 7] = [
        (1 << 0, "basic"),
        (1 << 1, "redirect"),
        (1 << 2, "ndo-xmit"),
        (1 << 3, "xsk-zerocopy"),
        (1 << 4, "hw-offload"),
        (1 << 5, "rx-sg"),
        (1 << 6, "ndo-xmit-sg"),
    ];

    /// The driver runs XDP programs itself.
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Takes frames that a driver's XDP redirects into it. A veth does so while its far end has NAPI.
    pub fn takes_redirected(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// The same for frames of several buffers, such as jumbo frames.
    pub fn takes_redirected_buffers(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// The kernel's names of what it can do.
    pub fn names(self) -> Vec<&'static str> {
        Self::NAMES.into_iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| name).collect()
    }
}

/// Family `netdev`: what XDP can do with devices (Linux 6.3 and newer).
#[derive(Debug, Clone)]
struct NetDev;

impl Family for NetDev {
    const NAME: &'static str = "netdev";
}

impl NetDev {
    const DEV_GET: u8 = 1;
    const IFINDEX: u16 = 1;
    const XDP_FEATURES: u16 = 3;
}

/// Devices of one network namespace by name.
pub type Devices = BTreeMap<String, Device>;

/// The devices of the calling thread's network namespace.
pub struct DeviceSocket {
    links: Netlink,
    /// None on kernels that do not have the family.
    features: Option<Generic<NetDev>>,
}

impl DeviceSocket {
    /// Opens it.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn open() -> Result<Self> {
        let links = Netlink::open(NETLINK_ROUTE).map_err(failed("open rtnetlink"))?;
        let features = match Generic::open() {
            Ok(features) => Some(features),
            Err(error) if error.errno() == Some(libc::ENOENT) => None,
            Err(error) => return Err(failed("open the netlink family netdev")(error)),
        };
        Ok(Self { links, features })
    }

    /// All devices.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn all(&mut self) -> Result<Devices> {
        let features = self.features()?;
        let ask = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.links.dump(ask).map_err(failed("list interfaces"))?;
        let devices = answers.iter().filter_map(read);
        Ok(devices
            .map(|(name, device)| {
                let xdp = features.as_ref().map(|found| found.get(&device.index).copied().unwrap_or_default());
                (name, Device { xdp, ..device })
            })
            .collect())
    }

    /// What XDP can do with each device, by ifindex; None where the kernel does not tell.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn features(&mut self) -> Result<Option<BTreeMap<u32, XdpFeatures>>> {
        let Some(features) = &mut self.features else { return Ok(None) };
        let answers = features.dump(NetDev::DEV_GET, Attributes::default()).map_err(failed("ask for XDP features"))?;
        let each = answers.iter().filter_map(|answer| {
            let found = XdpFeatures(answer.long_number(NetDev::XDP_FEATURES)?);
            Some((answer.number(NetDev::IFINDEX)?, found))
        });
        Ok(Some(each.collect()))
    }
}

/// Tells when what XDP can do with a device changes, as when somebody turns GRO off at the far end of a veth.
pub struct FeatureChanges(Socket);

impl FeatureChanges {
    /// Subscribes in the calling thread's network namespace; None on kernels that tell of no features.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn open() -> Result<Option<Self>> {
        const WHAT: &str = "subscribe to changes of devices";
        let family = match Generic::<NetDev>::open() {
            Ok(family) => family,
            Err(error) if error.errno() == Some(libc::ENOENT) => return Ok(None),
            Err(error) => return Err(failed(WHAT)(error)),
        };
        let Some(group) = family.group("mgmt") else { return Ok(None) };
        let subscribe = || {
            let mut socket = Socket::new(NETLINK_GENERIC)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.add_membership(group)?;
            Ok(socket)
        };
        subscribe().map(|socket| Some(Self(socket))).map_err(|error: io::Error| failed(WHAT)(error.into()))
    }

    /// Waits until something has changed, and for what follows within `quiet`.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn wait(&mut self, quiet: Duration) -> Result<()> {
        let failed = |error: io::Error| failed("wait for changes of devices")(error.into());
        self.receive().map_err(failed)?;
        std::thread::sleep(quiet);
        self.0.set_non_blocking(true).map_err(failed)?;
        let drained = loop {
            match self.receive() {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.0.set_non_blocking(false).and(drained).map_err(failed)
    }

    /// What it says does not matter: who is told asks for all. That some were lost is a change, too.
    fn receive(&mut self) -> io::Result<()> {
        match self.0.recv_from_full() {
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result.map(drop),
        }
    }
}

fn read(answer: &RouteNetlinkMessage) -> Option<(String, Device)> {
    let RouteNetlinkMessage::NewLink(link) = answer else { return None };
    let loopback = link.header.flags.contains(LinkFlags::Loopback);
    let mut device = Device { index: link.header.index, loopback, ..Device::default() };
    let (mut name, mut elsewhere, mut bus, mut on_bus) = (None, false, None, None);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::LinkInfo(info) => {
                device.kind = info.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            // 0: a veth whose other end is gone.
            LinkAttribute::Link(index) if *index != 0 => {
                device.lower = Some(Lower { index: *index, elsewhere: false });
            }
            LinkAttribute::LinkNetNsId(_) => elsewhere = true,
            LinkAttribute::Stats64(counted) => {
                device.dropped = Dropped { received: counted.rx_dropped, sent: counted.tx_dropped };
            }
            LinkAttribute::ParentDevBusName(text) => bus = Some(text.clone()),
            LinkAttribute::ParentDevName(text) => on_bus = Some(text.clone()),
            _ => {}
        }
    }
    if let Some(lower) = &mut device.lower {
        lower.elsewhere = elsewhere;
    }
    if let (Some(bus), Some(place)) = (bus, on_bus) {
        device.on_bus = true;
        // Below /sys/bus, which is the same in all network namespaces.
        let driver = fs::read_link(format!("/sys/bus/{bus}/devices/{place}/driver"));
        device.driver = driver.ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    }
    Some((name?, device))
}

/// Family `ethtool`.
#[derive(Debug, Clone)]
struct Ethtool;

impl Family for Ethtool {
    const NAME: &'static str = "ethtool";
}

impl Ethtool {
    const FEATURES_GET: u8 = 11;
    const FEATURES_SET: u8 = 12;
    /// Attributes of FEATURES_GET and FEATURES_SET.
    const HEADER: u16 = 1;
    const WANTED: u16 = 3;
    const ACTIVE: u16 = 4;
    const HEADER_INDEX: u16 = 1;
    /// Attributes of a set of bits, of its bits, and of one of them.
    const BITS: u16 = 3;
    const BIT: u16 = 1;
    const BIT_NAME: u16 = 2;
    const BIT_VALUE: u16 = 3;
}

/// What is left to a device, as `ethtool -k` names it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Offloads(Vec<String>);

impl FromIterator<String> for Offloads {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Offloads {
    fn has(&self, names: &[&str]) -> bool {
        self.0.iter().any(|active| names.contains(&active.as_str()))
    }

    /// Packets of a flow are merged when they are received (GRO).
    pub fn gro(&self) -> bool {
        self.has(&["rx-gro"])
    }

    /// Checksums of packets that are sent are left to the device.
    pub fn tx_checksum(&self) -> bool {
        self.has(&["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"])
    }

    /// Segmentation of TCP is left to the device (TSO).
    pub fn tcp_segmentation(&self) -> bool {
        self.has(&["tx-tcp-segmentation", "tx-tcp6-segmentation"])
    }

    /// Tags of VLANs are taken off the frame before XDP sees it.
    pub fn vlan_stripping(&self) -> bool {
        self.has(&["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"])
    }
}

/// Which work is left to devices of the calling thread's network namespace.
pub struct OffloadSocket(Generic<Ethtool>);

impl OffloadSocket {
    /// Opens it.
    ///
    /// # Errors
    /// A kernel without the family `ethtool` (it has been there since 5.6, unless it was left out).
    pub fn open() -> Result<Self> {
        Generic::open().map(Self).map_err(failed("open the netlink family ethtool"))
    }

    /// What is left to the device of this number.
    ///
    /// # Errors
    /// ENODEV if there is none.
    pub fn of(&mut self, index: u32) -> Result<Offloads> {
        let answers = self.0.request(Ethtool::FEATURES_GET, header(index)).map_err(failed("ask for offloads"))?;
        let bits = answers.iter().flat_map(|answer| answer.nested(Ethtool::ACTIVE));
        let bits = bits.flat_map(|set| set.nested(Ethtool::BITS).collect::<Vec<_>>());
        let bits = bits.flat_map(|bits| bits.nested(Ethtool::BIT).collect::<Vec<_>>());
        Ok(bits.filter_map(|bit| bit.word(Ethtool::BIT_NAME)).collect())
    }

    /// Turns what `ethtool -k` calls `name` on or off.
    ///
    /// # Errors
    /// That the device does not let it be changed.
    pub fn set(&mut self, index: u32, name: &str, on: bool) -> Result<()> {
        let mut bit = Attributes::default().with(Ethtool::BIT_NAME, format!("{name}\0").into_bytes());
        if on {
            bit = bit.with(Ethtool::BIT_VALUE, Vec::new());
        }
        let bits = Attributes::default().with_nested(Ethtool::BIT, &bit);
        let wanted = Attributes::default().with_nested(Ethtool::BITS, &bits);
        let ask = header(index).with_nested(Ethtool::WANTED, &wanted);
        self.0.request(Ethtool::FEATURES_SET, ask).map(drop).map_err(failed("change an offload"))
    }
}

fn header(index: u32) -> Attributes {
    let inner = Attributes::default().with(Ethtool::HEADER_INDEX, index.to_ne_bytes());
    Attributes::default().with_nested(Ethtool::HEADER, &inner)
}

fn failed(what: &'static str) -> impl FnOnce(NetlinkError) -> HostError {
    move |cause| HostError::Netlink { what: what.into(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_a_device_of_no_kind_without_native_xdp() {
        let devices = DeviceSocket::open().unwrap().all().unwrap();
        let lo = &devices["lo"];
        assert!(lo.loopback && lo.kind.is_none() && !lo.on_bus && lo.lower.is_none(), "{lo:?}");
        assert!(lo.xdp.is_none_or(|xdp| !xdp.native()), "{lo:?}");
        let offloads = OffloadSocket::open().unwrap().of(lo.index).unwrap();
        assert!(offloads.tx_checksum() && !offloads.vlan_stripping(), "{offloads:?}");
        assert!(OffloadSocket::open().unwrap().of(u32::MAX >> 1).is_err());
    }

    #[test]
    fn features_have_the_kernels_names() {
        assert_eq!(XdpFeatures(0b100_0101).names(), ["basic", "ndo-xmit", "ndo-xmit-sg"]);
        assert!(XdpFeatures(0b101).takes_redirected() && !XdpFeatures(0b101).takes_redirected_buffers());
    }
}
