//! Parses bytes from the terminal into keys and pastes.

const PASTE_START: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    Letter(char),
    Newline,
    /// `swallowed` when it came in the same read as the end of a paste: then it is lost.
    Enter {
        swallowed: bool,
    },
    Escape,
    CtrlC,
    Paste(String),
}

/// Reads pieces of input; a paste may span many.
#[derive(Default)]
pub struct Keys {
    pasting: bool,
    pasted: Vec<u8>,
    pending: Vec<u8>,
}

impl Keys {
    /// Returns the keys of one read.
    pub fn read(&mut self, piece: &[u8]) -> Vec<Key> {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(piece);
        let mut keys = Vec::new();
        let mut paste_ended = false;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            if self.pasting {
                match find(rest, PASTE_END) {
                    Some(end) => {
                        self.pasted.extend_from_slice(&rest[..end]);
                        rest = &rest[end + PASTE_END.len()..];
                        self.pasting = false;
                        paste_ended = true;
                        let pasted = std::mem::take(&mut self.pasted);
                        keys.push(Key::Paste(String::from_utf8_lossy(&pasted).into_owned()));
                    }
                    None => {
                        // The end mark itself may be split.
                        let kept = (1..PASTE_END.len())
                            .rev()
                            .find(|n| rest.ends_with(&PASTE_END[..*n]))
                            .unwrap_or_default();
                        let (now, later) = rest.split_at(rest.len() - kept);
                        self.pasted.extend_from_slice(now);
                        self.pending = later.to_vec();
                        break;
                    }
                }
                continue;
            }
            if let Some(after) = rest.strip_prefix(PASTE_START) {
                self.pasting = true;
                rest = after;
                continue;
            }
            let (key, used) = one_key(rest, paste_ended);
            keys.extend(key);
            rest = &rest[used..];
        }
        keys
    }
}

fn one_key(bytes: &[u8], paste_ended: bool) -> (Option<Key>, usize) {
    match bytes[0] {
        b'\r' => (Some(Key::Enter { swallowed: paste_ended }), 1),
        b'\n' => (Some(Key::Newline), 1),
        0x03 => (Some(Key::CtrlC), 1),
        0x1b if bytes.get(1) == Some(&b'[') => {
            // A sequence such as a focus event: up to its final byte.
            let end = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte));
            (None, end.map_or(bytes.len(), |end| end + 3))
        }
        0x1b => (Some(Key::Escape), 1),
        byte if byte < 0x20 || byte == 0x7f => (None, 1),
        _ => {
            let width = (1..=4.min(bytes.len()))
                .find(|width| std::str::from_utf8(&bytes[..*width]).is_ok())
                .unwrap_or(1);
            let letter = std::str::from_utf8(&bytes[..width]).ok().and_then(|t| t.chars().next());
            (Some(Key::Letter(letter.unwrap_or('\u{fffd}'))), width)
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paste_cut_anywhere_is_read_whole() {
        let bytes = b"\x1b[200~two\nlines\x1b[201~";
        for at in PASTE_START.len()..bytes.len() {
            let mut keys = Keys::default();
            let mut found = keys.read(&bytes[..at]);
            found.extend(keys.read(&bytes[at..]));
            assert_eq!(found, [Key::Paste("two\nlines".into())], "torn at {at}");
        }
    }

    #[test]
    fn enter_together_with_the_end_of_a_paste_is_lost() {
        let mut keys = Keys::default();
        assert_eq!(keys.read(b"\x1b[200~x\x1b[201~\r")[1], Key::Enter { swallowed: true });
        assert_eq!(keys.read(b"\r"), [Key::Enter { swallowed: false }]);
    }

    #[test]
    fn keys_are_read_as_letters_escapes_and_events() {
        let mut keys = Keys::default();
        assert_eq!(keys.read("ä".as_bytes()), [Key::Letter('ä')]);
        assert_eq!(keys.read(b"\x1b"), [Key::Escape]);
        assert_eq!(keys.read(b"\x1b[I"), []);
        assert_eq!(keys.read(b"\x03"), [Key::CtrlC]);
    }
}
