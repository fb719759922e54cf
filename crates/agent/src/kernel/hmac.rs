//! HMAC keys, through the generic netlink family `SEG6`.

use segue_host::generic::{Attributes, Family, Generic};
use segue_host::netlink::NetlinkError;

use super::KernelHmacKey;

const COMMAND_SET_HMAC: u8 = 1;
const COMMAND_DUMP_HMAC: u8 = 2;
const ATTRIBUTE_KEY_ID: u16 = 3;
const ATTRIBUTE_SECRET: u16 = 4;
const ATTRIBUTE_SECRET_LENGTH: u16 = 5;
const ATTRIBUTE_ALGORITHM: u16 = 6;

/// The family `SEG6`.
#[derive(Debug, Clone)]
struct Seg6;

impl Family for Seg6 {
    const NAME: &'static str = "SEG6";
}

/// The keys of one network namespace.
pub struct Keys(Generic<Seg6>);

impl Keys {
    /// Opens the family; ENOENT if the kernel lacks it.
    pub fn open() -> Result<Self, NetlinkError> {
        Generic::open().map(Self)
    }

    /// All keys with their secrets.
    pub fn list(&mut self) -> Result<Vec<KernelHmacKey>, NetlinkError> {
        Ok(self.0.dump(COMMAND_DUMP_HMAC, Attributes::default())?.iter().filter_map(key).collect())
    }

    /// Sets a key. The kernel removes the key if the secret is empty.
    pub fn set(&mut self, key: &KernelHmacKey) -> Result<(), NetlinkError> {
        let length = u8::try_from(key.secret.len()).unwrap_or(u8::MAX);
        let mut attributes = Attributes::default()
            .with(ATTRIBUTE_KEY_ID, key.id.to_ne_bytes())
            .with(ATTRIBUTE_SECRET_LENGTH, [length])
            .with(ATTRIBUTE_ALGORITHM, [key.algorithm]);
        if length > 0 {
            attributes = attributes.with(ATTRIBUTE_SECRET, key.secret.as_slice());
        }
        self.0.request(COMMAND_SET_HMAC, attributes).map(drop)
    }
}

fn key(attributes: &Attributes) -> Option<KernelHmacKey> {
    Some(KernelHmacKey {
        id: attributes.number(ATTRIBUTE_KEY_ID)?,
        algorithm: *attributes.value(ATTRIBUTE_ALGORITHM)?.first()?,
        secret: attributes.value(ATTRIBUTE_SECRET)?,
    })
}
