//! A picture of a screen: SVG without scripts and without external resources.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

/// The size of a cell, the baseline within it, and the margin around the screen, in pixels.
const WIDTH: f32 = 8.4;
const HEIGHT: f32 = 18.0;
const BASELINE: f32 = 13.5;
const MARGIN: f32 = 14.0;
const FONT: &str = "ui-monospace,SFMono-Regular,Menlo,'DejaVu Sans Mono',Consolas,monospace";
const BACKGROUND: Rgb = Rgb(0x16, 0x18, 0x1d);
const FOREGROUND: Rgb = Rgb(0xd7, 0xda, 0xe0);
/// The sixteen named colours.
const NAMED: [Rgb; 16] = [
    Rgb(0x3a, 0x3f, 0x4b),
    Rgb(0xe0, 0x6c, 0x75),
    Rgb(0x98, 0xc3, 0x79),
    Rgb(0xe5, 0xc0, 0x7b),
    Rgb(0x61, 0xaf, 0xef),
    Rgb(0xc6, 0x78, 0xdd),
    Rgb(0x56, 0xb6, 0xc2),
    Rgb(0xc8, 0xcc, 0xd4),
    Rgb(0x7f, 0x84, 0x8e),
    Rgb(0xf0, 0x8f, 0x96),
    Rgb(0xb5, 0xd7, 0x9b),
    Rgb(0xf0, 0xd3, 0x9a),
    Rgb(0x8a, 0xc4, 0xf5),
    Rgb(0xd7, 0x9b, 0xe8),
    Rgb(0x7f, 0xcc, 0xd6),
    Rgb(0xff, 0xff, 0xff),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rgb(u8, u8, u8);

/// The style of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellStyle {
    front: Rgb,
    back: Rgb,
    bold: bool,
    dim: bool,
    italic: bool,
    underline: bool,
}

/// Neighbouring cells of one style.
struct StyledRun {
    col: u16,
    cells: u16,
    text: String,
    look: CellStyle,
}

impl StyledRun {
    fn fits(&self, plain: bool, look: CellStyle) -> bool {
        let all_narrow = usize::from(self.cells) == self.text.chars().count();
        self.look == look && all_narrow && self.text.is_ascii() == plain
    }
}

/// Draws a screen.
pub fn picture(screen: &Screen) -> String {
    let (rows, cols) = screen.size();
    let (rows, cols) = (rows.get(), cols.get());
    let width = f32::from(cols) * WIDTH + 2.0 * MARGIN;
    let height = f32::from(rows) * HEIGHT + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.1} {height:.1}\" font-family=\"{FONT}\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{}\"/>\n",
        BACKGROUND.hex()
    );
    for row in 0..rows {
        for run in runs(screen, row, cols) {
            draw(&mut svg, row, &run);
        }
    }
    if !screen.hide_cursor() {
        let (row, col) = screen.cursor_position();
        let (x, y) =
            (MARGIN + f32::from(col.min(cols - 1)) * WIDTH, MARGIN + f32::from(row) * HEIGHT);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"{}\" \
             fill-opacity=\"0.45\"/>",
            FOREGROUND.hex()
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn runs(screen: &Screen, row: u16, cols: u16) -> Vec<StyledRun> {
    let mut runs: Vec<StyledRun> = Vec::new();
    for col in 0..cols {
        let Some(cell) = screen.cell(row, col) else { continue };
        if cell.is_wide_continuation() {
            continue;
        }
        let look = CellStyle::of(cell);
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let cells = if cell.is_wide() { 2 } else { 1 };
        // A character that may be wider or narrower than its cell is drawn alone, so that nothing else moves.
        let plain = text.is_ascii();
        match runs.last_mut() {
            Some(run) if !cell.is_wide() && run.fits(plain, look) => {
                run.text.push_str(text);
                run.cells += cells;
            }
            _ => runs.push(StyledRun { col, cells, text: text.to_owned(), look }),
        }
    }
    runs
}

fn draw(svg: &mut String, row: u16, run: &StyledRun) {
    let (x, y) = (MARGIN + f32::from(run.col) * WIDTH, MARGIN + f32::from(row) * HEIGHT);
    let width = f32::from(run.cells) * WIDTH;
    if run.look.back != BACKGROUND {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
            run.look.back.hex()
        );
    }
    let text = run.text.trim_end();
    if text.is_empty() && !run.look.underline {
        return;
    }
    let shown = if run.look.underline { run.text.as_str() } else { text };
    let length = shown.chars().count() as f32 * WIDTH;
    // Lines and boxes must touch; letters keep their shape.
    let length = if shown.is_ascii() { length } else { width };
    let mut attributes = String::new();
    if run.look.bold {
        attributes.push_str(" font-weight=\"700\"");
    }
    if run.look.italic {
        attributes.push_str(" font-style=\"italic\"");
    }
    if run.look.underline {
        attributes.push_str(" text-decoration=\"underline\"");
    }
    if run.look.dim {
        attributes.push_str(" fill-opacity=\"0.6\"");
    }
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{:.1}\" xml:space=\"preserve\" textLength=\"{length:.1}\" \
         lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{attributes}>{}</text>",
        y + BASELINE,
        run.look.front.hex(),
        escaped(shown)
    );
}

impl CellStyle {
    fn of(cell: &Cell) -> CellStyle {
        let (mut front, mut back) = (
            colour(cell.fgcolor(), FOREGROUND, cell.bold()),
            colour(cell.bgcolor(), BACKGROUND, false),
        );
        if cell.inverse() {
            (front, back) = (back, front);
        }
        CellStyle {
            front,
            back,
            bold: cell.bold(),
            dim: cell.dim(),
            italic: cell.italic(),
            underline: cell.underline(),
        }
    }
}

fn colour(colour: Color, default: Rgb, bright: bool) -> Rgb {
    match colour {
        Color::Default => default,
        Color::Rgb(r, g, b) => Rgb(r, g, b),
        Color::Idx(n @ 0..=7) if bright => NAMED[usize::from(n) + 8],
        Color::Idx(n @ 0..=15) => NAMED[usize::from(n)],
        Color::Idx(n @ 16..=231) => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let n = n - 16;
            Rgb(level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        Color::Idx(n) => {
            let grey = 8 + 10 * (n - 232);
            Rgb(grey, grey, grey)
        }
    }
}

impl Rgb {
    fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// Escapes text for XML. Characters that XML does not allow are left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => {}
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use hob_child::Size;
    use proptest::prelude::*;

    fn svg(bytes: &[u8]) -> String {
        let mut model = super::super::model::ScreenModel::new(Size { rows: 4, cols: 40 });
        model.feed(bytes);
        model.svg()
    }

    #[test]
    fn colours_and_styles() {
        let picture = svg(
            b"\x1b[1;31mred\x1b[m \x1b[7minverse\x1b[m \x1b[48;5;196m \x1b[m\x1b[38;2;1;2;3mx\x1b[m\
              \x1b[2mdim\x1b[m\x1b[3mitalic\x1b[m\x1b[4mline",
        );
        for part in [
            "font-weight=\"700\">red<",
            "fill=\"#f08f96\"",
            "fill=\"#16181d\">inverse<",
            "fill=\"#ff0000\"/>",
            "fill=\"#010203\">x<",
            "fill-opacity=\"0.6\">dim<",
            "font-style=\"italic\">italic<",
            "text-decoration=\"underline\">line<",
        ] {
            assert!(picture.contains(part), "{part} is not in {picture}");
        }
        assert_eq!(picture.matches("fill-opacity=\"0.45\"").count(), 1, "the cursor");
        assert!(!svg(b"\x1b[?25l").contains("0.45"));
        assert!(svg("漢字".as_bytes()).contains("textLength=\"16.8\""));
    }

    #[test]
    fn text_is_escaped() {
        let picture = svg(b"<script>alert('1')</script>&\"");
        assert!(picture.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;&amp;&quot;"));
        assert!(!picture.contains("<script"));
    }

    proptest! {
        /// The picture is well-formed for any output: it contains only known tags.
        #[test]
        fn output_cannot_inject_tags(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,80}") {
            let picture = svg(&[&bytes[..], text.as_bytes()].concat());
            let tags = picture.split('<').skip(1);
            for tag in tags {
                let ours = ["svg ", "rect ", "text ", "/text>", "/svg>"];
                prop_assert!(ours.iter().any(|start| tag.starts_with(start)), "{}", tag);
            }
            let controls = picture.chars().any(|c| c.is_control() && c != '\n');
            prop_assert!(!controls);
            let texts = picture.matches("<text ").count();
            prop_assert_eq!(texts, picture.matches("</text>").count());
        }
    }
}
