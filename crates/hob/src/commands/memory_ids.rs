//! Shortened ids of records and sessions of the memory.

use hob_domain::memory::{Principal, Record};
use serde_json::json;

use crate::memory;
use crate::settings::Resolved;

/// The length of a whole record id, in characters.
const RECORD_ID_CHARS: usize = 24;
/// How many records are read from the store at a time.
const PAGE_RECORDS: usize = 500;

/// Returns the one record id that begins with `text`; without one, `text` itself, so that the caller can say that nothing
/// has this id.
pub fn record_id(settings: &Resolved, text: &str) -> anyhow::Result<String> {
    if text.chars().count() >= RECORD_ID_CHARS {
        return Ok(text.to_owned());
    }
    find(settings, text, "record", |record| record.id.as_str())
}

/// Returns the session id of the memory that is `text`, or else the one that begins with it, or else `text` itself.
pub fn session_id(settings: &Resolved, text: &str) -> anyhow::Result<String> {
    let arguments = json!({"session_id": text, "limit": 1});
    let is_whole = match memory::call_tool(settings, "memory_timeline", arguments)? {
        Ok(answer) => answer["turns"].as_array().is_some_and(|turns| !turns.is_empty()),
        Err(reason) => anyhow::bail!("{reason}"),
    };
    match is_whole {
        true => Ok(text.to_owned()),
        false => find(settings, text, "session", |record| &record.session),
    }
}

/// Goes through the owner's memory. Stores keep ids as hashes or in no order of their own, so none of them can look up a
/// prefix.
fn find(
    settings: &Resolved,
    text: &str,
    what: &str,
    id: impl Fn(&Record) -> &str,
) -> anyhow::Result<String> {
    let mut found: Vec<String> = Vec::new();
    // An agent does not see the owner's memory as a whole.
    if !text.is_empty() && memory::exists(settings) && !settings.home.is_inside_agent() {
        memory::runtime()?.block_on(async {
            let tools = memory::open(settings, memory::STORE_BUSY_TIMEOUT).await?;
            let mut after = 0;
            loop {
                let page = tools.engine.page(&Principal::Owner, after, PAGE_RECORDS).await?;
                let Some(last) = page.last() else { return anyhow::Ok(()) };
                after = last.seq;
                for id in page.iter().map(&id).filter(|id| id.starts_with(text)) {
                    if !found.iter().any(|known| known == id) {
                        found.push(id.to_owned());
                    }
                }
            }
        })?;
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Ok(text.to_owned()),
        count => {
            anyhow::bail!("{count} {what}s have IDs that begin with {text}; type more characters")
        }
    }
}
