//! The steering header of a packet as it was when it was asked for.

use std::net::{IpAddr, Ipv6Addr};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A steering header of SRv6: an outer IPv6 header with its extension headers.
#[pyclass(frozen, eq, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Steering {
    octets: Vec<u8>,
    remaining: Vec<u8>,
    /// The segment at which the packet is: for a service, its own SID with the argument.
    #[pyo3(get)]
    active: Ipv6Addr,
    /// Source address.
    #[pyo3(get)]
    source: Ipv6Addr,
    /// Hop limit as it arrived.
    #[pyo3(get)]
    hop_limit: u8,
    /// The SRH; none if the destination address is the only segment.
    #[pyo3(get)]
    srh: Option<Srh>,
}

impl Steering {
    pub(crate) fn of(packet: &segue_service::Packet<'_>) -> PyResult<Self> {
        let steering = packet.steering();
        let segue_service::Steering::Srv6(header) = steering else {
            return Err(pyo3::exceptions::PyNotImplementedError::new_err("this kind of steering header is not SRv6"));
        };
        Ok(Self {
            octets: steering.octets().to_vec(),
            remaining: steering.remaining(),
            active: header.destination(),
            source: header.source(),
            hop_limit: header.hop_limit(),
            srh: header.srh().map(|srh| Srh::of(&srh)),
        })
    }
}

#[pymethods]
impl Steering {
    /// All its octets.
    #[getter]
    fn octets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.octets)
    }

    /// What leads packets the same way: equal for two packets exactly if they have the same rest of their segment list. Only to compare.
    #[getter]
    fn remaining<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.remaining)
    }

    fn __repr__(&self) -> String {
        match &self.srh {
            Some(srh) => format!("<Steering at {}, {}>", self.active, srh.__repr__()),
            None => format!("<Steering at {}, no SRH>", self.active),
        }
    }
}

/// A segment routing header (RFC 8754).
#[pyclass(frozen, eq, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Srh {
    /// Segments Left.
    #[pyo3(get)]
    segments_left: u8,
    /// Last Entry.
    #[pyo3(get)]
    last_entry: u8,
    /// Flags.
    #[pyo3(get)]
    flags: u8,
    /// Tag.
    #[pyo3(get)]
    tag: u16,
    /// As it is written, so that the last segment is first: `segment_list[segments_left]` is the active one.
    #[pyo3(get)]
    segment_list: Vec<Ipv6Addr>,
    tlvs: Vec<u8>,
}

impl Srh {
    fn of(srh: &segue_wire::Srh<&[u8]>) -> Self {
        Self {
            segments_left: srh.segments_left(),
            last_entry: srh.last_entry(),
            flags: srh.flags(),
            tag: srh.tag(),
            segment_list: srh.segment_list().collect(),
            tlvs: srh.tlv_bytes().to_vec(),
        }
    }
}

#[pymethods]
impl Srh {
    /// The octets of all TLVs.
    #[getter]
    fn tlvs<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.tlvs)
    }

    fn __repr__(&self) -> String {
        let list: Vec<_> = self.segment_list.iter().map(ToString::to_string).collect();
        format!("<Srh segments_left={} segment_list=[{}]>", self.segments_left, list.join(", "))
    }
}

/// Addresses, protocol and ports of the innermost IP packet.
#[pyclass(frozen, eq, hash, get_all, module = "segue_service")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct FiveTuple {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    ports: Option<(u16, u16)>,
}

impl FiveTuple {
    pub(crate) fn of(octets: &[u8]) -> Option<Self> {
        let tuple = segue_service::five_tuple(octets)?;
        Some(Self {
            source: tuple.source,
            destination: tuple.destination,
            protocol: tuple.protocol,
            ports: tuple.ports,
        })
    }
}

#[pymethods]
impl FiveTuple {
    fn __repr__(&self) -> String {
        let ports = self.ports.map_or_else(String::new, |(source, destination)| format!(" {source} -> {destination}"));
        format!("<FiveTuple {} -> {} protocol {}{ports}>", self.source, self.destination, self.protocol)
    }
}
