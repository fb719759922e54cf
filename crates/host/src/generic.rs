//! Generic netlink families, with attributes as they are on the wire: for a question or two no crate's worth of types is needed.

use std::marker::PhantomData;

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLA_F_NESTED, NLM_F_REQUEST, Nla, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::{GenlCtrlAttrs, McastGrpAttrs};
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;

use crate::netlink::{Netlink, NetlinkError};

/// `NLA_TYPE_MASK`: what is left of an attribute's type without its flags.
const TYPE_MASK: u16 = 0x3fff;

/// A family of generic netlink.
pub trait Family: std::fmt::Debug + Clone {
    /// Its name.
    const NAME: &'static str;
    /// The version of its messages.
    const VERSION: u8 = 1;
}

/// A message of a family.
#[derive(Debug, Clone)]
pub struct Message<F> {
    /// What is asked or told.
    pub command: u8,
    /// With what.
    pub attributes: Attributes,
    family: PhantomData<F>,
}

impl<F: Family> GenlFamily for Message<F> {
    fn family_name() -> &'static str {
        F::NAME
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        F::VERSION
    }
}

impl<F> Emitable for Message<F> {
    fn buffer_len(&self) -> usize {
        self.attributes.0.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.0.as_slice().emit(buffer);
    }
}

impl<F> ParseableParametrized<[u8], GenlHeader> for Message<F> {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        Ok(Self { command: header.cmd, attributes: Attributes::read(buffer)?, family: PhantomData })
    }
}

/// Attributes of a message, or those that are nested in one of them.
#[derive(Debug, Clone, Default)]
pub struct Attributes(Vec<DefaultNla>);

impl Attributes {
    fn read(octets: &[u8]) -> Result<Self, DecodeError> {
        NlasIterator::new(octets).map(|attribute| DefaultNla::parse(&attribute?)).collect::<Result<_, _>>().map(Self)
    }

    /// These, and one more.
    pub fn with(mut self, kind: u16, value: impl Into<Vec<u8>>) -> Self {
        self.0.push(DefaultNla::new(kind, value.into()));
        self
    }

    /// These, and one more with others in it.
    pub fn with_nested(self, kind: u16, inner: &Self) -> Self {
        let mut value = vec![0; inner.0.as_slice().buffer_len()];
        inner.0.as_slice().emit(&mut value);
        self.with(kind | NLA_F_NESTED, value)
    }

    /// The values of one kind, in order.
    pub fn all(&self, kind: u16) -> impl Iterator<Item = Vec<u8>> {
        self.0.iter().filter(move |attribute| attribute.kind() & TYPE_MASK == kind).map(|attribute| {
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            value
        })
    }

    /// The value of one kind.
    pub fn value(&self, kind: u16) -> Option<Vec<u8>> {
        self.all(kind).next()
    }

    /// A 32-bit number of one kind.
    pub fn number(&self, kind: u16) -> Option<u32> {
        Some(u32::from_ne_bytes(self.value(kind)?.try_into().ok()?))
    }

    /// A 64-bit number of one kind.
    pub fn long_number(&self, kind: u16) -> Option<u64> {
        Some(u64::from_ne_bytes(self.value(kind)?.try_into().ok()?))
    }

    /// A word of one kind.
    pub fn word(&self, kind: u16) -> Option<String> {
        let value = self.value(kind)?;
        Some(String::from_utf8_lossy(&value).trim_end_matches('\0').to_owned())
    }

    /// Those that are nested in each of one kind.
    pub fn nested(&self, kind: u16) -> impl Iterator<Item = Self> {
        // What cannot be read is not there.
        self.all(kind).filter_map(|value| Self::read(&value).ok())
    }
}

/// A family, asked in the network namespace in which it was opened.
pub struct Generic<F> {
    socket: Netlink,
    id: u16,
    groups: Vec<(String, u32)>,
    family: PhantomData<F>,
}

impl<F: Family> Generic<F> {
    /// Opens it.
    ///
    /// # Errors
    /// ENOENT if the kernel does not have the family.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Netlink::open(NETLINK_GENERIC)?;
        let name = GenlCtrlAttrs::FamilyName(F::NAME.to_owned());
        let ask = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] });
        let answers = socket.request(ask, NLM_F_REQUEST)?;
        let mut id = None;
        let mut groups = Vec::new();
        for attribute in answers.iter().flat_map(|answer| &answer.payload.nlas) {
            match attribute {
                GenlCtrlAttrs::FamilyId(found) => id = Some(*found),
                GenlCtrlAttrs::McastGroups(found) => groups.extend(found.iter().filter_map(|group| named(group))),
                _ => {}
            }
        }
        let id =
            id.ok_or_else(|| NetlinkError::Answer(format!("generic netlink names no id for the family {}", F::NAME)))?;
        Ok(Self { socket, id, groups, family: PhantomData })
    }

    /// The number of a group of this family's notifications.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(known, _)| known == name).map(|(_, id)| *id)
    }

    fn message(&self, command: u8, attributes: Attributes) -> GenlMessage<Message<F>> {
        let mut message = GenlMessage::from_payload(Message { command, attributes, family: PhantomData });
        message.set_resolved_family_id(self.id);
        message
    }

    /// Asks for a change or for one object; returns the attributes of each answer.
    ///
    /// # Errors
    /// That the kernel refuses.
    pub fn request(&mut self, command: u8, attributes: Attributes) -> Result<Vec<Attributes>, NetlinkError> {
        let message = self.message(command, attributes);
        Ok(self.socket.request(message, 0)?.into_iter().map(|answer| answer.payload.attributes).collect())
    }

    /// Asks for all objects.
    ///
    /// # Errors
    /// That the kernel refuses.
    pub fn dump(&mut self, command: u8, attributes: Attributes) -> Result<Vec<Attributes>, NetlinkError> {
        let message = self.message(command, attributes);
        Ok(self.socket.dump(message)?.into_iter().map(|answer| answer.payload.attributes).collect())
    }
}

fn named(group: &[McastGrpAttrs]) -> Option<(String, u32)> {
    let name = group.iter().find_map(|attribute| match attribute {
        McastGrpAttrs::Name(name) => Some(name.clone()),
        McastGrpAttrs::Id(_) => None,
    });
    let id = group.iter().find_map(|attribute| match attribute {
        McastGrpAttrs::Id(id) => Some(*id),
        McastGrpAttrs::Name(_) => None,
    });
    Some((name?, id?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_is_found_again() {
        let inner = Attributes::default().with(1, 7u32.to_ne_bytes()).with(2, b"name\0".to_vec());
        let outer = Attributes::default().with_nested(3, &inner).with(4, 9u64.to_ne_bytes());
        let mut octets = vec![0; outer.0.as_slice().buffer_len()];
        outer.0.as_slice().emit(&mut octets);
        let read = Attributes::read(&octets).unwrap();
        assert_eq!(read.long_number(4), Some(9));
        assert_eq!((read.number(4), read.number(5)), (None, None), "another length; not there");
        let nested: Vec<_> = read.nested(3).collect();
        assert_eq!(nested.len(), 1);
        assert_eq!((nested[0].number(1), nested[0].word(2).as_deref()), (Some(7), Some("name")));
    }

    #[derive(Debug, Clone)]
    struct Nobodys;

    impl Family for Nobodys {
        const NAME: &'static str = "no-such-family";
    }

    #[test]
    fn a_family_that_the_kernel_lacks_is_said_to_be_missing() {
        let error = Generic::<Nobodys>::open().err().expect("no kernel has it");
        assert_eq!(error.errno(), Some(libc::ENOENT), "{error}");
    }
}
