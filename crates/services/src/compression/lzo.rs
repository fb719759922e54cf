//! Decoder of LZO1X streams.
//!
//! The library that compresses (`lzokay-native`) can decompress too, but fails with a panic on some corrupt input and has no limit
//! for what it writes. The format is that of the kernel's page on LZO (Documentation/staging/lzo.rst): instructions, each a literal run
//! or a copy from what was written already, told apart by the value of their first octet and by how many literals the one before ended with.

use super::DecodeError;

/// What an instruction's first octet below 16 means depends on the literals in front of it: none, one to three, or more.
const MANY_LITERALS: usize = 4;

/// What ends a stream is a copy from this distance, three octets long.
const END_DISTANCE: usize = 16_384;
const END_LENGTH: usize = 3;

struct Stream<'a> {
    input: &'a [u8],
    output: &'a mut [u8],
    written: usize,
}

/// Decodes `input` into `output`; how many octets that were.
pub(super) fn decode(input: &[u8], output: &mut [u8]) -> Result<usize, DecodeError> {
    let mut stream = Stream { input, output, written: 0 };
    let mut literals = 0;
    if let Some(first) = input.first().filter(|first| **first > 17) {
        let count = usize::from(*first) - 17;
        stream.octet()?;
        stream.literals(count)?;
        literals = count.min(MANY_LITERALS);
    }
    loop {
        let instruction = stream.octet()?;
        let code = usize::from(instruction);
        let (length, distance, trailing) = match instruction {
            64.. => {
                let distance = (usize::from(stream.octet()?) << 3) + (code >> 2 & 7) + 1;
                ((code >> 5) + 1, distance, code & 3)
            }
            32..64 => {
                let length = 2 + stream.length(code & 31, 31)?;
                let word = stream.word()?;
                (length, (word >> 2) + 1, word & 3)
            }
            16..32 => {
                let length = 2 + stream.length(code & 7, 7)?;
                let word = stream.word()?;
                let distance = END_DISTANCE + ((code & 8) << 11) + (word >> 2);
                if distance == END_DISTANCE {
                    // Octets behind the end are as wrong as a missing end.
                    let is_end = length == END_LENGTH && stream.input.is_empty();
                    return if is_end { Ok(stream.written) } else { Err(DecodeError::Corrupt) };
                }
                (length, distance, word & 3)
            }
            _ if literals == 0 => {
                let count = 3 + stream.length(code, 15)?;
                stream.literals(count)?;
                literals = MANY_LITERALS;
                continue;
            }
            _ => {
                let near = (usize::from(stream.octet()?) << 2) + (code >> 2) + 1;
                let (length, distance) = if literals == MANY_LITERALS { (3, near + 2048) } else { (2, near) };
                (length, distance, code & 3)
            }
        };
        stream.copy(distance, length)?;
        stream.literals(trailing)?;
        literals = trailing;
    }
}

impl Stream<'_> {
    fn octet(&mut self) -> Result<u8, DecodeError> {
        let (first, rest) = self.input.split_first().ok_or(DecodeError::Corrupt)?;
        self.input = rest;
        Ok(*first)
    }

    fn word(&mut self) -> Result<usize, DecodeError> {
        Ok(usize::from(u16::from_le_bytes([self.octet()?, self.octet()?])))
    }

    /// A length whose field is `short`. Zero means that it goes on: `base`, 255 for each zero octet, and the first octet that is none.
    fn length(&mut self, short: usize, base: usize) -> Result<usize, DecodeError> {
        if short != 0 {
            return Ok(short);
        }
        let mut length = base;
        loop {
            match self.octet()? {
                0 => length += 255,
                last => return Ok(length + usize::from(last)),
            }
        }
    }

    fn literals(&mut self, count: usize) -> Result<(), DecodeError> {
        let (literals, rest) = self.input.split_at_checked(count).ok_or(DecodeError::Corrupt)?;
        let place = self.output.get_mut(self.written..).and_then(|room| room.get_mut(..count));
        place.ok_or(DecodeError::TooLarge)?.copy_from_slice(literals);
        self.input = rest;
        self.written += count;
        Ok(())
    }

    fn copy(&mut self, distance: usize, length: usize) -> Result<(), DecodeError> {
        let start = self.written.checked_sub(distance).ok_or(DecodeError::Corrupt)?;
        if length > self.output.len() - self.written {
            return Err(DecodeError::TooLarge);
        }
        // The source may reach into what is written here, so octet by octet.
        for from in start..start + length {
            let octet = self.output.get(from).copied().unwrap_or(0);
            if let Some(place) = self.output.get_mut(self.written) {
                *place = octet;
            }
            self.written += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8], largest: usize) -> Result<Vec<u8>, DecodeError> {
        let mut output = vec![0xff; largest];
        decode(input, &mut output).map(|length| output[..length].to_vec())
    }

    /// Streams written by hand from the description of the format.
    #[test]
    fn instructions_one_by_one() {
        let end = [17, 0, 0];
        let stream = |head: &[u8]| [head, &end].concat();
        assert_eq!(decoded(&end, 10), Ok(vec![]));
        // 4 literals, then the end.
        assert_eq!(decoded(&stream(b"\x15abcd"), 10), Ok(b"abcd".to_vec()));
        // A long literal run of 3 + 15 + 1 octets.
        assert_eq!(decoded(&stream(b"\x00\x01abcdefghijklmnopqrs"), 30), Ok(b"abcdefghijklmnopqrs".to_vec()));
        // 3 octets from distance 4, one literal behind them.
        assert_eq!(decoded(&stream(b"\x15abcd\x4d\x00X"), 10), Ok(b"abcdabcX".to_vec()));
        // A copy that overlaps itself: 33 + 1 octets from distance 1.
        assert_eq!(decoded(&stream(b"\x15abcd\x20\x01\x00\x00"), 60), Ok([b"abcd", [b'd'; 34].as_slice()].concat()));
        // Two octets from distance 2 behind a run of one literal.
        assert_eq!(decoded(&stream(b"\x15abcd\x4d\x00X\x04\x00"), 20), Ok(b"abcdabcXcX".to_vec()));
    }

    #[test]
    fn faults() {
        assert_eq!(decoded(&[], 10), Err(DecodeError::Corrupt));
        assert_eq!(decoded(&[17, 0, 0, 0], 10), Err(DecodeError::Corrupt));
        assert_eq!(decoded(b"\x15abcd\x4d\x09X\x11\0\0", 10), Err(DecodeError::Corrupt));
        assert_eq!(decoded(b"\x15abcd", 10), Err(DecodeError::Corrupt));
        assert_eq!(decoded(b"\x15abcd\x11\0\0", 3), Err(DecodeError::TooLarge));
        assert_eq!(decoded(&[&[0][..], &[0; 1000]].concat(), 10), Err(DecodeError::Corrupt));
    }
}
