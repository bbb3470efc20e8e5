//! A filter for terminal bytes: only what draws may pass.
//!
//! An agent's output ends up in other people's terminals: in a browser, or through `hob attach` in a
//! real one. There an escape sequence could set the clipboard or the title, send queries that the
//! terminal answers as if somebody had typed, or print. So the filter has an allow-list. The list holds
//! what the screen model understands, so that a viewer and the model show the same. The server filters
//! once for all viewers, including clients that do not exist yet; `hob attach` filters again, with the
//! few exceptions of a terminal that is not the agent's own.
//!
//! The output is always whole: no piece ends within a sequence or a character, so a viewer may join
//! after any piece.
//!
//! The parser is hand-written although `vt100` brings `vte`, for three reasons. `vte::Perform` reports
//! parsed numbers and not bytes (`ESC [ m` and `ESC [ 0 m` look the same), so allowed sequences could not
//! pass unchanged. Its buffer for strings such as titles is unbounded with the `std` feature, which
//! `vt100` enables, and an agent's output is not trusted. And it does not tell which bytes are pending,
//! which the input direction needs: an Escape that nothing follows is a key.

/// Longer sequences are dropped.
const MAX_SEQUENCE_BYTES: usize = 64;
/// Sequences with longer numbers are dropped: repeating a character a billion times draws nothing useful.
const MAX_DIGITS: usize = 4;
/// The replacement for a full reset: it looks the same, and changes nothing that outlives the viewer.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[r\x1b[m\x1b[?6l\x1b[?1l\x1b>\x1b[?2004l\x1b[0 q\x1b[?25h\x1b[H\x1b[2J\x1b[3J";

/// The direction and destination of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterPolicy {
    /// From an agent to a terminal that shows only this agent.
    Output,
    /// From an agent to a person's own terminal, whose alternate screen and scrollback are not the
    /// agent's to change.
    OwnTerminal,
    /// From a viewer to the agent: what a person typed, without the replies that a terminal sends by
    /// itself.
    Input,
}

/// An effect at a position of the output that the screen model must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterMark {
    /// The scrollback was erased.
    Erased,
    /// The alternate screen was entered or left.
    Switched,
    /// The last character was repeated (REP).
    Repeated,
    /// The scrolling region was set; zeros mean the whole screen.
    Region(u16, u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserState {
    Ground,
    /// Within a character of this many bytes.
    Character(usize),
    Escape,
    Intermediate,
    Control,
    /// Within a control sequence that is too long or malformed: dropped to its end.
    Overlong,
    /// Within a string such as a title; `true` if BEL ends it.
    Text(bool),
    /// After an Escape within a string: its end, or the start of another sequence.
    TextEnd,
}

/// A filter with its parser state. Input may be split anywhere.
#[derive(Debug)]
pub struct Filter {
    policy: FilterPolicy,
    state: ParserState,
    pending: Vec<u8>,
    /// The marks of the last piece, each with the output position after it.
    marks: Vec<(usize, FilterMark)>,
}

impl Filter {
    pub fn new(policy: FilterPolicy) -> Filter {
        Filter { policy, state: ParserState::Ground, pending: Vec::new(), marks: Vec::new() }
    }

    /// Returns what may pass of `bytes`, together with what earlier calls left pending.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.marks.clear();
        for byte in bytes {
            self.byte(*byte, &mut out);
        }
        out
    }

    /// Filters typed input, of which nothing waits for more bytes: a lone Escape is a key.
    pub fn pass_all(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = self.pass(bytes);
        let nothing_followed = self.pending.len() <= 2;
        let keys =
            matches!(self.state, ParserState::Escape | ParserState::Control | ParserState::Text(_));
        if keys && nothing_followed {
            out.append(&mut self.pending);
        }
        if !matches!(self.state, ParserState::Character(_)) {
            self.reset();
        }
        out
    }

    /// Returns the marks of the last piece, each with the output position after it.
    pub fn marks(&self) -> &[(usize, FilterMark)] {
        &self.marks
    }

    /// Drops a pending sequence, for example because bytes were lost.
    pub fn reset(&mut self) {
        self.state = ParserState::Ground;
        self.pending.clear();
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            (ParserState::Ground, 0x20..=0x7e) => out.push(byte),
            (ParserState::Ground, 0x1b) => self.begin(ParserState::Escape, byte),
            (ParserState::Ground, 0x80..) => self.begin_character(byte, out),
            (ParserState::Ground, _) => {
                if self.policy == FilterPolicy::Input || (0x08..=0x0d).contains(&byte) {
                    out.push(byte);
                }
            }
            (ParserState::Character(length), 0x80..=0xbf) => {
                self.pending.push(byte);
                if self.pending.len() == length {
                    self.end_character(out);
                }
            }
            (ParserState::Character(_), _) => {
                out.push(b'?');
                self.reset();
                self.byte(byte, out);
            }
            (_, 0x18 | 0x1a) => self.reset(),
            (ParserState::Text(_), 0x1b) => self.begin(ParserState::TextEnd, byte),
            (ParserState::TextEnd, b'\\') => self.reset(),
            (ParserState::TextEnd, _) => {
                self.begin(ParserState::Escape, 0x1b);
                self.byte(byte, out);
            }
            (ParserState::Escape, 0x1b) if self.policy == FilterPolicy::Input => out.push(0x1b),
            (_, 0x1b) => self.begin(ParserState::Escape, byte),
            (ParserState::Text(true), 0x07) => self.reset(),
            (ParserState::Text(_), _) => {
                // Content is dropped; only whether there was any matters.
                if self.pending.len() < MAX_SEQUENCE_BYTES {
                    self.pending.push(byte);
                }
            }
            (ParserState::Overlong, 0x40..=0x7e) => self.reset(),
            (ParserState::Overlong, _) => {}
            (ParserState::Escape | ParserState::Intermediate | ParserState::Control, 0x80..) => {
                self.reset();
                self.byte(byte, out);
            }
            (
                ParserState::Escape | ParserState::Intermediate | ParserState::Control,
                0x00..=0x1f | 0x7f,
            ) => {
                // A terminal would execute a control character within a sequence at once.
                if self.policy == FilterPolicy::Input {
                    out.append(&mut self.pending);
                    out.push(byte);
                    self.reset();
                }
            }
            (ParserState::Escape, _) => self.escape(byte, out),
            (ParserState::Intermediate, 0x20..=0x2f) => {}
            (ParserState::Intermediate, _) => self.reset(),
            (ParserState::Control, 0x40..=0x7e) => {
                self.pending.push(byte);
                let sequence = std::mem::take(&mut self.pending);
                self.state = ParserState::Ground;
                self.control(&sequence, out);
            }
            (ParserState::Control, _) => {
                self.pending.push(byte);
                if self.pending.len() > MAX_SEQUENCE_BYTES {
                    self.begin(ParserState::Overlong, byte);
                }
            }
        }
    }

    fn begin(&mut self, state: ParserState, byte: u8) {
        self.state = state;
        self.pending.clear();
        self.pending.push(byte);
    }

    fn begin_character(&mut self, byte: u8, out: &mut Vec<u8>) {
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => {
                out.push(b'?');
                return;
            }
        };
        self.begin(ParserState::Character(length), byte);
    }

    fn end_character(&mut self, out: &mut Vec<u8>) {
        let bytes = std::mem::take(&mut self.pending);
        self.state = ParserState::Ground;
        match std::str::from_utf8(&bytes).map(|text| text.chars().next()) {
            // Some terminals treat these C1 controls as the start of a sequence.
            Ok(Some('\u{80}'..='\u{9f}')) => {}
            // The model does not draw the replacement character, so no viewer does.
            Ok(None | Some('\u{fffd}')) | Err(_) => out.push(b'?'),
            Ok(Some(_)) => out.extend_from_slice(&bytes),
        }
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.pending.push(byte);
        match byte {
            b'[' => self.state = ParserState::Control,
            b']' => self.state = ParserState::Text(true),
            b'P' | b'X' | b'^' | b'_' => self.state = ParserState::Text(false),
            0x20..=0x2f if self.policy != FilterPolicy::Input => {
                self.state = ParserState::Intermediate
            }
            _ => {
                let pending = std::mem::take(&mut self.pending);
                self.state = ParserState::Ground;
                if self.policy == FilterPolicy::Input {
                    // A letter with Alt, or the start of an arrow key.
                    out.extend_from_slice(&pending);
                    return;
                }
                match byte {
                    b'7' | b'8' | b'=' | b'>' | b'M' => out.extend_from_slice(&pending),
                    b'D' => out.push(b'\n'),
                    b'E' => out.extend_from_slice(b"\r\n"),
                    b'c' => {
                        let mut filter = Filter::new(self.policy);
                        let reset = filter.pass(RESET);
                        let at = out.len();
                        self.marks.extend(filter.marks.iter().map(|(n, mark)| (at + n, *mark)));
                        out.extend_from_slice(&reset);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Handles a whole control sequence.
    fn control(&mut self, sequence: &[u8], out: &mut Vec<u8>) {
        let Some(parts) = ControlSequence::parse(sequence) else { return };
        if self.policy == FilterPolicy::Input {
            if !parts.is_reply() {
                out.extend_from_slice(sequence);
            }
            return;
        }
        let numbers = parts.numbers();
        match (parts.prefix, parts.intermediates, parts.last, numbers.as_deref()) {
            // Colours and styles, also in the newer form with colons.
            (None, b"", b'm', _) if parts.is_short() => out.extend_from_slice(sequence),
            (None, b"", b'r', Some(numbers @ ([_] | [_, _]))) => {
                out.extend_from_slice(sequence);
                let bottom = numbers.get(1).copied().unwrap_or_default();
                self.marks.push((out.len(), FilterMark::Region(numbers[0], bottom)));
            }
            (None, b"", b'H' | b'f', Some([_] | [_, _])) => out.extend_from_slice(sequence),
            // A person's own scrollback is not the agent's to erase.
            (None, b"", b'J', Some([3])) if self.policy == FilterPolicy::OwnTerminal => {}
            (None, b"", b'J', Some([3])) => {
                out.extend_from_slice(sequence);
                self.marks.push((out.len(), FilterMark::Erased));
            }
            // Sequences with two names, of which the model knows one.
            (None, b"", b'a', Some([n])) => out.extend_from_slice(format!("\x1b[{n}C").as_bytes()),
            (None, b"", b'e', Some([n])) => out.extend_from_slice(format!("\x1b[{n}B").as_bytes()),
            (None, b"", b's', Some([0])) => out.extend_from_slice(b"\x1b7"),
            (None, b"", b'u', Some([0])) => out.extend_from_slice(b"\x1b8"),
            (None, b"", b'b', Some([_])) => {
                out.extend_from_slice(sequence);
                self.marks.push((out.len(), FilterMark::Repeated));
            }
            (None, b"", last, Some([_])) if b"@ABCDEFGJKLMPSTX`d".contains(&last) => {
                out.extend_from_slice(sequence);
            }
            (Some(b'?'), b"", b'J' | b'K', Some([_])) => out.extend_from_slice(sequence),
            (Some(b'?'), b"", b'h' | b'l', Some(modes)) => {
                for mode in modes {
                    self.mode(*mode, parts.last, out);
                }
            }
            (None, b" ", b'q', Some([0..=6])) => out.extend_from_slice(sequence),
            _ => {}
        }
    }

    /// Handles a mode that is set or reset. Modes that make a terminal send bytes by itself (mouse, focus,
    /// colours, size, key encodings) never pass: several viewers would send at once, and nobody has typed.
    fn mode(&mut self, mode: u16, last: u8, out: &mut Vec<u8>) {
        let last = char::from(last);
        match mode {
            1 | 6 | 25 | 2004 | 2026 => {
                out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes())
            }
            47 | 1047 | 1049 => {
                let mode = if mode == 47 { 47 } else { 1049 };
                match self.policy {
                    // The person's terminal keeps its own screens.
                    FilterPolicy::OwnTerminal => {}
                    _ => {
                        out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes());
                        self.marks.push((out.len(), FilterMark::Switched));
                    }
                }
            }
            _ => {}
        }
    }
}

/// The parts of a control sequence.
struct ControlSequence<'a> {
    prefix: Option<u8>,
    parameters: &'a [u8],
    intermediates: &'a [u8],
    last: u8,
}

impl ControlSequence<'_> {
    /// Splits a sequence; `None` if its parts are out of order.
    fn parse(sequence: &[u8]) -> Option<ControlSequence<'_>> {
        let (last, rest) = sequence.get(2..)?.split_last()?;
        let prefix = rest.first().copied().filter(|byte| (0x3c..=0x3f).contains(byte));
        let rest = &rest[usize::from(prefix.is_some())..];
        let at = rest.iter().position(|byte| (0x20..=0x2f).contains(byte)).unwrap_or(rest.len());
        let (parameters, intermediates) = rest.split_at(at);
        let good = parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
            && intermediates.iter().all(|byte| (0x20..=0x2f).contains(byte));
        good.then_some(ControlSequence { prefix, parameters, intermediates, last: *last })
    }

    /// Returns whether every number is within [`MAX_DIGITS`].
    fn is_short(&self) -> bool {
        self.parameters.split(|byte| matches!(byte, b';' | b':')).all(|n| n.len() <= MAX_DIGITS)
    }

    /// Returns the numbers; an omitted one is 0. `None` if there is anything else or a number is too long.
    fn numbers(&self) -> Option<Vec<u16>> {
        let number = |digits: &[u8]| match digits {
            [] => Some(0),
            digits if digits.len() > MAX_DIGITS => None,
            digits => std::str::from_utf8(digits).ok()?.parse().ok(),
        };
        self.parameters.split(|byte| *byte == b';').map(number).collect()
    }

    /// Returns whether a terminal sends this by itself: its identity, the cursor position, a focus change.
    /// Nobody types it.
    fn is_reply(&self) -> bool {
        match (self.prefix, self.last) {
            (Some(_), b'c' | b'R' | b'n' | b'u' | b'S' | b'M' | b'm' | b'y' | b't' | b'q') => true,
            (None, b'n' | b't' | b'x' | b'y') => true,
            (None, b'I' | b'O') => self.parameters.is_empty(),
            // A cursor position report. With a leading 1 it is also F3 with a modifier.
            (None, b'R') => self.numbers().is_none_or(|n| n.len() == 2 && n[0] != 1),
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
