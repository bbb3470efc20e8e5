//! Takes a terminal's bytes apart and lets through only what draws.
//!
//! An agent's output ends up in other people's terminals: in a browser, or through `hob attach` in a
//! real one. There a sequence could set the clipboard or the title, ask questions that the terminal
//! answers as if somebody had typed, or print. So there is a list of what may pass, made of what the
//! screen model knows as well: what a viewer sees and what the model holds are the same. It is done
//! once, on the server, because then it holds for every viewer, also for those nobody has thought of;
//! `hob attach` does it again, with the few exceptions of a terminal that is not the agent's own.
//!
//! Whatever comes out is whole: no piece ends within a sequence or a character, so a viewer may begin
//! after any piece.

/// A sequence longer than this is none that anybody needs.
const LONGEST: usize = 64;
/// No number of a sequence has more digits: repeating a character a billion times is no drawing.
const DIGITS: usize = 4;
/// What a full reset becomes: the same to the eye, and nothing that outlives the visit.
const RESET: &[u8] =
    b"\x1b[?1049l\x1b[r\x1b[m\x1b[?6l\x1b[?1l\x1b>\x1b[?2004l\x1b[0 q\x1b[?25h\x1b[H\x1b[2J\x1b[3J";

/// Which way the bytes go, and where to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// From an agent to a terminal that shows nothing else.
    Output,
    /// The same, to a person's own terminal: its other screen and its scrollback are not the agent's.
    OwnTerminal,
    /// From a viewer to the agent: what a person typed, without what a terminal said by itself.
    Input,
}

/// What happened at some place of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The scrollback was erased.
    Erased,
    /// The other screen was switched to or from.
    Switched,
    /// The scrolling region was set; zero is the whole screen.
    Region(u16, u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ground,
    /// Within a character of so many bytes.
    Character(usize),
    Escape,
    Intermediate,
    Control,
    /// A control sequence that is too long, or has what it must not: dropped to its end.
    Overlong,
    /// A string such as a title; `true` where a bell ends it.
    Text(bool),
    /// The escape that may be a string's end, or the beginning of something else.
    TextEnd,
}

/// A filter with its state. Pieces may be cut anywhere.
#[derive(Debug)]
pub struct Filter {
    policy: Policy,
    state: State,
    pending: Vec<u8>,
    /// Where the output of this piece has something to know about.
    marks: Vec<(usize, Mark)>,
}

impl Filter {
    pub fn new(policy: Policy) -> Filter {
        Filter { policy, state: State::Ground, pending: Vec::new(), marks: Vec::new() }
    }

    /// What may pass of this piece, together with what earlier ones left.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        self.marks.clear();
        for byte in bytes {
            self.byte(*byte, &mut out);
        }
        out
    }

    /// The same for something that was typed: nothing of it waits for more. A lone Escape is a key.
    pub fn pass_all(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = self.pass(bytes);
        let nothing_followed = self.pending.len() <= 2;
        let keys = matches!(self.state, State::Escape | State::Control | State::Text(_));
        if keys && nothing_followed {
            out.append(&mut self.pending);
        }
        if !matches!(self.state, State::Character(_)) {
            self.forget();
        }
        out
    }

    /// The marks of the last piece, with the places behind them.
    pub fn marks(&self) -> &[(usize, Mark)] {
        &self.marks
    }

    /// Forgets what was begun: bytes are missing.
    pub fn forget(&mut self) {
        self.state = State::Ground;
        self.pending.clear();
    }

    fn byte(&mut self, byte: u8, out: &mut Vec<u8>) {
        match (self.state, byte) {
            (State::Ground, 0x20..=0x7e) => out.push(byte),
            // A sequence that is broken off draws nothing.
            (State::Ground, 0x1b) => self.begin(State::Escape, byte),
            (State::Ground, 0x80..) => self.begin_character(byte, out),
            (State::Ground, _) => {
                if self.policy == Policy::Input || (0x08..=0x0d).contains(&byte) {
                    out.push(byte);
                }
            }
            (State::Character(length), 0x80..=0xbf) => {
                self.pending.push(byte);
                if self.pending.len() == length {
                    self.end_character(out);
                }
            }
            (State::Character(_), _) => {
                out.push(b'?');
                self.forget();
                self.byte(byte, out);
            }
            (_, 0x18 | 0x1a) => self.forget(),
            (State::Text(_), 0x1b) => self.begin(State::TextEnd, byte),
            (State::TextEnd, b'\\') => self.forget(),
            (State::TextEnd, _) => {
                self.begin(State::Escape, 0x1b);
                self.byte(byte, out);
            }
            (State::Escape, 0x1b) if self.policy == Policy::Input => out.push(0x1b),
            (_, 0x1b) => self.begin(State::Escape, byte),
            (State::Text(true), 0x07) => self.forget(),
            (State::Text(_), _) => {
                // Only whether anything followed counts.
                if self.pending.len() < LONGEST {
                    self.pending.push(byte);
                }
            }
            (State::Overlong, 0x40..=0x7e) => self.forget(),
            (State::Overlong, _) => {}
            (State::Escape | State::Intermediate | State::Control, 0x80..) => {
                self.forget();
                self.byte(byte, out);
            }
            (State::Escape | State::Intermediate | State::Control, 0x00..=0x1f | 0x7f) => {
                // A control character within a sequence would be carried out at once by a terminal.
                if self.policy == Policy::Input {
                    out.append(&mut self.pending);
                    out.push(byte);
                    self.forget();
                }
            }
            (State::Escape, _) => self.escape(byte, out),
            (State::Intermediate, 0x20..=0x2f) => {}
            (State::Intermediate, _) => self.forget(),
            (State::Control, 0x40..=0x7e) => {
                self.pending.push(byte);
                let sequence = std::mem::take(&mut self.pending);
                self.state = State::Ground;
                self.control(&sequence, out);
            }
            (State::Control, _) => {
                self.pending.push(byte);
                if self.pending.len() > LONGEST {
                    self.begin(State::Overlong, byte);
                }
            }
        }
    }

    fn begin(&mut self, state: State, byte: u8) {
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
        self.begin(State::Character(length), byte);
    }

    fn end_character(&mut self, out: &mut Vec<u8>) {
        let bytes = std::mem::take(&mut self.pending);
        self.state = State::Ground;
        match std::str::from_utf8(&bytes).map(|text| text.chars().next()) {
            // Some terminals take these for the beginnings of sequences.
            Ok(Some('\u{80}'..='\u{9f}')) => {}
            // The model does not draw it, so nobody does.
            Ok(None | Some('\u{fffd}')) | Err(_) => out.push(b'?'),
            Ok(Some(_)) => out.extend_from_slice(&bytes),
        }
    }

    fn escape(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.pending.push(byte);
        match byte {
            b'[' => self.state = State::Control,
            b']' => self.state = State::Text(true),
            b'P' | b'X' | b'^' | b'_' => self.state = State::Text(false),
            0x20..=0x2f if self.policy != Policy::Input => self.state = State::Intermediate,
            _ => {
                let pending = std::mem::take(&mut self.pending);
                self.state = State::Ground;
                if self.policy == Policy::Input {
                    // A letter with Alt, or the beginning of an arrow key.
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

    /// A whole control sequence.
    fn control(&mut self, sequence: &[u8], out: &mut Vec<u8>) {
        let Some(parts) = Parts::of(sequence) else { return };
        if self.policy == Policy::Input {
            if !parts.is_reply() {
                out.extend_from_slice(sequence);
            }
            return;
        }
        let numbers = parts.numbers();
        match (parts.prefix, parts.intermediates, parts.last, numbers.as_deref()) {
            // Colours and the like, also with the newer colons.
            (None, b"", b'm', _) if parts.is_short() => out.extend_from_slice(sequence),
            (None, b"", b'r', Some(numbers @ ([_] | [_, _]))) => {
                out.extend_from_slice(sequence);
                let bottom = numbers.get(1).copied().unwrap_or_default();
                self.marks.push((out.len(), Mark::Region(numbers[0], bottom)));
            }
            (None, b"", b'H' | b'f', Some([_] | [_, _])) => out.extend_from_slice(sequence),
            // A person's own scrollback is theirs.
            (None, b"", b'J', Some([3])) if self.policy == Policy::OwnTerminal => {}
            (None, b"", b'J', Some([3])) => {
                out.extend_from_slice(sequence);
                self.marks.push((out.len(), Mark::Erased));
            }
            // What a terminal knows under two names, and the model under one.
            (None, b"", b'a', Some([n])) => out.extend_from_slice(format!("\x1b[{n}C").as_bytes()),
            (None, b"", b'e', Some([n])) => out.extend_from_slice(format!("\x1b[{n}B").as_bytes()),
            (None, b"", b's', Some([0])) => out.extend_from_slice(b"\x1b7"),
            (None, b"", b'u', Some([0])) => out.extend_from_slice(b"\x1b8"),
            (None, b"", last, Some([_])) if b"@ABCDEFGJKLMPSTX`bd".contains(&last) => {
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

    /// A mode is set or reset. Those that make a terminal speak by itself (mouse, focus, colours, size,
    /// other keys) are not: several viewers would speak at once, and nobody has typed anything.
    fn mode(&mut self, mode: u16, last: u8, out: &mut Vec<u8>) {
        let last = char::from(last);
        match mode {
            1 | 6 | 25 | 2004 | 2026 => {
                out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes())
            }
            47 | 1047 | 1049 => {
                let mode = if mode == 47 { 47 } else { 1049 };
                match self.policy {
                    // Its screens are its own.
                    Policy::OwnTerminal => {}
                    _ => {
                        out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes());
                        self.marks.push((out.len(), Mark::Switched));
                    }
                }
            }
            _ => {}
        }
    }
}

/// A control sequence in parts.
struct Parts<'a> {
    prefix: Option<u8>,
    parameters: &'a [u8],
    intermediates: &'a [u8],
    last: u8,
}

impl Parts<'_> {
    /// `None` where the parts are not in their order.
    fn of(sequence: &[u8]) -> Option<Parts<'_>> {
        let (last, rest) = sequence.get(2..)?.split_last()?;
        let prefix = rest.first().copied().filter(|byte| (0x3c..=0x3f).contains(byte));
        let rest = &rest[usize::from(prefix.is_some())..];
        let at = rest.iter().position(|byte| (0x20..=0x2f).contains(byte)).unwrap_or(rest.len());
        let (parameters, intermediates) = rest.split_at(at);
        let good = parameters.iter().all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
            && intermediates.iter().all(|byte| (0x20..=0x2f).contains(byte));
        good.then_some(Parts { prefix, parameters, intermediates, last: *last })
    }

    /// Whether no number is too long.
    fn is_short(&self) -> bool {
        self.parameters.split(|byte| matches!(byte, b';' | b':')).all(|n| n.len() <= DIGITS)
    }

    /// The numbers; one that is left out is 0. `None` where there is anything else.
    fn numbers(&self) -> Option<Vec<u16>> {
        let number = |digits: &[u8]| match digits {
            [] => Some(0),
            digits if digits.len() > DIGITS => None,
            digits => std::str::from_utf8(digits).ok()?.parse().ok(),
        };
        self.parameters.split(|byte| *byte == b';').map(number).collect()
    }

    /// Whether a terminal says this by itself: who it is, where its cursor stands, that it was looked
    /// at. Nobody types it.
    fn is_reply(&self) -> bool {
        match (self.prefix, self.last) {
            (Some(_), b'c' | b'R' | b'n' | b'u' | b'S' | b'M' | b'm' | b'y' | b't' | b'q') => true,
            (None, b'n' | b't' | b'x' | b'y') => true,
            (None, b'I' | b'O') => self.parameters.is_empty(),
            // The cursor's place; with a 1 in front it is also F3 with a modifier.
            (None, b'R') => self.numbers().is_none_or(|n| n.len() == 2 && n[0] != 1),
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
