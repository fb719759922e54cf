//! A blocking netlink socket: one request, all its answers.

use std::io;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, Nla, NlasIterator, Parseable,
};
use netlink_sys::{Socket, SocketAddr};

/// Octets of a message's header; the kernel quotes the request's in front of its extended acknowledgement.
const QUOTED_HEADER: usize = 16;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words.
const ATTRIBUTE_MESSAGE: u16 = 1;
/// A dump that the kernel marks as interrupted by a change is asked for again so many times.
const DUMP_ATTEMPTS: usize = 8;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket itself failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    /// The kernel refused the request.
    #[error("{error}{}", text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The error number.
        error: io::Error,
        /// What the kernel said about it.
        text: Option<String>,
    },
    /// An answer could not be understood.
    #[error("the kernel's answer cannot be read: {0}")]
    Answer(String),
}

impl NetlinkError {
    /// The kernel's error number, if it was the kernel that refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}

/// What an answer's payload asks the receiver to do.
enum Step<M> {
    Item(M),
    End,
    Interrupted,
    Other,
}

/// A netlink socket of one protocol, in the network namespace in which it was opened.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket of this protocol (`NETLINK_ROUTE`, `NETLINK_GENERIC`).
    pub fn open(protocol: isize) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        socket.set_ext_ack(true)?;
        // Dumps are then filtered by the kernel; one older than 4.20 does not know the option and sends everything,
        // which the callers sort out themselves.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(Self { socket, sequence: 0 })
    }

    /// The number that the kernel knows it by.
    pub fn port(&self) -> io::Result<u32> {
        let mut address = SocketAddr::new(0, 0);
        self.socket.get_address(&mut address)?;
        Ok(address.port_number())
    }

    /// Asks for a change or for one object; returns what came before the acknowledgement.
    pub fn request<M>(&mut self, message: M, flags: u16) -> Result<Vec<M>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        Ok(self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags)?.0)
    }

    /// Asks for many changes, one after the other, without waiting for each: as many at a time as fit `BATCH` octets. What came of
    /// each.
    pub fn requests<M>(&mut self, messages: Vec<(M, u16)>) -> Result<Vec<Result<(), NetlinkError>>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        /// The kernel's answers to a batch must fit the socket's buffer: each is about as long as its request.
        const BATCH: usize = 16 * 1024;
        let mut results = Vec::new();
        let mut batch = Vec::new();
        let mut asked = 0;
        for (message, flags) in messages {
            let bytes = self.packet(message, NLM_F_REQUEST | NLM_F_ACK | flags);
            if asked > 0 && batch.len() + bytes.len() > BATCH {
                self.work_off::<M>(&mut batch, &mut asked, &mut results, 1)?;
            }
            batch.extend(bytes);
            batch.resize(batch.len().next_multiple_of(4), 0);
            asked += 1;
        }
        self.work_off::<M>(&mut batch, &mut asked, &mut results, 0)?;
        Ok(results)
    }

    /// Sends a batch and reads the answers. `later`: requests that are numbered already, but not in it.
    fn work_off<M: NetlinkDeserializable>(
        &mut self,
        batch: &mut Vec<u8>,
        asked: &mut u32,
        results: &mut Vec<Result<(), NetlinkError>>,
        later: u32,
    ) -> Result<(), NetlinkError> {
        if *asked == 0 {
            return Ok(());
        }
        self.socket.send(batch, 0)?;
        let last = self.sequence.wrapping_sub(later);
        for left in (0..*asked).rev() {
            results.push(match self.collect::<M>(last.wrapping_sub(left)) {
                Ok(_) => Ok(()),
                Err(error @ NetlinkError::Refused { .. }) => Err(error),
                Err(error) => return Err(error),
            });
        }
        batch.clear();
        *asked = 0;
        Ok(())
    }

    /// Asks for all objects of a kind.
    pub fn dump<M>(&mut self, message: M) -> Result<Vec<M>, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
    {
        for _ in 1..DUMP_ATTEMPTS {
            let (answers, whole) = self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
            if whole {
                return Ok(answers);
            }
        }
        Ok(self.exchange(message, NLM_F_REQUEST | NLM_F_DUMP)?.0)
    }

    /// As [`Netlink::dump`], without making anything of what comes: `each` gets one object after the other as its octets, header
    /// included, and puts it into what [`Default`] has made. Where there are 100,000, most of the time would go into what nobody looks at.
    pub fn dump_raw<M, T>(&mut self, message: M, mut each: impl FnMut(&mut T, &[u8])) -> Result<T, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable + Clone,
        T: Default,
    {
        let mut attempt = 1;
        loop {
            let mut all = T::default();
            let whole = self.dump_once(message.clone(), |object| each(&mut all, object))?;
            if whole || attempt == DUMP_ATTEMPTS {
                return Ok(all);
            }
            attempt += 1;
        }
    }

    /// False if a change interrupted it: what has come is not all then, or there twice.
    fn dump_once<M>(&mut self, message: M, mut each: impl FnMut(&[u8])) -> Result<bool, NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        /// The kernel fills at most this much at a time.
        const DATAGRAM: usize = 64 * 1024;
        /// NLMSG_MIN_TYPE: below are ends and errors.
        const FIRST_TYPE: u16 = 16;
        let request = self.packet(message, NLM_F_REQUEST | NLM_F_DUMP);
        self.socket.send(&request, 0)?;
        let mut whole = true;
        let mut buffer = Vec::with_capacity(DATAGRAM);
        loop {
            buffer.clear();
            let length = self.socket.recv(&mut buffer, libc::MSG_TRUNC)?;
            if length > buffer.len() {
                return Err(NetlinkError::Answer(format!("a datagram of {length} octets")));
            }
            let mut rest = &buffer[..];
            while let Some((message, behind)) = first(rest)? {
                rest = behind;
                let half = |at: usize| u16::from_ne_bytes([message[at], message[at + 1]]);
                if u32::from_ne_bytes([message[8], message[9], message[10], message[11]]) != self.sequence {
                    continue;
                }
                whole &= half(6) & NLM_F_DUMP_INTR == 0;
                if half(4) >= FIRST_TYPE {
                    each(message);
                } else if let Step::End = read::<M>(message)? {
                    return Ok(whole);
                }
            }
        }
    }

    fn exchange<M>(&mut self, message: M, flags: u16) -> Result<(Vec<M>, bool), NetlinkError>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
    {
        let bytes = self.packet(message, flags);
        self.socket.send(&bytes, 0)?;
        self.collect(self.sequence)
    }

    /// The next message.
    fn packet<M: NetlinkSerializable>(&mut self, message: M, flags: u16) -> Vec<u8> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        bytes
    }

    /// The answers to the request of this number. Each answer to a batch comes in a datagram of its own.
    fn collect<M: NetlinkDeserializable>(&mut self, number: u32) -> Result<(Vec<M>, bool), NetlinkError> {
        let mut items = Vec::new();
        let mut whole = true;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            let mut rest = &bytes[..];
            while let Some((message, behind)) = first(rest)? {
                rest = behind;
                let sequence = u32::from_ne_bytes([message[8], message[9], message[10], message[11]]);
                if sequence == number {
                    match read::<M>(message)? {
                        Step::Item(item) => items.push(item),
                        Step::End => return Ok((items, whole)),
                        Step::Interrupted => whole = false,
                        Step::Other => {}
                    }
                }
            }
        }
    }
}

/// A message, and what is behind it in its datagram.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The first message of a datagram.
fn first(rest: &[u8]) -> Result<Option<Split<'_>>, NetlinkError> {
    if rest.len() < QUOTED_HEADER {
        return Ok(None);
    }
    let length = u32::from_ne_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
    if length < QUOTED_HEADER || length > rest.len() {
        return Err(NetlinkError::Answer(format!("a message of {length} octets in {}", rest.len())));
    }
    Ok(Some((&rest[..length], rest.get(length.next_multiple_of(4)..).unwrap_or(&[]))))
}

fn read<M: NetlinkDeserializable>(bytes: &[u8]) -> Result<Step<M>, NetlinkError> {
    let message = NetlinkMessage::<M>::deserialize(bytes).map_err(|error| NetlinkError::Answer(error.to_string()))?;
    let interrupted = message.header.flags & NLM_F_DUMP_INTR != 0;
    Ok(match message.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Step::End,
        NetlinkPayload::Error(error) => {
            return Err(NetlinkError::Refused { error: error.to_io(), text: kernel_text(&error.header) });
        }
        NetlinkPayload::Done(done) if done.code < 0 => {
            return Err(NetlinkError::Refused { error: io::Error::from_raw_os_error(-done.code), text: None });
        }
        NetlinkPayload::Done(_) => Step::End,
        NetlinkPayload::InnerMessage(_) if interrupted => Step::Interrupted,
        NetlinkPayload::InnerMessage(item) => Step::Item(item),
        _ => Step::Other,
    })
}

/// The text of an extended acknowledgement, behind the quoted header.
fn kernel_text(quoted: &[u8]) -> Option<String> {
    let attributes = quoted.get(QUOTED_HEADER..)?;
    NlasIterator::new(attributes)
        .filter_map(|attribute| DefaultNla::parse(&attribute.ok()?).ok())
        .find(|attribute| attribute.kind() == ATTRIBUTE_MESSAGE)
        .map(|attribute| {
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            String::from_utf8_lossy(&value).trim_end_matches('\0').to_owned()
        })
}
