//! Arguments of tools that are a date or a time.

use hob_domain::Timestamp;

/// The end of a day that a date without a time stands for.
#[derive(Clone, Copy)]
pub enum DayEdge {
    Start,
    End,
}

/// Reads a time, or a date, which stands for one end of the day. Returns `None` for any other text.
pub fn parse_time(text: &str, edge: DayEdge) -> Option<Timestamp> {
    let time_of_day = match edge {
        DayEdge::Start => "00:00:00Z",
        DayEdge::End => "23:59:59.999999Z",
    };
    text.parse().or_else(|_| format!("{text}T{time_of_day}").parse()).ok()
}

/// Reads an argument, if there is one. The error names the argument and says what is expected.
pub(crate) fn time_argument(
    name: &str,
    text: Option<&str>,
    edge: DayEdge,
) -> Result<Option<Timestamp>, String> {
    let Some(text) = text else { return Ok(None) };
    let parsed = parse_time(text, edge).ok_or_else(|| {
        format!(
            "{name}: {text:?} is neither a date nor a time; use a form such as 2026-05-01T00:00:00Z"
        )
    })?;
    Ok(Some(parsed))
}
