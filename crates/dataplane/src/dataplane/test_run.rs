//! The program on a single frame (BPF_PROG_TEST_RUN): for tests and for measuring its cost.

use std::time::Duration;

use libbpf_rs::ProgramInput;

use super::Dataplane;
use crate::Error;
use crate::object;

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
    /// `enum xdp_action`: 0 aborted, 1 drop, 2 pass, 3 tx, 4 redirect.
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
        self.test_run_stage(object::PROGRAM, run)
    }

    /// The words of the first rows of a table of counters (`counters`, `outcomes`, `icmp_sent`), summed over the CPUs.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn sums(&self, table: &str, rows: u32) -> Result<Vec<Vec<u64>>, Error> {
        let rows: Vec<u32> = (0..rows).collect();
        let sums = self.maps().read_sums(table, &rows)?;
        Ok(rows.into_iter().map(|row| sums.row(row).to_vec()).collect())
    }

    /// [`Dataplane::test_run`] with a stage, as if the program of the ports had called it at once. `program` is its name in the object.
    ///
    /// # Errors
    /// [`Error::TestRun`]; [`Error::NotInObject`].
    pub fn test_run_stage(&mut self, program: &'static str, run: &TestRun<'_>) -> Result<TestOutput, Error> {
        let failed = |source| Error::TestRun { ingress: run.ingress, source };
        let object = self.object()?;
        let program = object::program(object, program)?;
        let mut context = context(run);
        let mut out = vec![0; run.room];
        let input = ProgramInput {
            context_in: Some(&mut context),
            data_in: Some(run.frame),
            data_out: Some(&mut out),
            repeat: run.repeat.max(1),
            ..ProgramInput::default()
        };
        let output = program.test_run(input).map_err(failed)?;
        Ok(TestOutput {
            verdict: output.return_value,
            frame: output.data.map(|data| data.to_vec()).unwrap_or_default(),
            duration: output.duration,
        })
    }
}

/// `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
fn context(run: &TestRun<'_>) -> Vec<u8> {
    let length = u32::try_from(run.frame.len()).unwrap_or(u32::MAX);
    [0, length, 0, run.ingress, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect()
}
