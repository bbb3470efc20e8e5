//! A bounded tail of a byte stream.

use std::collections::VecDeque;

/// Keeps the last `capacity` bytes written to it.
#[derive(Debug)]
pub struct Ring {
    bytes: VecDeque<u8>,
    capacity: usize,
    written: u64,
}

impl Ring {
    /// Creates an empty ring. It allocates memory only as bytes arrive.
    pub fn new(capacity: usize) -> Ring {
        Ring { bytes: VecDeque::new(), capacity, written: 0 }
    }

    /// Appends bytes and drops the oldest beyond the capacity.
    pub fn push(&mut self, bytes: &[u8]) {
        self.written += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(self.capacity)..];
        let over = (self.bytes.len() + bytes.len()).saturating_sub(self.capacity);
        self.bytes.drain(..over);
        self.bytes.extend(bytes);
    }

    /// Returns how many bytes were ever written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the bytes that are kept, oldest first.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.iter().copied().collect()
    }

    /// Returns the bytes from stream position `from` on, and the position at which they start (later than
    /// `from` if the ring has dropped some).
    pub fn since(&self, from: u64) -> (u64, Vec<u8>) {
        let oldest = self.written - self.bytes.len() as u64;
        let start = from.clamp(oldest, self.written);
        (start, self.bytes.iter().skip((start - oldest) as usize).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_exactly_the_tail(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            capacity in 0usize..64,
            from in 0u64..900,
        ) {
            let mut ring = Ring::new(capacity);
            let mut all = Vec::new();
            for chunk in &chunks {
                ring.push(chunk);
                all.extend_from_slice(chunk);
            }
            let tail = &all[all.len().saturating_sub(capacity)..];
            prop_assert_eq!(ring.to_vec(), tail);
            prop_assert_eq!(ring.written(), all.len() as u64);
            let (start, bytes) = ring.since(from);
            prop_assert_eq!(&bytes[..], &all[start as usize..]);
            prop_assert!(start >= from.min(all.len() as u64));
        }
    }
}
