//! A stream that only the key of the home opens: the STREAM construction over XChaCha20-Poly1305.
//!
//! Each chunk is encrypted with its number and with whether it is the last one, so that a stream whose chunks were
//! removed, repeated or exchanged, or whose end is missing, does not open.

use std::io::{self, Read, Write};

use chacha20poly1305::aead::{Aead, KeyInit};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hob_domain::DataKey;
use sha2::{Digest, Sha256};

/// The text in a chunk; the last one may have less.
const CHUNK_BYTES: usize = 64 << 10;
/// What encryption adds to a chunk.
const TAG_BYTES: usize = 16;
/// The random part of the nonces, with which the stream begins.
const PREFIX_BYTES: usize = 19;
/// The purpose for which the key is derived.
const PURPOSE: &[u8] = b"hob backup\0";

/// The cipher of one stream, and the number of the next chunk.
struct ChunkCipher {
    cipher: XChaCha20Poly1305,
    prefix: [u8; PREFIX_BYTES],
    next: u32,
}

impl ChunkCipher {
    fn new(key: &DataKey, prefix: [u8; PREFIX_BYTES]) -> ChunkCipher {
        let key = Sha256::new().chain_update(PURPOSE).chain_update(key.expose()).finalize();
        ChunkCipher { cipher: XChaCha20Poly1305::new(&key), prefix, next: 0 }
    }

    fn nonce(&mut self, is_last: bool) -> io::Result<XNonce> {
        let mut nonce = [0; 24];
        nonce[..PREFIX_BYTES].copy_from_slice(&self.prefix);
        nonce[PREFIX_BYTES..23].copy_from_slice(&self.next.to_be_bytes());
        nonce[23] = u8::from(is_last);
        self.next = self.next.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(XNonce::from(nonce))
    }
}

/// Encrypts what is written to it. Call [`SealedWriter::finish`] at the end.
pub(super) struct SealedWriter<W> {
    out: W,
    cipher: ChunkCipher,
    chunk: Vec<u8>,
}

impl<W: Write> SealedWriter<W> {
    pub(super) fn new(mut out: W, key: &DataKey) -> io::Result<SealedWriter<W>> {
        let mut prefix = [0; PREFIX_BYTES];
        getrandom::fill(&mut prefix).map_err(io::Error::other)?;
        out.write_all(&prefix)?;
        let cipher = ChunkCipher::new(key, prefix);
        Ok(SealedWriter { out, cipher, chunk: Vec::with_capacity(CHUNK_BYTES) })
    }

    /// Writes the last chunk.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.out)
    }

    fn seal(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = self.cipher.nonce(is_last)?;
        let sealed = self.cipher.cipher.encrypt(&nonce, self.chunk.as_slice());
        self.out.write_all(&sealed.map_err(|_| io::Error::other("cannot encrypt"))?)?;
        self.chunk.clear();
        Ok(())
    }
}

impl<W: Write> Write for SealedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A full chunk waits until it is known whether it is the last one.
        if self.chunk.len() == CHUNK_BYTES && !bytes.is_empty() {
            self.seal(false)?;
        }
        let taken = bytes.len().min(CHUNK_BYTES - self.chunk.len());
        self.chunk.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Decrypts what [`SealedWriter`] wrote. Fails at the first chunk that was changed.
pub(super) struct SealedReader<R> {
    from: R,
    cipher: ChunkCipher,
    /// The rest of the chunk that is being read.
    chunk: Vec<u8>,
    read: usize,
    /// The first byte of the next chunk, if there is one.
    next_byte: Option<u8>,
    is_over: bool,
}

impl<R: Read> SealedReader<R> {
    pub(super) fn new(mut from: R, key: &DataKey) -> io::Result<SealedReader<R>> {
        let mut prefix = [0; PREFIX_BYTES];
        from.read_exact(&mut prefix)?;
        let next_byte = next_byte(&mut from)?;
        let cipher = ChunkCipher::new(key, prefix);
        Ok(SealedReader { from, cipher, chunk: Vec::new(), read: 0, next_byte, is_over: false })
    }

    fn open_next(&mut self) -> io::Result<()> {
        let mut sealed: Vec<u8> = self.next_byte.take().into_iter().collect();
        let rest = (CHUNK_BYTES + TAG_BYTES).saturating_sub(sealed.len());
        (&mut self.from).take(rest as u64).read_to_end(&mut sealed)?;
        self.next_byte = next_byte(&mut self.from)?;
        self.is_over = self.next_byte.is_none();
        let nonce = self.cipher.nonce(self.is_over)?;
        let opened = self.cipher.cipher.decrypt(&nonce, sealed.as_slice());
        let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "it was changed or cut");
        (self.chunk, self.read) = (opened.map_err(damaged)?, 0);
        Ok(())
    }
}

impl<R: Read> Read for SealedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.chunk.len() && !self.is_over {
            self.open_next()?;
        }
        let left = &self.chunk[self.read..];
        let taken = left.len().min(buffer.len());
        buffer[..taken].copy_from_slice(&left[..taken]);
        self.read += taken;
        Ok(taken)
    }
}

fn next_byte(from: &mut impl Read) -> io::Result<Option<u8>> {
    let mut byte = Vec::new();
    from.take(1).read_to_end(&mut byte)?;
    Ok(byte.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> DataKey {
        DataKey::from_bytes([byte; 32])
    }

    fn sealed(text: &[u8]) -> Vec<u8> {
        let mut writer = SealedWriter::new(Vec::new(), &key(1)).unwrap();
        writer.write_all(text).unwrap();
        writer.finish().unwrap()
    }

    fn opened(sealed: &[u8], key: &DataKey) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        SealedReader::new(sealed, key)?.read_to_end(&mut text)?;
        Ok(text)
    }

    #[test]
    fn streams_of_any_length_open_again() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let text: Vec<u8> = (0..length).map(|n| n as u8).collect();
            assert!(opened(&sealed(&text), &key(1)).unwrap() == text, "{length}");
        }
    }

    #[test]
    fn streams_that_were_changed_do_not_open() {
        let text = vec![7; 2 * CHUNK_BYTES + 100];
        let whole = sealed(&text);
        let chunk = CHUNK_BYTES + TAG_BYTES;
        let without = |range: std::ops::Range<usize>| {
            let mut bytes = whole.clone();
            bytes.drain(range);
            bytes
        };
        let flipped = |place: usize| {
            let mut bytes = whole.clone();
            bytes[place] ^= 1;
            bytes
        };
        let cases = [
            without(PREFIX_BYTES..PREFIX_BYTES + chunk),
            without(whole.len() - 116..whole.len()),
            without(whole.len() - 1..whole.len()),
            without(0..whole.len() - 10),
            flipped(0),
            flipped(PREFIX_BYTES),
            flipped(whole.len() - 1),
            Vec::new(),
        ];
        for (number, bytes) in cases.iter().enumerate() {
            assert!(opened(bytes, &key(1)).is_err(), "case {number}");
        }
        assert!(opened(&whole, &key(2)).is_err(), "another key");
        assert!(!whole.windows(16).any(|part| part == [7; 16]));
    }
}
