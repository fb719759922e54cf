//! HMAC keys, through the generic netlink family `SEG6`.

use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, Nla, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::{
    GenlFamily, GenlHeader, GenlMessage,
    ctrl::{GenlCtrl, GenlCtrlCmd, nlas::GenlCtrlAttrs},
};
use netlink_sys::protocols::NETLINK_GENERIC;
use segue_host::netlink::{Netlink, NetlinkError};

use super::KernelHmacKey;

const COMMAND_SET_HMAC: u8 = 1;
const COMMAND_DUMP_HMAC: u8 = 2;
const ATTRIBUTE_KEY_ID: u16 = 3;
const ATTRIBUTE_SECRET: u16 = 4;
const ATTRIBUTE_SECRET_LENGTH: u16 = 5;
const ATTRIBUTE_ALGORITHM: u16 = 6;

/// A message of the family `SEG6`.
#[derive(Debug, Clone)]
struct Seg6 {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Seg6 {
    fn family_name() -> &'static str {
        "SEG6"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Seg6 {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Seg6 {
    fn parse_with_param(buffer: &[u8], header: GenlHeader) -> Result<Self, DecodeError> {
        let attributes =
            NlasIterator::new(buffer).map(|attribute| DefaultNla::parse(&attribute?)).collect::<Result<_, _>>()?;
        Ok(Self { command: header.cmd, attributes })
    }
}

/// The keys of one network namespace.
pub struct Keys {
    socket: Netlink,
    family: u16,
}

impl Keys {
    /// Opens the family; ENOENT if the kernel lacks it.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Netlink::open(NETLINK_GENERIC)?;
        let name = GenlCtrlAttrs::FamilyName(Seg6::family_name().to_owned());
        let ask = GenlMessage::from_payload(GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas: vec![name] });
        let answers = socket.request(ask, NLM_F_REQUEST)?;
        let family = answers.iter().flat_map(|answer| &answer.payload.nlas).find_map(|attribute| match attribute {
            GenlCtrlAttrs::FamilyId(id) => Some(*id),
            _ => None,
        });
        match family {
            Some(family) => Ok(Self { socket, family }),
            None => Err(NetlinkError::Answer("generic netlink names no id for the family SEG6".to_owned())),
        }
    }

    fn message(&self, command: u8, attributes: Vec<DefaultNla>) -> GenlMessage<Seg6> {
        let mut message = GenlMessage::from_payload(Seg6 { command, attributes });
        message.set_resolved_family_id(self.family);
        message
    }

    /// All keys with their secrets.
    pub fn list(&mut self) -> Result<Vec<KernelHmacKey>, NetlinkError> {
        let ask = self.message(COMMAND_DUMP_HMAC, Vec::new());
        Ok(self.socket.dump(ask)?.iter().filter_map(|answer| key(&answer.payload.attributes)).collect())
    }

    /// Sets a key. The kernel removes the key if the secret is empty.
    pub fn set(&mut self, key: &KernelHmacKey) -> Result<(), NetlinkError> {
        let length = u8::try_from(key.secret.len()).unwrap_or(u8::MAX);
        let mut attributes = vec![
            DefaultNla::new(ATTRIBUTE_KEY_ID, key.id.to_ne_bytes().to_vec()),
            DefaultNla::new(ATTRIBUTE_SECRET_LENGTH, vec![length]),
            DefaultNla::new(ATTRIBUTE_ALGORITHM, vec![key.algorithm]),
        ];
        if length > 0 {
            attributes.push(DefaultNla::new(ATTRIBUTE_SECRET, key.secret.clone()));
        }
        let message = self.message(COMMAND_SET_HMAC, attributes);
        self.socket.request(message, 0).map(drop)
    }
}

fn key(attributes: &[DefaultNla]) -> Option<KernelHmacKey> {
    let value = |kind: u16| {
        attributes.iter().find(|attribute| attribute.kind() == kind).map(|attribute| {
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            value
        })
    };
    Some(KernelHmacKey {
        id: u32::from_ne_bytes(value(ATTRIBUTE_KEY_ID)?.try_into().ok()?),
        algorithm: *value(ATTRIBUTE_ALGORITHM)?.first()?,
        secret: value(ATTRIBUTE_SECRET)?,
    })
}
