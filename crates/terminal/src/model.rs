//! The model of a terminal's screen: its cells, the lines that scrolled off, and the bytes that drew it.

use std::collections::VecDeque;
use std::num::NonZeroU16;

use hob_child::{Ring, Size};
use vt100::Callbacks;
use vt100::capture::{BasicFormattedCaptureState, RowContents};

use super::filter::{Filter, FilterMark, FilterPolicy};
use super::svg;

/// How many lines of scrollback are kept. They are kept as text, not as cells, which takes a
/// tenth of the memory.
pub const MAX_SCROLLBACK_LINES: usize = 2000;
/// Longer lines are not kept in the scrollback.
const MAX_SCROLLBACK_LINE_BYTES: usize = 4 << 10;
/// The size of the ring buffer for viewers. A viewer that falls behind it gets a full redraw.
const STREAM_BYTES: usize = 128 << 10;

/// The model of one screen. It is fed with an agent's output, split anywhere.
pub struct ScreenModel {
    parser: vt100::Parser<Scrolled>,
    filter: Filter,
    stream: Ring,
    size: Size,
    /// How many times viewers needed a full redraw because bytes alone do not reproduce the screen.
    redraws: u64,
    region: (u16, u16),
}

/// A position in the stream of drawn bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamPosition {
    written: u64,
    redraws: u64,
}

/// The cursor's position and visibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}

/// Lines that have scrolled off, oldest first, each with its colours.
#[derive(Default)]
struct Scrolled {
    lines: VecDeque<String>,
}

impl Callbacks for Scrolled {
    fn on_scroll(&mut self, contents: RowContents<'_>, alternate_screen: bool) {
        if alternate_screen {
            return;
        }
        let mut line = String::new();
        let written =
            contents.write_formatted_basic(&mut line, &mut BasicFormattedCaptureState::new());
        if written.is_err() || line.len() > MAX_SCROLLBACK_LINE_BYTES {
            return;
        }
        line.shrink_to_fit();
        self.lines.push_back(line);
        if self.lines.len() > MAX_SCROLLBACK_LINES {
            self.lines.pop_front();
        }
    }
}

impl ScreenModel {
    pub fn new(size: Size) -> ScreenModel {
        let (rows, cols) = cells(size);
        ScreenModel {
            parser: vt100::Parser::new_with_callbacks(rows, cols, 0, Scrolled::default()),
            filter: Filter::new(FilterPolicy::Output),
            stream: Ring::new(STREAM_BYTES),
            size,
            redraws: 0,
            region: (0, 0),
        }
    }

    /// Feeds an agent's output to the model.
    pub fn feed(&mut self, bytes: &[u8]) {
        let clean = self.filter.pass(bytes);
        let (mut rest, mut at) = (&clean[..], 0);
        for (end, mark) in self.filter.marks() {
            let (now, later) = rest.split_at(end - at);
            self.parser.process(now);
            (rest, at) = (later, *end);
            match mark {
                FilterMark::Erased => self.parser.callbacks_mut().lines.clear(),
                FilterMark::Region(top, bottom) => self.region = (*top, *bottom),
                // A viewer whose last output was a redraw does not know the repeated character.
                FilterMark::Repeated => self.redraws += 1,
                FilterMark::Switched => {
                    // Viewers stay on their main screen and get a full redraw: on the alternate screen
                    // their terminal would send the mouse wheel as arrow keys.
                    let sequence = now.iter().rposition(|byte| *byte == 0x1b).unwrap_or(now.len());
                    self.stream.push(&now[..sequence]);
                    self.redraws += 1;
                    continue;
                }
            }
            self.stream.push(now);
        }
        self.parser.process(rest);
        self.stream.push(rest);
    }

    /// Resets the parser after output was lost.
    pub fn gap(&mut self) {
        self.filter.reset();
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn resize(&mut self, size: Size) {
        let (rows, cols) = cells(size);
        self.parser.set_size(rows, cols);
        self.size = size;
        self.region = (0, 0);
        self.redraws += 1;
    }

    /// Returns the current position.
    pub fn position(&self) -> StreamPosition {
        StreamPosition { written: self.stream.written(), redraws: self.redraws }
    }

    /// Returns the bytes since `position`, or `None` if a full redraw is needed.
    pub fn since(&self, position: StreamPosition) -> Option<Vec<u8>> {
        let (start, bytes) = self.stream.since(position.written);
        (start == position.written && position.redraws == self.redraws).then_some(bytes)
    }

    /// Returns the text on the screen.
    pub fn text(&self) -> String {
        self.parser.screen().contents()
    }

    pub fn cursor(&self) -> Cursor {
        let screen = self.parser.screen();
        let (row, col) = screen.cursor_position();
        Cursor { row, col, visible: !screen.hide_cursor() }
    }

    /// Returns the bytes that draw the screen on a terminal of its size, after at most `scrollback` lines
    /// that have scrolled off.
    pub fn redraw(&self, scrollback: usize) -> Vec<u8> {
        let screen = self.parser.screen();
        let mut out = String::from("\x1b[?2026l\x1b[r\x1b[?6l\x1b[m\x1b[H\x1b[2J");
        let lines = &self.parser.callbacks().lines;
        if scrollback > 0 && !lines.is_empty() {
            out.push_str("\x1b[3J");
            for line in lines.iter().skip(lines.len().saturating_sub(scrollback)) {
                out.push_str(line);
                out.push_str("\x1b[m\r\n");
            }
            // Push exactly these lines off the top of the screen.
            out.extend(std::iter::repeat_n('\n', usize::from(self.size.rows).saturating_sub(1)));
        }
        out.push_str(&screen.state_formatted());
        if self.region != (0, 0) {
            let (top, bottom) = self.region;
            let (row, col) = screen.cursor_position();
            out.push_str(&format!("\x1b[{top};{bottom}r\x1b[{};{}H", row + 1, col + 1));
        }
        out.into_bytes()
    }

    /// Returns a picture of the screen as SVG.
    pub fn svg(&self) -> String {
        svg::picture(self.parser.screen())
    }
}

fn cells(size: Size) -> (NonZeroU16, NonZeroU16) {
    let cells = |n: u16| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN);
    (cells(size.rows), cells(size.cols))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: Size = Size { rows: 6, cols: 30 };

    fn model(bytes: &[u8]) -> ScreenModel {
        let mut model = ScreenModel::new(SIZE);
        model.feed(bytes);
        model
    }

    /// Returns the screen of a viewer that got a full redraw.
    fn viewed(model: &ScreenModel, scrollback: usize) -> ScreenModel {
        let mut viewer = ScreenModel::new(model.size());
        viewer.feed(&model.redraw(scrollback));
        viewer
    }

    #[test]
    fn redraw_reproduces_the_screen() {
        let model =
            model(b"\x1b[1;31mred\x1b[m plain\r\n\x1b[44mblue\x1b[m\x1b[?2004h\x1b[?25l\x1b[3;5Hx");
        let viewer = viewed(&model, 0);
        assert_eq!(viewer.text(), model.text());
        assert_eq!(viewer.cursor(), model.cursor());
        let (a, b) = (viewer.parser.screen(), model.parser.screen());
        assert_eq!(a.state_formatted(), b.state_formatted());
        assert!(a.bracketed_paste() && a.hide_cursor());
    }

    #[test]
    fn redraw_includes_scrollback() {
        let mut long = ScreenModel::new(SIZE);
        for n in 0..50 {
            long.feed(format!("line {n}\r\n").as_bytes());
        }
        assert_eq!(long.parser.callbacks().lines.len(), 45);
        let viewer = viewed(&long, 10);
        assert_eq!(viewer.text(), long.text());
        let lines: Vec<&str> =
            viewer.parser.callbacks().lines.iter().map(|line| line.trim_end()).collect();
        let expect: Vec<String> = (35..45).map(|n| format!("line {n}\x1b[m")).collect();
        assert_eq!(lines.len(), 10, "all of them, and no empty one");
        assert!(
            lines.iter().zip(&expect).all(|(line, expect)| expect.starts_with(line)),
            "{lines:?}"
        );
        long.feed(b"\x1b[3J");
        assert!(long.parser.callbacks().lines.is_empty(), "the agent may erase them");
    }

    #[test]
    fn alternate_screen_needs_a_redraw() {
        let mut model = model(b"main\r\n");
        let before = model.position();
        model.feed(b"\x1b[?1049h\x1b[Hother");
        assert_eq!(model.text().trim(), "other");
        assert!(model.since(before).is_none(), "a drawing is needed");
        assert!(model.since(model.position()).is_some_and(|bytes| bytes.is_empty()));
        let viewer = viewed(&model, 0);
        assert!(!viewer.parser.screen().alternate_screen(), "viewers have one screen");
        assert_eq!(viewer.text(), model.text());
        model.feed(b"\x1b[?1049l");
        assert_eq!(model.text().trim(), "main");
        assert_eq!(viewed(&model, 0).text(), model.text());
    }

    #[test]
    fn repeated_character_needs_a_redraw() {
        let mut model = model(b"a");
        let before = model.position();
        model.feed(b"\x1b[3b");
        assert_eq!(model.text(), "aaaa");
        assert!(model.since(before).is_none(), "a redrawn viewer has no character to repeat");
    }

    #[test]
    fn position_behind_the_buffer_needs_a_redraw() {
        let mut model = model(b"x");
        assert_eq!(model.since(StreamPosition::default()).as_deref(), Some(&b"x"[..]));
        model.feed(&b"y".repeat(2 * STREAM_BYTES));
        assert_eq!(model.since(StreamPosition::default()), None);
        let position = model.position();
        model.feed(b"zzz");
        assert_eq!(model.since(position).as_deref(), Some(&b"zzz"[..]));
    }

    #[test]
    fn resize_needs_a_redraw() {
        let mut model = model(b"hello\r\nworld");
        let before = model.position();
        model.resize(Size { rows: 10, cols: 60 });
        model.feed(b"!");
        assert!(model.since(before).is_none());
        assert!(model.text().contains("world!"));
    }

    proptest! {
        /// A viewer that joins at any moment sees the same screen as one that was there before.
        #[test]
        fn joining_late_shows_the_same_screen(
            pieces in prop::collection::vec(prop_oneof![
                "[a-z ]{1,40}".prop_map(String::into_bytes),
                Just(b"\r\n".to_vec()), Just(b"\x1b[2J\x1b[H".to_vec()), Just(b"\x1b[31m".to_vec()),
                Just(b"\x1b[4;9H".to_vec()), Just(b"\x1b[K".to_vec()), Just("漢❯".as_bytes().to_vec()),
                Just(b"\x1b[3".to_vec()), Just(b"\x1b[?1049h".to_vec()), Just(b"\x1b[?1049l".to_vec()),
                Just(b"\x1b]0;x\x07".to_vec()), Just(b"\x1b[?25l".to_vec()), Just(b"\xe2\x9d".to_vec()),
            ], 1..30),
            at in 0usize..30,
        ) {
            let mut model = ScreenModel::new(SIZE);
            let mut viewer = ScreenModel::new(SIZE);
            let mut position = StreamPosition::default();
            for (number, piece) in pieces.iter().enumerate() {
                model.feed(piece);
                if number == at % pieces.len() || (number > at % pieces.len() && model.since(position).is_none()) {
                    viewer = viewed(&model, 0);
                } else if number > at % pieces.len() {
                    viewer.feed(&model.since(position).unwrap_or_default());
                }
                position = model.position();
            }
            prop_assert_eq!(viewer.text(), model.text());
            prop_assert_eq!(viewer.cursor(), model.cursor());
        }
    }
}
