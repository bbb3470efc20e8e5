//! Inserts Hob's entries into the text of a settings file, and removes them.
//!
//! An edit inserts or deletes one stretch of text and never serialises the document again. To undo
//! an insertion exactly, the editor must know which of the lists and objects around an entry
//! existed before and were empty. It stores that in the white space, which needs no file of its
//! own:
//!
//! * a container that Hob created (an event's list, `hooks`, the whole document) has white space
//!   before its closing bracket;
//! * a container that existed and was empty keeps its own white space *before* Hob's entry, and has
//!   none between the entry and its closing bracket;
//! * a file that existed but was blank gets a document that ends in ` }` on one line.
//!
//! If another program formats the file in between, the worst result is that an empty list or object
//! goes or stays.
//!
//! Why this is not done with a library: `jsonc-parser` 0.34 (feature `cst`) keeps comments and
//! white space, but its parser is recursive and refuses a document that is nested deeper than 512
//! levels, a limit that its options cannot change. Hob edits every settings file that is valid
//! JSON, whatever the other settings hold, and a test says so.

use std::ops::Range;
use std::rc::Rc;

use super::command::{self, HobCommand};
use super::hook_spec::{HookSpec, is_event, json_string};
use super::json_scan::{self, Container};
use super::render::Layout;

/// An entry of Hob, as found in a document.
#[derive(Debug, Clone)]
pub struct HookEntry {
    pub event: String,
    pub group_index: usize,
    pub handler_index: usize,
    pub command: HobCommand,
    /// The whole command, as the client runs it.
    pub command_line: String,
    matcher: Option<String>,
    command_range: Range<usize>,
    /// The containers around the entry, outermost first, each with the index of the entry in it:
    /// the document, `hooks`, the event's list, and the list of handlers in the group.
    path: [(Rc<Container>, usize); 4],
}

impl HookEntry {
    /// Returns whether no matcher restricts the entry to some occasions of its event.
    pub fn matches_everything(&self) -> bool {
        matches!(self.matcher.as_deref(), None | Some("\"\"" | "\"*\""))
    }
}

/// Why a document cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("the file is not valid JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("{what} is not {expected}")]
    Shape { what: String, expected: &'static str },
    #[error("{what} occurs more than once; remove all but one")]
    Repeated { what: String },
    #[error("hob's edit would make the file invalid ({0}); this is a bug in hob, please report it")]
    Internal(serde_json::Error),
}

/// Returns the document with all hooks in it. `None` is a file that does not exist.
///
/// An entry that runs another `hob` is changed to run this one; it keeps its position, its timeout
/// and its options. A duplicate entry is removed.
pub fn install(text: Option<&str>, specs: &[HookSpec], hob: &str) -> Result<String, EditError> {
    let Some(before) = text else { return checked(Layout::default().document(specs, hob)) };
    if json_scan::is_blank(before) {
        let layout = Layout::at(before, before.len(), None);
        return checked(format!("{before}{}", layout.document_in_blank_file(specs, hob)));
    }
    let mut text = before.to_owned();
    let has_spec = |entry: &HookEntry| specs.iter().any(|spec| matches(entry, spec));
    // From the last to the first, so that the offsets of earlier entries stay valid.
    for entry in survey(Some(&text))?.iter().rev() {
        if has_spec(entry) && entry.command.program != hob {
            let command = format!("{}{}", command::quoted(hob), entry.command.rest);
            text.replace_range(entry.command_range.clone(), &json_string(&command));
        }
    }
    while let Some(entry) = last_duplicate(survey(Some(&text))?.as_slice(), has_spec) {
        let Some(shorter) = remove(&text, entry) else { break };
        text = shorter;
    }
    let entries = survey(Some(&text))?;
    let missing: Vec<HookSpec> = specs
        .iter()
        .filter(|spec| !entries.iter().any(|entry| matches(entry, spec)))
        .copied()
        .collect();
    checked(append_all(text, &missing, hob)?)
}

/// Returns the document without Hob's entries, or `None` if the file is then no longer needed.
pub fn uninstall(text: Option<&str>) -> Result<Option<String>, EditError> {
    let Some(before) = text else { return Ok(None) };
    let mut text = before.to_owned();
    while let Some(entry) = survey(Some(&text))?.last() {
        match remove(&text, entry) {
            Some(shorter) => text = shorter,
            None => return Ok(None),
        }
    }
    if text == before || json_scan::is_blank(&text) {
        return Ok(Some(text));
    }
    checked(text).map(Some)
}

/// Returns all entries of Hob, in the order of the document.
pub fn survey(text: Option<&str>) -> Result<Vec<HookEntry>, EditError> {
    let Some(text) = text.filter(|text| !json_scan::is_blank(text)) else { return Ok(Vec::new()) };
    json_scan::validate(text).map_err(EditError::NotJson)?;
    let root = root(text)?;
    let Some((hooks_index, hooks)) = hooks_of(text, &root)? else { return Ok(Vec::new()) };
    let (root, hooks) = (Rc::new(root), Rc::new(hooks));
    let mut entries = Vec::new();
    for (event_index, member) in hooks.items.iter().enumerate() {
        let Some(event) = member.key.clone().and_then(|key| json_scan::string(text, key)) else {
            continue;
        };
        let list = json_scan::list(text, member.value.start).map(Rc::new);
        let Some(list) = list else { continue };
        for (group_index, group_item) in list.items.iter().enumerate() {
            let Some(group) = json_scan::object(text, group_item.value.start) else { continue };
            let Some(at) = only(text, &group, "hooks", || format!("`hooks` in `{event}`"))? else {
                continue;
            };
            let handlers = json_scan::list(text, group.items[at].value.start).map(Rc::new);
            let Some(handlers) = handlers else { continue };
            let matcher = only(text, &group, "matcher", || format!("`matcher` in `{event}`"))?;
            for (handler_index, handler) in handlers.items.iter().enumerate() {
                let Some((command, command_range)) = our_command(text, handler, &event)? else {
                    continue;
                };
                let command_line =
                    json_scan::string(text, command_range.clone()).unwrap_or_default();
                entries.push(HookEntry {
                    event: event.clone(),
                    group_index,
                    handler_index,
                    command,
                    command_line,
                    matcher: matcher.map(|at| text[group.items[at].value.clone()].to_owned()),
                    command_range,
                    path: [
                        (root.clone(), hooks_index),
                        (hooks.clone(), event_index),
                        (list.clone(), group_index),
                        (handlers.clone(), handler_index),
                    ],
                });
            }
        }
    }
    Ok(entries)
}

/// Returns whether an entry is the hook that the specification describes.
pub fn matches(entry: &HookEntry, spec: &HookSpec) -> bool {
    entry.event == spec.event && entry.command.subcommand == spec.subcommand
}

fn our_command(
    text: &str,
    handler: &json_scan::JsonItem,
    event: &str,
) -> Result<Option<(HobCommand, Range<usize>)>, EditError> {
    let Some(handler) = json_scan::object(text, handler.value.start) else { return Ok(None) };
    let found = only(text, &handler, "command", || format!("`command` in `{event}`"))?;
    let place = found.map(|at| handler.items[at].value.clone());
    Ok(place.and_then(|place| {
        let command = command::recognise(&json_scan::string(text, place.clone())?)?;
        Some((command, place))
    }))
}

/// Returns the last entry that repeats an earlier one. Entries with different matchers are
/// different.
fn last_duplicate(
    entries: &[HookEntry],
    has_spec: impl Fn(&HookEntry) -> bool,
) -> Option<&HookEntry> {
    let is_equal = |one: &HookEntry, other: &HookEntry| {
        one.event == other.event && one.command == other.command && one.matcher == other.matcher
    };
    (0..entries.len()).rev().map(|at| (at, &entries[at])).find_map(|(at, entry)| {
        let is_repeated = entries[..at].iter().any(|earlier| is_equal(earlier, entry));
        (is_repeated && has_spec(entry)).then_some(entry)
    })
}

/// Removes one entry, and the containers that were created for it. Returns `None` if nothing is
/// left.
fn remove(text: &str, entry: &HookEntry) -> Option<String> {
    let [(root, hooks_at), (hooks, event_at), (list, group_at), (handlers, handler_at)] =
        &entry.path;
    if handlers.items.len() > 1 {
        return Some(cut(text, handlers, *handler_at));
    }
    for (container, at) in [(list, group_at), (hooks, event_at), (root, hooks_at)] {
        if container.items.len() > 1 {
            return Some(cut(text, container, *at));
        }
        if !is_created_by_hob(text, container) {
            let item = &container.items[*at];
            return Some(spliced(text, item.start()..item.end(), ""));
        }
    }
    // Only the document of a file that was blank before ends in a single space.
    (json_scan::blanks_before(text, root.close) == " ")
        .then(|| spliced(text, root.open..root.close + 1, ""))
}

/// Returns whether Hob created a container that holds only its own entry; see the module's comment.
fn is_created_by_hob(text: &str, container: &Container) -> bool {
    let content = &text[container.open + 1..container.close];
    // Hob writes a space after each colon. A file without any was minified since, and its white
    // space says nothing.
    !json_scan::blanks_before(text, container.close).is_empty() || !content.contains("\": ")
}

/// Deletes one of several items, together with one comma.
fn cut(text: &str, container: &Container, at: usize) -> String {
    let items = &container.items;
    let place = match at.checked_sub(1) {
        Some(previous) => items[previous].end()..items[at].end(),
        None => items[at].start()..items[at + 1].start(),
    };
    spliced(text, place, "")
}

fn append_all(mut text: String, missing: &[HookSpec], hob: &str) -> Result<String, EditError> {
    if missing.is_empty() {
        return Ok(text);
    }
    let root_object = root(&text)?;
    if hooks_of(&text, &root_object)?.is_none() {
        return Ok(append(&text, &root_object, |layout| layout.hooks(missing, hob)));
    }
    for spec in missing {
        let Some((_, hooks)) = hooks_of(&text, &root(&text)?)? else { break };
        let list = match hooks.members(&text, spec.event).first() {
            Some(&at) => json_scan::list(&text, hooks.items[at].value.start),
            None => None,
        };
        text = match list {
            Some(list) => append(&text, &list, |layout| layout.group(spec, hob)),
            None => append(&text, &hooks, |layout| layout.event(spec, hob)),
        };
    }
    Ok(text)
}

/// Appends an item to a container, formatted like the item before it.
fn append(text: &str, container: &Container, item: impl Fn(&Layout) -> String) -> String {
    match container.items.last() {
        Some(last) => {
            let gap = json_scan::blanks_before(text, last.start());
            let gap = if gap.is_empty() { " " } else { gap };
            let layout = Layout::at(text, last.start(), Some(container));
            spliced(text, last.end()..last.end(), &format!(",{gap}{}", item(&layout)))
        }
        None => {
            let layout = Layout::at(text, container.close, None);
            spliced(text, container.close..container.close, &item(&layout))
        }
    }
}

fn root(text: &str) -> Result<Container, EditError> {
    let wrong = || EditError::Shape { what: "the document".to_owned(), expected: "an object" };
    json_scan::root(text).ok_or_else(wrong)
}

/// Returns the member `hooks` and its index, after checking the lists into which Hob's entries go.
fn hooks_of(text: &str, root: &Container) -> Result<Option<(usize, Container)>, EditError> {
    let Some(at) = only(text, root, "hooks", || "`hooks`".to_owned())? else { return Ok(None) };
    let wrong = |what: &str, expected| EditError::Shape { what: what.to_owned(), expected };
    let hooks = json_scan::object(text, root.items[at].value.start)
        .ok_or_else(|| wrong("`hooks`", "an object"))?;
    for member in &hooks.items {
        let name = member.key.clone().and_then(|key| json_scan::string(text, key));
        let Some(event) = name.filter(|name| is_event(name)) else { continue };
        let what = || format!("`{event}` in `hooks`");
        only(text, &hooks, &event, what)?;
        json_scan::list(text, member.value.start).ok_or_else(|| wrong(&what(), "a list"))?;
    }
    Ok(Some((at, hooks)))
}

fn only(
    text: &str,
    container: &Container,
    name: &str,
    what: impl Fn() -> String,
) -> Result<Option<usize>, EditError> {
    match container.members(text, name).as_slice() {
        [] => Ok(None),
        [at] => Ok(Some(*at)),
        _ => Err(EditError::Repeated { what: what() }),
    }
}

/// Checks that an edited document is still valid JSON.
fn checked(text: String) -> Result<String, EditError> {
    json_scan::validate(&text).map_err(EditError::Internal)?;
    Ok(text)
}

fn spliced(text: &str, place: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..place.start], &text[place.end..])
}
