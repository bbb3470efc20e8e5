//! What a running agent writes: lines of a protocol, and bytes of a terminal.

use hob_agents::app_permits::AppPermits;
use hob_agents::claude::screen;
use hob_agents::json_lines::{self, LineReader};
use hob_gateway::acp_protocol;
use hob_sessions::session::event_text::{TerminalRenderer, tool_title};
use hob_sessions::session::{text_of, update_of};
use hob_terminal::{Filter, FilterPolicy, MAX_SCROLLBACK_LINES, ScreenModel, Size};
use hob_transcript::claude::stream_json;
use serde_json::{Value, json};

use crate::connections::block_on;

/// The longest summary of a screen, in characters.
const MAX_SUMMARY_CHARS: usize = 600;

/// Reads the lines of an agent that speaks ACP.
pub fn acp_lines(bytes: &[u8]) {
    let lines = block_on(async {
        let mut reader = LineReader::new(bytes, AppPermits::new(2).of("app"));
        let mut lines = Vec::new();
        while let Ok(Some(line)) = reader.next().await {
            lines.push(line.text);
        }
        lines
    });
    let mut renderer = TerminalRenderer::default();
    for line in &lines {
        let again = json_lines::parse(line).expect("a line is read alike twice");
        assert_eq!(again.text, *line);
        json_lines::method(line);
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        tool_title(update_of(&message));
        if let Some(update) = acp_protocol::own_update("session", &message) {
            assert_eq!(update["sessionId"], "session");
        }
        let shown = renderer.next(&json!({"event": "message", "message": message}));
        check_drawing(&shown);
        check_drawing(&renderer.next(&message));
    }
    assert!(text_of(&lines).len() <= bytes.len());
}

/// A text for a terminal has no control characters of others, only Hob's own colours.
fn check_drawing(text: &str) {
    let passed = Filter::new(FilterPolicy::OwnTerminal).pass(text.as_bytes());
    assert_eq!(passed, text.as_bytes(), "{text:?}");
}

/// Reads the records of `claude -p` in stream-json.
pub fn claude_stream(bytes: &[u8]) {
    for line in String::from_utf8_lossy(bytes).lines() {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        stream_json::belongs_to_turn(&record);
        let event = stream_json::parse(&record);
        assert_eq!(format!("{event:?}"), format!("{:?}", stream_json::parse(&record)));
    }
}

/// Filters the bytes of a terminal, and shows them.
pub fn terminal(bytes: &[u8]) {
    for policy in [FilterPolicy::Output, FilterPolicy::OwnTerminal] {
        let mut filter = Filter::new(policy);
        let passed = filter.pass(bytes);
        let marks = filter.marks().to_vec();
        assert!(std::str::from_utf8(&passed).is_ok(), "the output has whole characters only");
        assert!(marks.is_sorted_by_key(|(at, _)| at));
        assert!(marks.iter().all(|(at, _)| *at <= passed.len()));
        assert_eq!(Filter::new(policy).pass(&passed), passed, "what draws passes again");
        let (start, rest) = bytes.split_at(bytes.len() / 2);
        let mut parts = Filter::new(policy);
        let joined = [parts.pass(start), parts.pass(rest)].concat();
        assert_eq!(joined, passed, "a cut changes nothing");
    }
    Filter::new(FilterPolicy::Input).pass_all(bytes);

    let mut model = ScreenModel::new(Size { rows: 6, cols: 30 });
    model.feed(bytes);
    check_picture(&model.svg());
    let text = model.text();
    screen::view(&text);
    assert!(screen::summary(&text).chars().count() <= MAX_SUMMARY_CHARS);
    let mut viewer = ScreenModel::new(model.size());
    viewer.feed(&model.redraw(MAX_SCROLLBACK_LINES));
    assert_eq!(viewer.text(), text, "a viewer who joins sees the same screen");
    model.resize(Size { rows: 3, cols: 7 });
    model.feed(bytes);
    check_picture(&model.svg());
    // What nobody has drawn reaches the classification only through the screen, but any text must do.
    screen::view(&String::from_utf8_lossy(bytes));
}

/// A picture is XML: characters that XML does not have would make browsers refuse it.
fn check_picture(picture: &str) {
    let is_xml = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..);
    assert!(picture.chars().all(is_xml), "{picture:?}");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
}
