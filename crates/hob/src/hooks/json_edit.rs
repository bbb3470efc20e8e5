//! Puts our entries into the text of a settings file, and takes them out again.
//!
//! Nothing is ever serialised again: an edit inserts or deletes one stretch of text. To undo an
//! insertion exactly, one has to know which of the lists and objects around our entries were there
//! before and were empty. That is written into the white space, where it survives without a file
//! of its own:
//!
//! * what we create (an event's list, `hooks`, the whole document) has white space before its
//!   closing bracket;
//! * what was there and was empty keeps its own white space *before* our entry, and has none
//!   between our entry and its closing bracket;
//! * a file that was there but blank gets a document of ours that ends in ` }` on one line.
//!
//! If somebody formats the file in between, the worst that happens is that an empty list or object
//! goes or stays.

use std::ops::Range;
use std::rc::Rc;

use super::command::{self, HobCommand};
use super::json_scan::{self, Container};
use super::render::Layout;
use super::wanted::{EVENTS, Wanted, json_string};

/// An entry of ours as found in a document.
#[derive(Debug, Clone)]
pub struct Entry {
    pub event: String,
    pub group_index: usize,
    pub handler_index: usize,
    pub command: HobCommand,
    matcher: Option<String>,
    command_place: Range<usize>,
    /// The containers around the entry, the outermost first, each with our position in it: the
    /// document, `hooks`, the event's list, and the list of handlers in the group.
    path: [(Rc<Container>, usize); 4],
}

/// Why a document is not edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("it is not valid JSON: {0}")]
    NotJson(serde_json::Error),
    #[error("{what} is not {expected}")]
    Shape { what: String, expected: &'static str },
    #[error("{what} occurs more than once, so it is not clear which one counts")]
    Repeated { what: String },
    #[error("the edit did not give valid JSON, which is a fault in hob: {0}")]
    Internal(serde_json::Error),
}

/// The document with all wanted hooks in it; `None` stands for a file that does not exist.
///
/// An entry that runs another `hob` is pointed to this one and keeps its place, its timeout and
/// its options. A second entry that would do the same again is taken out.
pub fn install(text: Option<&str>, wanted: &[Wanted], hob: &str) -> Result<String, EditError> {
    let Some(before) = text else { return checked(Layout::default().document(wanted, hob)) };
    if json_scan::is_blank(before) {
        let layout = Layout::at(before, before.len(), None);
        return checked(format!("{before}{}", layout.document_in_blank_file(wanted, hob)));
    }
    let mut text = before.to_owned();
    let is_wanted = |entry: &Entry| {
        wanted.iter().any(|wanted| {
            wanted.event == entry.event && wanted.subcommand == entry.command.subcommand
        })
    };
    // From the last to the first, so that the places found earlier stay right.
    for entry in survey(Some(&text))?.iter().rev() {
        if is_wanted(entry) && entry.command.program != hob {
            let command = format!("{}{}", command::quoted(hob), entry.command.rest);
            text.replace_range(entry.command_place.clone(), &json_string(&command));
        }
    }
    while let Some(entry) = last_repetition(survey(Some(&text))?.as_slice(), is_wanted) {
        let Some(shorter) = remove(&text, entry) else { break };
        text = shorter;
    }
    let entries = survey(Some(&text))?;
    let missing: Vec<Wanted> = wanted
        .iter()
        .filter(|wanted| !entries.iter().any(|entry| serves(entry, wanted)))
        .copied()
        .collect();
    checked(append_all(text, &missing, hob)?)
}

/// The document without any entry of ours; `None` when the file then need not exist.
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

/// All entries of ours, in the order of the document.
pub fn survey(text: Option<&str>) -> Result<Vec<Entry>, EditError> {
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
                let Some((command, command_place)) = our_command(text, handler, &event)? else {
                    continue;
                };
                entries.push(Entry {
                    event: event.clone(),
                    group_index,
                    handler_index,
                    command,
                    matcher: matcher.map(|at| text[group.items[at].value.clone()].to_owned()),
                    command_place,
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

/// Whether an entry is the one that is wanted.
pub fn serves(entry: &Entry, wanted: &Wanted) -> bool {
    entry.event == wanted.event && entry.command.subcommand == wanted.subcommand
}

fn our_command(
    text: &str,
    handler: &json_scan::Item,
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

/// The last entry that does again what an earlier one does; another matcher is another purpose.
fn last_repetition(entries: &[Entry], is_wanted: impl Fn(&Entry) -> bool) -> Option<&Entry> {
    let does_the_same = |one: &Entry, other: &Entry| {
        one.event == other.event && one.command == other.command && one.matcher == other.matcher
    };
    (0..entries.len()).rev().map(|at| (at, &entries[at])).find_map(|(at, entry)| {
        let is_repeated = entries[..at].iter().any(|earlier| does_the_same(earlier, entry));
        (is_repeated && is_wanted(entry)).then_some(entry)
    })
}

/// Takes one entry out, together with all that was only made for it.
fn remove(text: &str, entry: &Entry) -> Option<String> {
    let [(root, hooks_at), (hooks, event_at), (list, group_at), (handlers, handler_at)] =
        &entry.path;
    if handlers.items.len() > 1 {
        return Some(cut(text, handlers, *handler_at));
    }
    for (container, at) in [(list, group_at), (hooks, event_at), (root, hooks_at)] {
        if container.items.len() > 1 {
            return Some(cut(text, container, *at));
        }
        if !is_made_by_us(text, container) {
            let item = &container.items[*at];
            return Some(spliced(text, item.start()..item.end(), ""));
        }
    }
    // Only a document that stands in a file that was blank before ends in a single blank.
    (json_scan::blanks_before(text, root.close) == " ")
        .then(|| spliced(text, root.open..root.close + 1, ""))
}

/// Whether a container that holds nothing but ours was made for that; see the module's comment.
fn is_made_by_us(text: &str, container: &Container) -> bool {
    let content = &text[container.open + 1..container.close];
    // All that we write has a blank after each colon, so a file without any was minified since,
    // and its white space says nothing.
    !json_scan::blanks_before(text, container.close).is_empty() || !content.contains("\": ")
}

/// Deletes one of several items, with the comma that then is one too many.
fn cut(text: &str, container: &Container, at: usize) -> String {
    let items = &container.items;
    let place = match at.checked_sub(1) {
        Some(previous) => items[previous].end()..items[at].end(),
        None => items[at].start()..items[at + 1].start(),
    };
    spliced(text, place, "")
}

fn append_all(mut text: String, missing: &[Wanted], hob: &str) -> Result<String, EditError> {
    if missing.is_empty() {
        return Ok(text);
    }
    let root_object = root(&text)?;
    if hooks_of(&text, &root_object)?.is_none() {
        return Ok(append(&text, &root_object, |layout| layout.hooks(missing, hob)));
    }
    for wanted in missing {
        let Some((_, hooks)) = hooks_of(&text, &root(&text)?)? else { break };
        let list = match hooks.members(&text, wanted.event).first() {
            Some(&at) => json_scan::list(&text, hooks.items[at].value.start),
            None => None,
        };
        text = match list {
            Some(list) => append(&text, &list, |layout| layout.group(wanted, hob)),
            None => append(&text, &hooks, |layout| layout.event(wanted, hob)),
        };
    }
    Ok(text)
}

/// Puts one more item at the end of a container, in the manner of the item before it.
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

/// The member `hooks` with its position; the lists in which we put our entries are checked.
fn hooks_of(text: &str, root: &Container) -> Result<Option<(usize, Container)>, EditError> {
    let Some(at) = only(text, root, "hooks", || "`hooks`".to_owned())? else { return Ok(None) };
    let wrong = |what: &str, expected| EditError::Shape { what: what.to_owned(), expected };
    let hooks = json_scan::object(text, root.items[at].value.start)
        .ok_or_else(|| wrong("`hooks`", "an object"))?;
    for event in EVENTS {
        let what = || format!("`{event}` in `hooks`");
        if let Some(at) = only(text, &hooks, event, what)? {
            json_scan::list(text, hooks.items[at].value.start)
                .ok_or_else(|| wrong(&what(), "a list"))?;
        }
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

/// The last line of defence: what we are about to write must be JSON.
fn checked(text: String) -> Result<String, EditError> {
    json_scan::validate(&text).map_err(EditError::Internal)?;
    Ok(text)
}

fn spliced(text: &str, place: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..place.start], &text[place.end..])
}
