//! The program on a single frame (BPF_PROG_TEST_RUN), or on a buffer with it: for tests and for measuring its cost.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use super::Dataplane;
use super::pins::own_maps;
use crate::Error;
use crate::object;
use crate::program::{self, in_slot};
use crate::skb::{self, Part, Reach};

/// A run to make.
#[derive(Debug, Clone, Copy)]
pub struct TestRun<'a> {
    /// The frame from its Ethernet header; at least 14 octets.
    pub frame: &'a [u8],
    /// The interface that it comes from. The kernel needs one of this namespace whose receive queue is registered for XDP,
    /// which is so once the program is attached to it.
    pub ingress: u32,
    /// Runs; 0 means 1. The frame is the original one each time, except that a program which changed it meets its own
    /// changes: use 1 to look at the result, more to measure.
    pub repeat: u32,
    /// Octets of room for the resulting frame.
    pub room: usize,
}

impl<'a> TestRun<'a> {
    /// One run with room for everything that Segue could put on.
    pub fn once(frame: &'a [u8], ingress: u32) -> Self {
        Self { frame, ingress, repeat: 1, room: frame.len().max(1500) + 512 }
    }
}

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutput {
    /// `enum xdp_action`, also where a program of the TC hook said the same: 0 aborted, 1 drop, 2 pass, 3 tx, 4 redirect.
    pub verdict: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// Mean duration of one run, as the kernel measured it.
    pub duration: Duration,
}

impl Dataplane {
    /// Runs the program of the ports on a frame. Its counters count.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn test_run(&mut self, run: &TestRun<'_>) -> Result<TestOutput, Error> {
        self.test_program(None, run.ingress)?.run(run)
    }

    /// Puts one frame in, as if it had come by a port: it is counted, and really goes on. False: there is no such port, or it is one by
    /// which functions on the kernel's path return packets.
    ///
    /// # Errors
    /// [`Error::TestRun`]: longer than a page, or on XDP a kernel before Linux 5.18.
    pub fn inject(&mut self, frame: &[u8], ingress: u32) -> Result<bool, Error> {
        /// `TC_ACT_SHOT`: the frame itself ends here, its copy has come in.
        const PUT: u32 = 2;
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        let Some(port) = ports.iter().find(|port| port.entry.ifindex == ingress) else { return Ok(false) };
        let (xdp, skb) = (port.xdp, port.skb);
        let failed = |source: std::io::Error| Error::TestRun { ingress, source: source.into() };
        let run = TestRun::once(frame, ingress);
        if xdp {
            let mut context = xdp_context(&run);
            let program = self.program_fd()?;
            program::run_live(program.as_fd(), frame, &mut context).map_err(failed)?;
        } else if skb {
            let programs = self.filter_programs(Part::Asked)?;
            let missing = || Error::NotInObject { kind: "program", name: skb::INJECT.to_owned() };
            let program = programs.get(skb::INJECT).ok_or_else(missing)?;
            let output = program::run(program, frame, &mut skb_context(&run), 1, run.room).map_err(failed)?;
            if output.verdict != PUT {
                return Err(failed(std::io::Error::other("the interface did not take it")));
            }
        }
        Ok(xdp || skb)
    }

    /// The words of these rows, which are in ascending order, of a table of counters (`counters`, `outcomes`, `icmp_sent`), summed
    /// over the CPUs. Rows behind its end have none.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn sums(&self, table: &str, rows: &[u32]) -> Result<Vec<(u32, Vec<u64>)>, Error> {
        let sums = self.maps().read_sums(table, rows)?;
        Ok(rows.iter().map(|row| (*row, sums.row(*row).to_vec())).collect())
    }

    /// [`Dataplane::test_run`] with a stage, as if the program of the ports had called it at once. `program` is its name in the object.
    ///
    /// # Errors
    /// [`Error::TestRun`]; [`Error::NotInObject`] if it is not loaded.
    pub fn test_run_stage(&mut self, program: &'static str, run: &TestRun<'_>) -> Result<TestOutput, Error> {
        self.test_program(Some(program), run.ingress)?.run(run)
    }

    /// What packets of an interface meet: the program of the ports, or one of its stages by its name in the object. As it is now:
    /// another configuration may have others.
    ///
    /// # Errors
    /// [`Error::TestRun`]; [`Error::NotInObject`] if it is not loaded.
    pub fn test_program(&mut self, stage: Option<&'static str>, ingress: u32) -> Result<TestProgram, Error> {
        let program = stage.unwrap_or(object::PROGRAM);
        let failed = |source: std::io::Error| Error::TestRun { ingress, source: source.into() };
        let missing = || Error::NotInObject { kind: "program", name: program.to_owned() };
        let ports = self.applied().map(|compiled| compiled.ports.as_slice()).unwrap_or_default();
        // One by which packets come back from the kernel's path has neither hook: that of the others counts.
        let without_xdp = !ports.iter().any(|port| port.xdp);
        let on_skb = ports.iter().any(|port| port.entry.ifindex == ingress && (port.skb || !port.xdp && without_xdp));
        let slot = object::STAGES.iter().find(|(_, stage)| *stage == program).map(|(slot, _)| *slot);
        let program = match slot {
            Some(slot) if on_skb => {
                in_slot(&skb::port_stages(&self.set)?, slot).map_err(failed)?.ok_or_else(missing)?
            }
            Some(slot) => in_slot(own_maps(&self.set)?.get("stages")?, slot).map_err(failed)?.ok_or_else(missing)?,
            None if on_skb => {
                let part = self.applied().map_or(Part::Port(Reach::WHOLE), Part::port);
                let programs = self.filter_programs(part)?;
                programs.get(program).ok_or_else(missing)?.try_clone_to_owned().map_err(failed)?
            }
            None => self.program_fd()?,
        };
        Ok(TestProgram { program, on_skb })
    }
}

/// A program for many runs: to find it takes longer than to run it.
#[derive(Debug)]
pub struct TestProgram {
    program: OwnedFd,
    on_skb: bool,
}

impl TestProgram {
    /// Runs it on a frame. Its counters count.
    ///
    /// # Errors
    /// [`Error::TestRun`].
    pub fn run(&self, run: &TestRun<'_>) -> Result<TestOutput, Error> {
        let failed = |source: std::io::Error| Error::TestRun { ingress: run.ingress, source: source.into() };
        let mut context = if self.on_skb { skb_context(run) } else { xdp_context(run) };
        let output =
            program::run(self.program.as_fd(), run.frame, &mut context, run.repeat, run.room).map_err(failed)?;
        let verdict = if self.on_skb { as_xdp(output.verdict) } else { output.verdict };
        Ok(TestOutput { verdict, frame: output.frame, duration: output.duration })
    }
}

/// The same as `enum xdp_action` has it.
fn as_xdp(action: u32) -> u32 {
    const SHOT: u32 = 2;
    const REDIRECT: u32 = 7;
    match action {
        SHOT => 1,
        REDIRECT => 4,
        // TC_ACT_OK, TC_ACT_PIPE.
        _ => 2,
    }
}

/// `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
fn xdp_context(run: &TestRun<'_>) -> Vec<u32> {
    let length = u32::try_from(run.frame.len()).unwrap_or(u32::MAX);
    vec![0, length, 0, run.ingress, 0, 0]
}

/// `struct __sk_buff`, of which only `ifindex` is set.
fn skb_context(run: &TestRun<'_>) -> Vec<u32> {
    const IFINDEX: usize = 10;
    let mut words = vec![0; 48];
    words[IFINDEX] = run.ingress;
    words
}
