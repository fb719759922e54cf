//! The frames of one queue of an interface, and the rings by which they go to the kernel and come back. The sockets of the queue share them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::frames::{Frames, Place};
use crate::memory::{FRAME_LENGTH, Umem};
use crate::ring::{Consumer, Producer};

/// What sockets of a queue share.
pub(crate) struct Shared {
    umem: Umem,
    pool: Mutex<Pool>,
}

/// Who has which frame. A ring has one producer and one consumer: whoever has the pool is the one on this side.
pub(crate) struct Pool {
    pub(crate) frames: Frames,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    /// Frames that are left to packets on their way out: the fill ring takes none of these.
    reserve: usize,
}

impl Shared {
    pub(crate) fn new(
        umem: Umem,
        frames: Frames,
        fill: Producer<u64>,
        completion: Consumer<u64>,
        reserve: usize,
    ) -> Self {
        Self { umem, pool: Mutex::new(Pool { frames, fill, completion, reserve }) }
    }

    pub(crate) fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Nobody keeps it while the kernel is called. It is whole between two calls, also if somebody has panicked.
    pub(crate) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// Takes back frames whose packets have left.
    pub(crate) fn reclaim(&mut self) {
        let mut any = false;
        while let Some(address) = self.completion.pop() {
            let frame = u32::try_from(address / FRAME_LENGTH as u64).unwrap_or(u32::MAX);
            let _ = self.frames.shift(frame, Place::Transmit, Place::Free);
            any = true;
        }
        if any {
            self.completion.release();
        }
    }

    /// Gives free frames to the kernel, but for the reserve.
    pub(crate) fn refill(&mut self) {
        let mut any = false;
        while self.frames.count(Place::Free) > self.reserve && self.fill.room(1) > 0 {
            let Some(frame) = self.frames.take(Place::Fill) else { break };
            any |= self.fill.push(u64::from(frame) * FRAME_LENGTH as u64);
        }
        if any {
            self.fill.submit();
        }
    }
}

/// Which frames a socket has received and neither sent nor freed, and which of them were given out in this batch.
pub(crate) struct Batch {
    /// Of each frame: 0 if it is not this socket's, else the last batch in which it was given out; 1 if in none.
    stamps: Vec<u64>,
    epoch: u64,
}

impl Batch {
    pub(crate) fn new(frames: u32) -> Self {
        Self { stamps: vec![0; frames as usize], epoch: 1 }
    }

    pub(crate) fn received(&mut self, frame: u32) {
        if let Some(stamp) = self.stamps.get_mut(frame as usize) {
            *stamp = 1;
        }
    }

    /// False: the frame is not this socket's.
    pub(crate) fn gone(&mut self, frame: u32) -> bool {
        self.stamps.get_mut(frame as usize).is_some_and(|stamp| std::mem::take(stamp) != 0)
    }

    pub(crate) fn has(&self, frame: u32) -> bool {
        self.stamps.get(frame as usize).is_some_and(|stamp| *stamp != 0)
    }

    /// Before frames are given out: slices of the last batch are gone.
    pub(crate) fn begin(&mut self) {
        self.epoch += 1;
    }

    /// Whether the frame can be given out: it is this socket's, and no slice of it is there.
    pub(crate) fn give(&mut self, frame: u32) -> bool {
        let epoch = self.epoch;
        match self.stamps.get_mut(frame as usize) {
            Some(stamp) if *stamp != 0 && *stamp != epoch => {
                *stamp = epoch;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_given_out_once_in_a_batch_and_only_by_who_has_it() {
        let mut batch = Batch::new(2);
        batch.begin();
        assert!(!batch.give(0) && !batch.has(0) && !batch.gone(0), "it was not received");
        batch.received(0);
        assert!(batch.give(0) && !batch.give(0));
        batch.begin();
        assert!(batch.give(0), "the slice of the last batch is gone");
        assert!(batch.gone(0) && !batch.gone(0) && !batch.give(0));
        batch.received(7);
        assert!(!batch.give(7) && !batch.has(7), "there is no such frame");
    }
}
