//! Who has each frame of a UMEM.

/// Where a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nobody has it.
    Free,
    /// In the fill ring, or the kernel's from there: a packet will come in it.
    Fill,
    /// A packet came in it, and is being looked at.
    Batch,
    /// In the transmit ring, or the kernel's from there: its packet will leave.
    Transmit,
}

/// How many places there are.
const PLACES: usize = 4;

/// A frame was not where it should have been: nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("frame {frame} is {found:?}, not {expected:?}")]
pub struct Fault {
    /// The frame.
    pub frame: u32,
    /// Where it is; none: there is no such frame.
    pub found: Option<Place>,
    /// Where it should be.
    pub expected: Place,
}

/// The frames of a UMEM, each in one place.
#[derive(Debug)]
pub struct Frames {
    places: Vec<Place>,
    free: Vec<u32>,
    counts: [usize; PLACES],
    faults: u64,
}

impl Frames {
    /// So many frames, all free.
    #[must_use]
    pub fn new(count: u32) -> Self {
        let length = count as usize;
        Self {
            places: vec![Place::Free; length],
            // The lowest first.
            free: (0..count).rev().collect(),
            counts: [length, 0, 0, 0],
            faults: 0,
        }
    }

    /// Where each is, to tell whoever takes them over.
    #[must_use]
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Frames of another process that has told where each is. Nobody looks at one here: those of a batch are free.
    #[must_use]
    pub fn of(places: &[Place]) -> Self {
        let mut frames = Self { places: places.to_vec(), free: Vec::new(), counts: [0; PLACES], faults: 0 };
        for (number, place) in (0..).zip(&mut frames.places) {
            if *place == Place::Batch {
                *place = Place::Free;
            }
            if *place == Place::Free {
                frames.free.push(number);
            }
            frames.counts[*place as usize] += 1;
        }
        frames.free.reverse();
        frames
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How many are in a place.
    #[must_use]
    pub fn count(&self, place: Place) -> usize {
        self.counts[place as usize]
    }

    /// Where a frame is; none: there is no such frame.
    #[must_use]
    pub fn place(&self, frame: u32) -> Option<Place> {
        self.places.get(frame as usize).copied()
    }

    /// How often a frame was not where it should have been.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// Takes a free frame to another place. None: none is free, or that is no other place.
    pub fn take(&mut self, to: Place) -> Option<u32> {
        let frame = if to == Place::Free { None } else { self.free.pop() }?;
        self.places[frame as usize] = to;
        self.counts[Place::Free as usize] -= 1;
        self.counts[to as usize] += 1;
        Some(frame)
    }

    /// Moves a frame from one place to another.
    ///
    /// # Errors
    /// If it is not there; the fault is counted.
    pub fn shift(&mut self, frame: u32, from: Place, to: Place) -> Result<(), Fault> {
        match self.places.get_mut(frame as usize) {
            // Who is free is in the list: [`Frames::take`] is the way from there.
            Some(place) if *place == from && from != Place::Free => {
                *place = to;
                self.counts[from as usize] -= 1;
                self.counts[to as usize] += 1;
                if to == Place::Free {
                    self.free.push(frame);
                }
                Ok(())
            }
            place => {
                let found = place.map(|place| *place);
                self.faults += 1;
                Err(Fault { frame, found, expected: from })
            }
        }
    }

    /// Whether every frame is in one place and the counts are right; for tests, since it looks at all.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&self) -> Result<(), String> {
        let mut counts = [0; PLACES];
        for place in &self.places {
            counts[*place as usize] += 1;
        }
        let mut listed: Vec<_> = self.free.clone();
        listed.sort_unstable();
        listed.dedup();
        let free = |frame: &u32| self.places.get(*frame as usize) == Some(&Place::Free);
        if counts != self.counts || listed.len() != self.free.len() || !listed.iter().all(free) {
            return Err(format!("frames {counts:?}, counted {:?}, {} listed as free", self.counts, self.free.len()));
        }
        if self.free.len() != counts[Place::Free as usize] {
            return Err(format!("{} frames are free, {} listed", counts[Place::Free as usize], self.free.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_that_is_elsewhere_is_a_fault_and_nothing_changes() {
        let mut frames = Frames::new(2);
        let frame = frames.take(Place::Fill).unwrap();
        let fault = frames.shift(frame, Place::Batch, Place::Free).unwrap_err();
        assert_eq!(fault, Fault { frame, found: Some(Place::Fill), expected: Place::Batch });
        let fault = frames.shift(9, Place::Fill, Place::Batch).unwrap_err();
        assert_eq!(fault, Fault { frame: 9, found: None, expected: Place::Fill });
        assert!(frames.shift(1, Place::Free, Place::Fill).is_err(), "a free frame is taken, not shifted");
        assert_eq!((frames.faults(), frames.count(Place::Fill), frames.count(Place::Free)), (3, 1, 1));
        frames.check().unwrap();
    }

    #[test]
    fn frames_of_another_process_are_where_it_says() {
        let frames = Frames::of(&[Place::Fill, Place::Batch, Place::Transmit, Place::Free, Place::Fill]);
        frames.check().unwrap();
        assert_eq!(
            [Place::Free, Place::Fill, Place::Batch, Place::Transmit].map(|place| frames.count(place)),
            [2, 2, 0, 1]
        );
    }

    const ALL: [Place; PLACES] = [Place::Free, Place::Fill, Place::Batch, Place::Transmit];

    proptest! {
        #[test]
        fn none_is_lost_or_doubled(moves in prop::collection::vec((0u32..20, 0usize..4, 0usize..4, any::<bool>()), 0..400)) {
            let mut frames = Frames::new(16);
            for (frame, from, to, take) in moves {
                let before = frames.places.clone();
                if take {
                    match frames.take(ALL[to]) {
                        Some(frame) => prop_assert_eq!(before[frame as usize], Place::Free),
                        None => prop_assert!(ALL[to] == Place::Free || !before.contains(&Place::Free)),
                    }
                } else if frames.shift(frame, ALL[from], ALL[to]).is_err() {
                    prop_assert_eq!(&before, &frames.places);
                }
                frames.check().map_err(TestCaseError::fail)?;
            }
        }
    }
}
