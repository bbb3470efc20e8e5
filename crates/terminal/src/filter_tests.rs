use super::*;
use proptest::prelude::*;

fn output(bytes: &[u8]) -> String {
    String::from_utf8(Filter::new(FilterPolicy::Output).pass(bytes)).unwrap()
}

fn own(bytes: &[u8]) -> String {
    String::from_utf8(Filter::new(FilterPolicy::OwnTerminal).pass(bytes)).unwrap()
}

fn typed(bytes: &[u8]) -> Vec<u8> {
    Filter::new(FilterPolicy::Input).pass_all(bytes)
}

#[test]
fn drawing_sequences_pass() {
    for same in [
        "hello ❯\u{a0}wörld 漢字\r\n\tx\x08",
        "\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx \x1b[4:3mcurly\x1b[m",
        "\x1b[H\x1b[2J\x1b[3J\x1b[12;40H\x1b[K\x1b[5A\x1b[2;20r",
        "\x1b7\x1b8\x1bM\x1b=\x1b>",
        "\x1b[?25l\x1b[?2004h\x1b[?1049h\x1b[?2026l\x1b[2 q",
    ] {
        assert_eq!(output(same.as_bytes()), same);
    }
}

#[test]
fn acting_sequences_are_dropped() {
    for (name, bytes) in [
        ("a title", &b"\x1b]0;owned\x07"[..]),
        ("the clipboard", b"\x1b]52;c;aGVsbG8=\x1b\\"),
        ("a question for the clipboard", b"\x1b]52;c;?\x07"),
        ("a question for colours", b"\x1b]11;?\x07"),
        ("a link", b"\x1b]8;;http://example.com\x1b\\"),
        ("who are you", b"\x1b[c\x1b[>c\x1b[=c\x1b[>0q"),
        ("where is the cursor", b"\x1b[6n\x1b[?6n\x1b[5n"),
        ("modes", b"\x1b[?2026$p\x1b[4$p"),
        ("windows", b"\x1b[8;10;10t\x1b[21t\x1b[18t"),
        ("a picture", b"\x1bPq#0;2;0;0;0~~\x1b\\"),
        ("a request for a capability", b"\x1bP+q544e\x1b\\"),
        ("other strings", b"\x1b_Gf=100;AAAA\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\"),
        ("mouse and focus", b"\x1b[?1000h\x1b[?1003;1006h\x1b[?1004h\x1b[?2031h\x1b[?2048h"),
        ("other keys", b"\x1b[>1u\x1b[=5u\x1b[?u\x1b[>4;2m"),
        ("printing", b"\x1b[5i\x1b[?5i"),
        ("a bell, answerback, shifts", b"\x07\x05\x0e\x0f"),
        ("character sets", b"\x1b(0\x1b)B\x1b%G\x1b#8"),
        ("an endless repeat", b"\x1b[99999b"),
        (
            "a long sequence",
            b"\x1b[1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1;1m",
        ),
        ("one-byte controls", "\u{9b}6n\u{9d}0;x\u{9c}".as_bytes()),
    ] {
        let left = output(bytes).replace("6n", "").replace("0;x", "");
        assert_eq!(left, "", "{name}");
    }
    assert_eq!(output(b"a\xff\x9b5nb\xc3"), "a??5nb");
    assert_eq!(output(b"a\x1b]0;half \x1b[31mred"), "a\x1b[31mred", "a new sequence ends a string");
    assert_eq!(output(b"\x1b[3\x1b[1mx\x1b[9\x18y"), "\x1b[1mxy");
}

#[test]
fn aliases_are_rewritten() {
    assert_eq!(output(b"\x1b[s\x1b[u\x1b[3a\x1bEx\x1bDy"), "\x1b7\x1b8\x1b[3C\r\nx\ny");
    assert_eq!(output(b"\x1b[?25;1004;2004h"), "\x1b[?25h\x1b[?2004h");
    assert!(output(b"\x1bc").ends_with("\x1b[H\x1b[2J\x1b[3J"));
}

#[test]
fn own_terminal_keeps_its_screens_and_scrollback() {
    assert_eq!(own(b"\x1b[?1049lx\x1b[3J"), "x");
    let reset = own(b"\x1bc");
    assert!(!reset.contains("1049") && !reset.contains("3J"), "{reset:?}");
}

#[test]
fn marks_carry_the_position_after_them() {
    let mut filter = Filter::new(FilterPolicy::Output);
    filter.pass(b"ab\x1b[3Jc\x1b[?1049h\x1b[2;9r\x1b]0;x\x07");
    let expect =
        [(6, FilterMark::Erased), (15, FilterMark::Switched), (21, FilterMark::Region(2, 9))];
    assert_eq!(filter.marks(), expect);
    filter.pass(b"nothing");
    assert!(filter.marks().is_empty());
}

#[test]
fn keys_pass_and_terminal_replies_are_dropped() {
    for key in [
        &b"hello\r"[..],
        b"\x1b",
        b"\x1b\x1b",
        b"\x1b[A\x1bOB\x1b[1;5C\x1b[3~\x1b[15~\x1b[Z",
        b"\x1b[1;2R",
        b"\x1bx\x1b]",
        b"\x1b[",
        b"\x03\x04\x1a\x7f\x00",
        "ä漢".as_bytes(),
        b"\x1b[200~two\nlines\x1b[201~",
    ] {
        assert_eq!(typed(key), key, "{key:?}");
    }
    for answer in [
        &b"\x1b[?62;c"[..],
        b"\x1b[>0;276;0c",
        b"\x1b[12;40R",
        b"\x1b[0n",
        b"\x1b[I",
        b"\x1b[O",
        b"\x1b[?2026;2$y",
        b"\x1b[8;40;120t",
        b"\x1b]11;rgb:0000/0000/0000\x1b\\",
        b"\x1bP>|xterm\x1b\\",
        b"\x1b[<0;10;10M",
    ] {
        assert_eq!(typed(answer), b"", "{answer:?}");
    }
    // A character may arrive in two frames.
    let mut filter = Filter::new(FilterPolicy::Input);
    let mut all = filter.pass_all(b"\xc3");
    all.extend(filter.pass_all(b"\xa4"));
    assert_eq!(all, "ä".as_bytes());
}

/// Bytes as a hostile agent would choose them.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        prop::sample::select(vec![
            &b"\x1b"[..],
            b"\x1b[",
            b"\x1b]",
            b"\x1bP",
            b"\x1b_",
            b"\x1b\\",
            b"\x07",
            b"\x9b",
            b"\xc2\x9b",
            b"52;c;",
            b"?",
            b">",
            b";",
            b"$",
            b"c",
            b"n",
            b"t",
            b"h",
            b"m",
            b"6",
            b"1049",
            b"\xe2\x9d\xaf",
            b"\xe2",
            b"\x18",
            b"text",
            b"\r\n",
            b" q",
            b"\x1b[3J",
            b"\x1bc",
        ])
        .prop_map(<[u8]>::to_vec),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// Collects every sequence of the output that an independent parser does not draw.
#[derive(Default)]
struct Violations {
    bad: Vec<String>,
}

impl vt100::Callbacks for Violations {
    fn audible_bell(&mut self, _: &mut vt100::Screen) {
        self.bad.push("bell".into());
    }
    fn visual_bell(&mut self, _: &mut vt100::Screen) {
        self.bad.push("visual bell".into());
    }
    fn resize(&mut self, _: &mut vt100::Screen, _: (u16, u16)) {
        self.bad.push("resize".into());
    }
    fn set_window_icon_name(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.bad.push("icon".into());
    }
    fn set_window_title(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.bad.push("title".into());
    }
    fn copy_to_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8], _: &[u8]) {
        self.bad.push("clipboard".into());
    }
    fn paste_from_clipboard(&mut self, _: &mut vt100::Screen, _: &[u8]) {
        self.bad.push("clipboard".into());
    }
    fn unhandled_char(&mut self, _: &mut vt100::Screen, c: char) {
        self.bad.push(format!("{c:?}"));
    }
    fn unhandled_control(&mut self, _: &mut vt100::Screen, b: u8) {
        self.bad.push(format!("control {b}"));
    }
    fn unhandled_escape(&mut self, _: &mut vt100::Screen, _: Option<u8>, _: Option<u8>, b: u8) {
        self.bad.push(format!("escape {b}"));
    }
    fn unhandled_csi(
        &mut self,
        _: &mut vt100::Screen,
        prefix: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        last: char,
    ) {
        // Synchronised drawing is for viewers; the parser may not know every style.
        let drawing = prefix == Some(b'?') && parameters.iter().all(|p| *p == [2026]);
        let erasing = matches!(last, 'J' | 'K');
        let style = prefix.is_none() && last == 'm';
        if !(drawing || erasing || style) {
            self.bad.push(format!("{prefix:?} {parameters:?} {last}"));
        }
    }
    fn unhandled_osc(&mut self, _: &mut vt100::Screen, _: &[&[u8]]) {
        self.bad.push("string".into());
    }
}

proptest! {
    #[test]
    fn hostile_output_is_harmless_however_it_is_split(bytes in hostile(), cuts in prop::collection::vec(0usize..200, 0..6)) {
        for policy in [FilterPolicy::Output, FilterPolicy::OwnTerminal] {
            let whole = Filter::new(policy).pass(&bytes);
            let text = std::str::from_utf8(&whole);
            prop_assert!(text.is_ok(), "every piece is whole");
            for c in text.unwrap().chars() {
                let control = c.is_control() && !matches!(c, '\x08'..='\x0d' | '\x1b');
                prop_assert!(!control, "{c:?}");
            }
            for start in [&b"\x1b]"[..], b"\x1bP", b"\x1b_", b"\x1b^", b"\x1bX", b"\x1b[>", b"\x1b[="] {
                prop_assert!(!whole.windows(start.len()).any(|window| window == start));
            }
            let size = |n| std::num::NonZeroU16::new(n).unwrap();
            let mut parser = vt100::Parser::new_with_callbacks(size(24), size(80), 0, Violations::default());
            parser.process(&whole);
            prop_assert!(parser.callbacks().bad.is_empty(), "{:?}", parser.callbacks().bad);
            // The split does not matter, and filtering twice changes nothing.
            let (mut filter, mut pieces, mut rest) = (Filter::new(policy), Vec::new(), &bytes[..]);
            for cut in cuts.clone() {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                let piece = filter.pass(now);
                prop_assert!(std::str::from_utf8(&piece).is_ok());
                pieces.extend(piece);
                rest = later;
            }
            pieces.extend(filter.pass(rest));
            prop_assert_eq!(&pieces, &whole);
            prop_assert_eq!(Filter::new(policy).pass(&whole), whole);
        }
    }

    #[test]
    fn pending_bytes_are_bounded(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut filter = Filter::new(FilterPolicy::Output);
        for start in [&b"\x1b]"[..], b"\x1bP", b"\x1b["] {
            filter.pass(start);
            filter.pass(&bytes.repeat(3));
            prop_assert!(filter.pending.len() <= MAX_SEQUENCE_BYTES + 1);
        }
    }
}
