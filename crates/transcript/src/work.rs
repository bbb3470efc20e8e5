//! What an agent did between two turns: commands that it ran, files that it edited, and calls that
//! failed. It is no turn, but the turn before it can be found by it.

/// How many items one turn has.
const MAX_ITEMS: usize = 256;
/// How many bytes of a command or of an error message are kept.
const MAX_ITEM_BYTES: usize = 4 << 10;

/// One step of an agent's work, as its transcript records it. Secrets are not masked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkItem {
    /// A shell command.
    Command(String),
    /// The path of a file that was changed.
    Edit(String),
    /// The output of a call that failed.
    Failure(String),
}

impl WorkItem {
    pub(crate) fn command(text: &str) -> Option<WorkItem> {
        kept(text).map(WorkItem::Command)
    }

    pub(crate) fn edit(path: &str) -> Option<WorkItem> {
        kept(path).map(WorkItem::Edit)
    }

    pub(crate) fn failure(output: &str) -> Option<WorkItem> {
        kept(output).map(WorkItem::Failure)
    }
}

/// Returns the files that a patch in the format of `apply_patch` changes.
pub(crate) fn patched_files(patch: &str) -> impl Iterator<Item = WorkItem> + '_ {
    let path = |line: &str| {
        let action = line.trim().strip_prefix("*** ")?;
        let path = ["Update File: ", "Add File: ", "Delete File: ", "Move to: "]
            .iter()
            .find_map(|prefix| action.strip_prefix(prefix))?;
        WorkItem::edit(path)
    };
    patch.lines().filter_map(path)
}

/// Adds items to a turn's work, up to the limit.
pub(crate) fn add_work(work: &mut Vec<WorkItem>, items: impl IntoIterator<Item = WorkItem>) {
    let room = MAX_ITEMS.saturating_sub(work.len());
    work.extend(items.into_iter().take(room));
}

/// Returns the beginning of a text. A longer text ends with a complete line if it has one, so that no
/// secret is cut in two.
fn kept(text: &str) -> Option<String> {
    let text = text.trim();
    let end = (0..=MAX_ITEM_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    let mut beginning = &text[..end.unwrap_or_default()];
    if beginning.len() < text.len() {
        beginning = beginning.rsplit_once('\n').map_or(beginning, |(lines, _)| lines);
    }
    (!beginning.is_empty()).then(|| beginning.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_items_end_with_a_complete_line() {
        let long = format!("one\ntwo {}", "x".repeat(MAX_ITEM_BYTES));
        assert_eq!(WorkItem::command(&long), Some(WorkItem::Command("one".to_owned())));
        assert_eq!(WorkItem::failure(" \n "), None);
        let endless = "é".repeat(MAX_ITEM_BYTES);
        assert!(
            matches!(WorkItem::edit(&endless), Some(WorkItem::Edit(path)) if path.len() <= MAX_ITEM_BYTES)
        );
        let mut work = Vec::new();
        add_work(&mut work, vec![WorkItem::Edit("a".to_owned()); MAX_ITEMS + 1]);
        assert_eq!(work.len(), MAX_ITEMS);
    }

    #[test]
    fn patches_name_their_files() {
        let patch = "*** Begin Patch\n*** Update File: src/a.rs\n@@\n-x\n+*** y\n*** Add File: b.md\n+z\n*** End Patch";
        let files: Vec<WorkItem> = patched_files(patch).collect();
        assert_eq!(files, ["src/a.rs", "b.md"].map(|path| WorkItem::Edit(path.to_owned())));
    }
}
