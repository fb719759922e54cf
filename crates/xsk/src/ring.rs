//! One end of a ring that is shared with the kernel. Each ring has one producer and one consumer.

#![allow(unsafe_code)] // indices and entries in shared memory

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::memory::Mapping;

/// Where things are in a ring's mapping, in octets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    pub(crate) flags: usize,
    pub(crate) entries: usize,
}

/// The ring itself. `T` is plain data: any octets are a value of it.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
    _memory: Arc<Mapping>,
    _entries: PhantomData<T>,
}

// SAFETY: the pointers lead into the mapping that the value owns.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Panics if the ring does not lie in its mapping: the kernel would have lied about its own memory.
    fn new(memory: Arc<Mapping>, at: Offsets, size: u32) -> Self {
        let place = |offset: usize, length: usize, align: usize| {
            assert!(
                offset.is_multiple_of(align) && offset + length <= memory.length(),
                "a ring does not lie in its mapping"
            );
            // SAFETY: inside of the mapping.
            unsafe { memory.address().add(offset) }
        };
        let index = |offset| place(offset, size_of::<AtomicU32>(), align_of::<AtomicU32>()).cast();
        assert!(size.is_power_of_two(), "the size of a ring is a power of two");
        Self {
            producer: index(at.producer),
            consumer: index(at.consumer),
            flags: index(at.flags),
            entries: place(at.entries, size as usize * size_of::<T>(), align_of::<T>()).cast(),
            mask: size - 1,
            _memory: memory,
            _entries: PhantomData,
        }
    }

    fn size(&self) -> u32 {
        self.mask + 1
    }

    fn index(place: NonNull<AtomicU32>) -> &'static AtomicU32 {
        // SAFETY: it lies in the mapping, aligned; both sides only use atomic operations. The reference is not kept.
        unsafe { place.as_ref() }
    }

    fn entry(&self, position: u32) -> NonNull<T> {
        // SAFETY: the masked position is below the size.
        unsafe { self.entries.add((position & self.mask) as usize) }
    }
}

/// Puts entries into a ring.
pub(crate) struct Producer<T> {
    ring: Ring<T>,
    /// Where the next entry goes.
    next: u32,
    /// How far the consumer was when it was looked at last.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(crate) fn new(memory: Arc<Mapping>, at: Offsets, size: u32) -> Self {
        let ring = Ring::new(memory, at, size);
        let next = Ring::<T>::index(ring.producer).load(Ordering::Relaxed);
        let consumed = Ring::<T>::index(ring.consumer).load(Ordering::Acquire);
        Self { ring, next, consumed }
    }

    /// Entries that have room.
    pub(crate) fn room(&mut self, wanted: u32) -> u32 {
        let room = |consumed: u32| self.ring.size().saturating_sub(self.next.wrapping_sub(consumed));
        if room(self.consumed) < wanted {
            self.consumed = Ring::<T>::index(self.ring.consumer).load(Ordering::Acquire);
        }
        self.ring.size().saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Puts an entry in; the consumer sees it after [`Producer::submit`]. False: there is no room.
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: between the consumer's index and ours: the producer's alone until it is submitted.
        unsafe { self.ring.entry(self.next).write_volatile(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    pub(crate) fn submit(&self) {
        Ring::<T>::index(self.ring.producer).store(self.next, Ordering::Release);
    }

    /// Entries that the consumer has not taken yet.
    pub(crate) fn pending(&self) -> u32 {
        self.next.wrapping_sub(Ring::<T>::index(self.ring.consumer).load(Ordering::Acquire))
    }

    /// Whether the kernel wants to be told that there are entries.
    pub(crate) fn needs_wakeup(&self) -> bool {
        Ring::<T>::index(self.ring.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// Takes entries out of a ring.
pub(crate) struct Consumer<T> {
    ring: Ring<T>,
    /// The next entry.
    next: u32,
    /// How far the producer was when it was looked at last.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(crate) fn new(memory: Arc<Mapping>, at: Offsets, size: u32) -> Self {
        let ring = Ring::new(memory, at, size);
        let next = Ring::<T>::index(ring.consumer).load(Ordering::Relaxed);
        Self { ring, next, produced: next }
    }

    /// Takes an entry out; the producer can use its room after [`Consumer::release`].
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.produced == self.next {
            self.produced = Ring::<T>::index(self.ring.producer).load(Ordering::Acquire);
        }
        let there = self.produced.wrapping_sub(self.next);
        // More than the ring holds is nonsense.
        if there == 0 || there > self.ring.size() {
            return None;
        }
        // SAFETY: between our index and the producer's: written, and left alone until it is released.
        let entry = unsafe { self.ring.entry(self.next).read_volatile() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    pub(crate) fn release(&self) {
        Ring::<T>::index(self.ring.consumer).store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const OFFSETS: Offsets = Offsets { producer: 0, consumer: 64, flags: 128, entries: 192 };
    const SIZE: u32 = 8;

    /// The two ends of one ring, as the kernel and this crate have them.
    fn ends(begin: u32) -> (Producer<u64>, Consumer<u64>) {
        let memory = Arc::new(Mapping::anonymous(4096).unwrap());
        let producer = Producer::new(Arc::clone(&memory), OFFSETS, SIZE);
        Ring::<u64>::index(producer.ring.producer).store(begin, Ordering::Relaxed);
        Ring::<u64>::index(producer.ring.consumer).store(begin, Ordering::Relaxed);
        let producer = Producer { next: begin, consumed: begin, ..producer };
        (producer, Consumer::new(memory, OFFSETS, SIZE))
    }

    proptest! {
        /// Also where the indices wrap around.
        #[test]
        fn entries_come_out_as_they_went_in(begin in prop_oneof![Just(0), Just(u32::MAX - 3), any::<u32>()],
                                            steps in prop::collection::vec(0u8..4, 0..200)) {
            let (mut producer, mut consumer) = ends(begin);
            let (mut written, mut visible, mut taken) = (VecDeque::new(), VecDeque::new(), 0u32);
            let mut number = 0u64;
            for step in steps {
                match step {
                    0 => {
                        let in_ring = written.len() + visible.len() + taken as usize;
                        prop_assert_eq!(producer.push(number), in_ring < SIZE as usize);
                        if in_ring < SIZE as usize { written.push_back(number); }
                        number += 1;
                    }
                    1 => { producer.submit(); visible.append(&mut written); }
                    2 => {
                        let entry = consumer.pop();
                        prop_assert_eq!(entry, visible.pop_front());
                        taken += u32::from(entry.is_some());
                    }
                    _ => { consumer.release(); taken = 0; }
                }
            }
        }
    }
}
