//! A packet in Python's hands: a copy, which is written back if it was changed.

use std::num::NonZeroU16;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use segue_service::{Reason, SteeringKind, Time};

use crate::octets::Octets;
use crate::steering::{FiveTuple, Steering};

/// A packet from its outer IP header on.
#[pyclass(module = "segue_service")]
pub(crate) struct Packet {
    pub(crate) packet: segue_service::Packet<'static>,
    changed: bool,
}

impl Packet {
    pub(crate) fn of(packet: &segue_service::Packet<'_>) -> Self {
        Self { packet: packet.to_owned(), changed: false }
    }

    /// Makes the packet that it is a copy of as this one is now.
    ///
    /// # Errors
    /// If it has become longer than a packet can be, which no method of this class lets it.
    pub(crate) fn write_back(&self, packet: &mut segue_service::Packet<'_>) -> Result<(), Reason> {
        if !self.changed {
            return Ok(());
        }
        let own = &self.packet;
        if own.len() != packet.len() {
            packet.replace_inner(own.inner_protocol(), &[own.inner()]).map_err(|_| Reason::TooBig)?;
        }
        // Places of headers are the same in both, so what is in front of the inner packet has the same length.
        packet.octets_mut().copy_from_slice(own.octets());
        packet.set_segment_size(own.segment_size());
        Ok(())
    }

    fn protocol(number: u32) -> PyResult<u8> {
        let message = || PyValueError::new_err(format!("{number} is no protocol number: 0 to 255"));
        u8::try_from(number).map_err(|_| message())
    }
}

fn no_packet(reason: Reason) -> PyErr {
    PyValueError::new_err(format!("no packet for a service ({}): {}", reason.name(), reason.about()))
}

fn unfit(error: segue_service::Unfit) -> PyErr {
    PyValueError::new_err(error.to_string())
}

#[pymethods]
impl Packet {
    /// A packet from octets that begin with the outer IP header.
    #[staticmethod]
    fn from_octets(octets: Octets) -> PyResult<Self> {
        let packet =
            segue_service::Packet::from_octets(SteeringKind::Srv6, &octets.0, Time::START).map_err(no_packet)?;
        Ok(Self { packet, changed: false })
    }

    #[getter]
    fn octets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.packet.octets())
    }

    #[setter]
    fn set_octets(&mut self, octets: Octets) -> PyResult<()> {
        let (new, old) = (octets.0.len(), self.packet.len());
        if new != old {
            let message =
                format!("{new} octets in place of {old}: set `inner`, or use replace_inner(), for another length");
            return Err(PyValueError::new_err(message));
        }
        self.packet.octets_mut().copy_from_slice(&octets.0);
        self.changed = true;
        Ok(())
    }

    fn __len__(&self) -> usize {
        self.packet.len()
    }

    #[getter]
    fn wire_length(&self) -> usize {
        self.packet.wire_length()
    }

    #[getter]
    fn is_cut(&self) -> bool {
        self.packet.is_cut()
    }

    #[getter]
    fn segment_size(&self) -> Option<u16> {
        self.packet.segment_size().map(NonZeroU16::get)
    }

    #[setter]
    fn set_segment_size(&mut self, octets: Option<u16>) -> PyResult<()> {
        let none = || PyValueError::new_err("0 is no segment size; None if it is one packet");
        let size = octets.map(|octets| NonZeroU16::new(octets).ok_or_else(none)).transpose()?;
        self.packet.set_segment_size(size);
        self.changed = true;
        Ok(())
    }

    /// Nanoseconds: when the batch came that it was in.
    #[getter]
    fn arrived(&self) -> u64 {
        self.packet.arrived().nanos()
    }

    #[getter]
    fn steering(&self) -> PyResult<Steering> {
        Steering::of(&self.packet)
    }

    #[getter]
    fn inner<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.packet.inner())
    }

    #[setter]
    fn set_inner(&mut self, octets: Octets) -> PyResult<()> {
        self.packet.replace_inner(self.packet.inner_protocol(), &[&octets.0]).map_err(unfit)?;
        self.changed = true;
        Ok(())
    }

    #[getter]
    fn inner_protocol(&self) -> u8 {
        self.packet.inner_protocol()
    }

    #[getter]
    fn flow(&self) -> u64 {
        self.packet.flow().0
    }

    #[getter]
    fn five_tuple(&self) -> Option<FiveTuple> {
        FiveTuple::of(self.packet.octets())
    }

    #[pyo3(signature = (protocol, *parts))]
    fn replace_inner(&mut self, protocol: u32, parts: Vec<Octets>) -> PyResult<()> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.0.as_slice()).collect();
        self.packet.replace_inner(Self::protocol(protocol)?, &parts).map_err(unfit)?;
        self.changed = true;
        Ok(())
    }

    #[pyo3(signature = (protocol, *parts))]
    fn behind_the_same(&self, protocol: u32, parts: Vec<Octets>) -> PyResult<Self> {
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.0.as_slice()).collect();
        let packet = self.packet.behind_the_same(Self::protocol(protocol)?, &parts).map_err(unfit)?;
        Ok(Self { packet, changed: false })
    }

    /// A copy.
    fn to_owned(&self) -> Self {
        Self { packet: self.packet.to_owned(), changed: false }
    }

    fn __repr__(&self) -> String {
        let protocol = self.packet.inner_protocol();
        let at = self.packet.steering().active().map_or_else(String::new, |sid| format!(" at {sid}"));
        format!("<Packet of {} octets{at}, inner protocol {protocol}>", self.packet.len())
    }
}

/// Addresses, protocol and ports of the innermost IP packet of octets that begin with an IP header; none: there is no IP packet.
#[pyfunction]
pub(crate) fn five_tuple(octets: Octets) -> Option<FiveTuple> {
    FiveTuple::of(&octets.0)
}
