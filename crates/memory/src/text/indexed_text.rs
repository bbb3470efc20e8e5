/// Returns the text under which a turn is indexed: its own, and that of its cue.
pub fn indexed_text(text: &str, cue: Option<&str>) -> String {
    match cue {
        Some(cue) => format!("{text}\n{cue}"),
        None => text.to_owned(),
    }
}
