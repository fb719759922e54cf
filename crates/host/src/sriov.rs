//! Virtual functions of network cards (SR-IOV): which ones a card has, from sysfs, and what it enforces on each, by rtnetlink.
//!
//! A card's own interface is its physical function; each virtual function is a device on the bus with an interface of its own, wherever that
//! may have been moved. Cards that are no PCI devices (netdevsim) tell their settings in the same way.

use std::cell::OnceCell;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use libc::{ENODEV, ENOENT, EOPNOTSUPP};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo, VfInfoMac, VfInfoRate, VfInfoSpoofCheck,
    VfInfoTrust, VfInfoVlan,
};
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::netlink::{Netlink, NetlinkError};
use crate::{HostError, Result};

const BUSES: &str = "/sys/bus";
const REMEDY: &str = "check that the driver has SR-IOV, that /sys can be written, and that you are root";

/// What a card enforces on one of its virtual functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Its link-layer address; zero if it may choose.
    pub mac: [u8; 6],
    /// The VLAN that all its frames are in, without its knowing; 0 if in none.
    pub vlan: u16,
    /// Frames from other link-layer addresses are dropped.
    pub spoof_check: bool,
    /// It may change its link-layer address, and see what is for others.
    pub trust: bool,
    /// Mbit/s that it is sure to get; 0 for none.
    pub min_rate: u32,
    /// Mbit/s that it may send; 0 without limit.
    pub max_rate: u32,
}

impl Default for Settings {
    /// As drivers begin.
    fn default() -> Self {
        Self { mac: [0; 6], vlan: 0, spoof_check: true, trust: false, min_rate: 0, max_rate: 0 }
    }
}

impl Settings {
    /// What these are where `now` is something else; empty if they are the same.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let on = |value: bool| if value { "on" } else { "off" };
        let told = [
            ("MAC", mac(self.mac), mac(now.mac)),
            ("VLAN", self.vlan.to_string(), now.vlan.to_string()),
            ("spoof check", on(self.spoof_check).into(), on(now.spoof_check).into()),
            ("trust", on(self.trust).into(), on(now.trust).into()),
            ("least rate", format!("{} Mbit/s", self.min_rate), format!("{} Mbit/s", now.min_rate)),
            ("largest rate", format!("{} Mbit/s", self.max_rate), format!("{} Mbit/s", now.max_rate)),
        ];
        let differ = told.into_iter().filter(|(_, wanted, now)| wanted != now);
        differ.map(|(name, wanted, now)| format!("{name} {now} in place of {wanted}")).collect()
    }

    /// The requests that make a virtual function with the settings `now` have these. One for each, since a driver may know some and not
    /// others; the name says what was refused.
    fn requests(&self, number: u32, now: &Self) -> Vec<(&'static str, VfInfo)> {
        let mut requests = Vec::new();
        // Before the address and the VLAN: without trust some drivers take neither from the function afterwards.
        if self.trust != now.trust {
            requests.push(("trust", VfInfo::Trust(VfInfoTrust::new(number, self.trust))));
        }
        if self.mac != now.mac {
            requests.push(("link-layer address", VfInfo::Mac(VfInfoMac::new(number, &self.mac))));
        }
        if self.vlan != now.vlan {
            requests.push(("VLAN", VfInfo::Vlan(VfInfoVlan::new(number, self.vlan.into(), 0))));
        }
        if self.spoof_check != now.spoof_check {
            requests.push(("spoof check", VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, self.spoof_check))));
        }
        if (self.min_rate, self.max_rate) != (now.min_rate, now.max_rate) {
            requests.push(("rate", VfInfo::Rate(VfInfoRate::new(number, self.min_rate, self.max_rate))));
        }
        requests
    }

    /// What the kernel tells of one virtual function, with its number. What a driver does not know is told as off.
    fn read(told: &LinkVfInfo) -> Option<(u32, Self)> {
        let mut settings = Self { spoof_check: false, ..Self::default() };
        let mut number = None;
        for info in &told.0 {
            match info {
                VfInfo::Mac(mac) => {
                    number = Some(mac.vf_id);
                    settings.mac.copy_from_slice(&mac.mac[..6]);
                }
                // More than 4095 would be a kernel's mistake.
                VfInfo::Vlan(vlan) => settings.vlan = u16::try_from(vlan.vlan_id).unwrap_or(u16::MAX),
                VfInfo::SpoofCheck(check) => settings.spoof_check = check.enabled,
                VfInfo::Trust(trust) => settings.trust = trust.enabled,
                VfInfo::Rate(rate) => (settings.min_rate, settings.max_rate) = (rate.min_tx_rate, rate.max_tx_rate),
                _ => {}
            }
        }
        Some((number?, settings))
    }
}

/// In one word, so that it can be kept in an interface's alias.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vlan, spoof_check, trust, min_rate, max_rate, .. } = self;
        write!(f, "{},{vlan},{},{},{min_rate},{max_rate}", mac(self.mac), u8::from(*spoof_check), u8::from(*trust))
    }
}

impl FromStr for Settings {
    type Err = ();

    /// What [`fmt::Display`] wrote.
    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(',').collect();
        let [address, vlan, spoof_check, trust, min_rate, max_rate] = parts[..] else { return Err(()) };
        let octets: Vec<u8> =
            address.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect::<Result<_, _>>().map_err(drop)?;
        let on = |text: &str| match text {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(()),
        };
        Ok(Self {
            mac: octets.try_into().map_err(drop)?,
            vlan: vlan.parse().map_err(drop)?,
            spoof_check: on(spoof_check)?,
            trust: on(trust)?,
            min_rate: min_rate.parse().map_err(drop)?,
            max_rate: max_rate.parse().map_err(drop)?,
        })
    }
}

fn mac(octets: [u8; 6]) -> String {
    octets.map(|octet| format!("{octet:02x}")).join(":")
}

/// A card with virtual functions, or one that could have some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its interface.
    pub name: String,
    /// What it enforces on each virtual function, by number.
    pub settings: Vec<Settings>,
    index: u32,
    /// Below `/sys/bus`; empty of a device that is on no bus.
    directory: PathBuf,
    /// Where its virtual functions are, once that has been looked up: there may be hundreds, and each is a question of its own.
    places: OnceCell<Vec<Option<String>>>,
}

impl Card {
    /// How many virtual functions it can have; None if it is not made for any.
    #[must_use]
    pub fn room(&self) -> Option<u32> {
        number(&self.directory.join("sriov_totalvfs"))
    }

    /// How many it has.
    #[must_use]
    pub fn count(&self) -> u32 {
        number(&self.directory.join("sriov_numvfs")).unwrap_or_default()
    }

    /// Lets it have so many, if it has none.
    ///
    /// # Errors
    /// What the driver refused.
    pub fn make(&self, count: u32) -> Result<()> {
        let path = self.directory.join("sriov_numvfs");
        fs::write(&path, count.to_string()).map_err(HostError::io("make virtual functions by", &path, REMEDY))
    }

    /// Where on the bus the virtual function of this number is, such as `0000:01:10.0`.
    #[must_use]
    pub fn address(&self, number: u32) -> Option<String> {
        self.places().get(number as usize)?.clone()
    }

    /// The number of the virtual function that is there on the bus.
    #[must_use]
    pub fn number(&self, address: &str) -> Option<u32> {
        let found = self.places().iter().position(|place| place.as_deref() == Some(address))?;
        u32::try_from(found).ok()
    }

    fn places(&self) -> &[Option<String>] {
        let look = || (0..self.count()).map(|number| target(&self.directory.join(format!("virtfn{number}")))).collect();
        self.places.get_or_init(look)
    }
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The last part of what a symbolic link leads to.
fn target(link: &Path) -> Option<String> {
    fs::read_link(link).ok()?.file_name()?.to_str().map(str::to_owned)
}

/// Where on the bus the card is whose virtual function is there.
#[must_use]
pub fn card_of(address: &str) -> Option<String> {
    target(&Path::new(BUSES).join("pci/devices").join(address).join("physfn"))
}

/// The cards of one network namespace.
pub struct CardSocket(Netlink);

impl CardSocket {
    /// Those of the calling thread's namespace.
    ///
    /// # Errors
    /// [`HostError::Netlink`].
    pub fn open() -> Result<Self> {
        Netlink::open(NETLINK_ROUTE).map(Self).map_err(failed("open rtnetlink".into()))
    }

    /// The interface of this name as a card.
    ///
    /// # Errors
    /// [`HostError::Netlink`]; there being no such interface is none.
    pub fn find(&mut self, name: &str) -> Result<Option<Card>> {
        let mut message = LinkMessage::default();
        message.attributes =
            vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::ExtMask(vec![LinkExtentMask::Vf])];
        match self.0.request(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answers) => Ok(answers.iter().find_map(read)),
            Err(error) if matches!(error.errno(), Some(ENODEV | ENOENT)) => Ok(None),
            Err(error) => Err(failed(format!("look at the virtual functions of {name}"))(error)),
        }
    }

    /// Has the card enforce these on a virtual function. What the driver does not know is left as it is if `lenient`.
    ///
    /// # Errors
    /// [`HostError::Netlink`], which says what the driver refused.
    pub fn set(&mut self, card: &Card, number: u32, wanted: &Settings, lenient: bool) -> Result<()> {
        let now = card.settings.get(number as usize).copied().unwrap_or_default();
        for (what, info) in wanted.requests(number, &now) {
            match self.0.request(RouteNetlinkMessage::SetLink(change(card.index, info)), 0) {
                Err(error) if lenient && error.errno() == Some(EOPNOTSUPP) => {}
                result => {
                    result.map_err(failed(format!("set the {what} of virtual function {number} of {}", card.name)))?;
                }
            }
        }
        Ok(())
    }
}

/// One setting of one virtual function.
fn change(index: u32, info: VfInfo) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]));
    message
}

fn read(answer: &RouteNetlinkMessage) -> Option<Card> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let mut card = Card {
        name: String::new(),
        settings: Vec::new(),
        index: message.header.index,
        directory: PathBuf::new(),
        places: OnceCell::new(),
    };
    let (mut bus, mut device) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => card.name.clone_from(name),
            LinkAttribute::ParentDevName(name) => device = Some(name),
            LinkAttribute::ParentDevBusName(name) => bus = Some(name),
            LinkAttribute::VfInfoList(list) => {
                let mut told: Vec<(u32, Settings)> = list.iter().filter_map(Settings::read).collect();
                told.sort_unstable_by_key(|(number, _)| *number);
                // Numbers are positions: the kernel tells all of them.
                card.settings = told.into_iter().map(|(_, settings)| settings).collect();
            }
            _ => {}
        }
    }
    if let (Some(bus), Some(device)) = (bus, device) {
        card.directory = Path::new(BUSES).join(bus).join("devices").join(device);
    }
    Some(card)
}

fn failed(what: String) -> impl FnOnce(NetlinkError) -> HostError {
    move |cause| HostError::Netlink { what, cause }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{Emitable as _, Parseable as _};

    use super::*;

    const OURS: Settings =
        Settings { mac: [2, 0, 0, 0, 0, 9], vlan: 101, spoof_check: true, trust: true, min_rate: 10, max_rate: 1000 };

    /// As the kernel lays them out, in the octets of an attribute list.
    fn octets(message: &LinkMessage) -> Vec<u8> {
        let mut octets = vec![0; message.buffer_len()];
        message.emit(&mut octets);
        octets
    }

    #[test]
    fn each_setting_that_differs_is_a_request_of_its_own() {
        assert!(OURS.requests(3, &OURS).is_empty());
        let other_vlan = OURS.requests(3, &Settings { vlan: 7, ..OURS });
        assert_eq!(other_vlan, [("VLAN", VfInfo::Vlan(VfInfoVlan::new(3, 101, 0)))]);
        let all: Vec<_> = OURS.requests(3, &Settings::default()).into_iter().map(|(what, _)| what).collect();
        assert_eq!(all, ["trust", "link-layer address", "VLAN", "rate"], "the spoof check is on by itself");
        // One rate alone would be taken for none of the other.
        let rates = OURS.requests(3, &Settings { max_rate: 5, ..OURS });
        assert_eq!(rates, [("rate", VfInfo::Rate(VfInfoRate::new(3, 10, 1000)))]);
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernel_reads_it() {
        let message = change(7, VfInfo::Vlan(VfInfoVlan::new(3, 101, 0)));
        // ifinfomsg, IFLA_VFINFO_LIST (22), IFLA_VF_INFO (1), IFLA_VF_VLAN (2): vf, vlan, qos.
        let half = |value: u16| value.to_ne_bytes().to_vec();
        let word = |value: u32| value.to_ne_bytes().to_vec();
        let attribute =
            [half(24), half(22), half(20), half(1), half(16), half(2), word(3), word(101), word(0)].concat();
        let octets = octets(&message);
        assert_eq!(u32::from_ne_bytes(octets[4..8].try_into().unwrap()), 7);
        // Flags such as NLA_F_NESTED are not looked at here.
        let plain: Vec<u8> = octets[16..].to_vec();
        assert_eq!(plain.len(), attribute.len());
        assert_eq!(plain[8..], attribute[8..]);
    }

    #[test]
    fn what_the_kernel_tells_is_read_by_number() {
        let told = |number: u32, vlan: u32| {
            LinkVfInfo(vec![
                VfInfo::Mac(VfInfoMac::new(number, &OURS.mac)),
                VfInfo::Vlan(VfInfoVlan::new(number, vlan, 0)),
                VfInfo::Rate(VfInfoRate::new(number, 10, 1000)),
                VfInfo::SpoofCheck(VfInfoSpoofCheck::new(number, true)),
                VfInfo::Trust(VfInfoTrust::new(number, true)),
            ])
        };
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.attributes = vec![
            LinkAttribute::IfName("eth0".into()),
            LinkAttribute::ParentDevName("0000:01:00.0".into()),
            LinkAttribute::ParentDevBusName("pci".into()),
            LinkAttribute::VfInfoList(vec![told(1, 102), told(0, 101)]),
        ];
        let octets = octets(&message);
        let parsed = LinkMessage::parse(&octets[..]).unwrap();
        let card = read(&RouteNetlinkMessage::NewLink(parsed)).unwrap();
        assert_eq!(card.settings, [OURS, Settings { vlan: 102, ..OURS }]);
        assert_eq!((card.index, card.directory.to_str()), (7, Some("/sys/bus/pci/devices/0000:01:00.0")));
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        for settings in [OURS, Settings::default(), Settings { spoof_check: false, ..OURS }] {
            assert_eq!(settings.to_string().parse(), Ok(settings));
        }
        assert_eq!(OURS.to_string(), "02:00:00:00:00:09,101,1,1,10,1000");
        let broken =
            ["", ",,,,,", "02:00:00:00:00,1,1,1,1,1", "02:00:00:00:00:09,101,2,1,1,1", "02:00:00:00:00:09,1,1,1,1"];
        for broken in broken {
            assert_eq!(broken.parse::<Settings>(), Err(()), "{broken}");
        }
    }

    #[test]
    fn differences_say_what_is_and_what_should_be() {
        assert!(OURS.differences(&OURS).is_empty());
        let now = Settings { vlan: 7, trust: false, ..OURS };
        assert_eq!(OURS.differences(&now), ["VLAN 7 in place of 101", "trust off in place of on"]);
    }

    #[test]
    fn a_card_is_what_sysfs_says() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let look = || {
            let directory = directory.path().to_owned();
            Card { name: "e".into(), settings: Vec::new(), index: 1, directory, places: OnceCell::new() }
        };
        let card = look();
        assert_eq!((card.room(), card.count(), card.address(0)), (None, 0, None));
        fs::write(at("sriov_totalvfs"), "7\n").unwrap();
        card.make(2).unwrap();
        let card = look();
        for (number, address) in ["0000:01:10.0", "0000:01:10.2"].into_iter().enumerate() {
            std::os::unix::fs::symlink(format!("../{address}"), at(&format!("virtfn{number}"))).unwrap();
        }
        assert_eq!((card.room(), card.count()), (Some(7), 2));
        assert_eq!(card.address(1).as_deref(), Some("0000:01:10.2"));
        assert_eq!((card.number("0000:01:10.2"), card.number("0000:01:10.4")), (Some(1), None));
    }

    #[test]
    fn the_loopback_has_no_virtual_functions() {
        let mut cards = CardSocket::open().unwrap();
        let lo = cards.find("lo").unwrap().expect("every namespace has lo");
        assert_eq!((lo.settings.len(), lo.room(), lo.count()), (0, None, 0));
        assert_eq!(cards.find("there-is-none").unwrap(), None);
        assert_eq!(card_of("there-is-none"), None);
    }
}
