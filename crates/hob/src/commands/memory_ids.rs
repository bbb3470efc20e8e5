//! Shortened ids of records and sessions of the memory.

use hob_domain::memory::{Principal, Record};
use serde_json::json;

use crate::memory;
use crate::settings::Resolved;

/// The length of a whole record id, in characters.
const RECORD_ID_CHARS: usize = 24;
/// How many records are read from the store at a time.
const PAGE_RECORDS: usize = 500;

/// Which turns have the ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdsOf<'a> {
    /// The turns of the owner.
    Owner,
    /// The turns of the sessions of this app.
    App(&'a str),
    /// The owner's forgotten turns that can still be restored.
    Forgotten,
}

impl<'a> IdsOf<'a> {
    /// Returns the turns of an app, or the owner's without one.
    pub fn of(app: Option<&'a str>) -> IdsOf<'a> {
        app.map_or(IdsOf::Owner, IdsOf::App)
    }
}

/// What an id names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Named {
    Record,
    Session,
}

/// Returns the one record id that begins with `text`; without one, `text` itself, so that the caller can say that nothing
/// has this id.
pub fn record_id(settings: &Resolved, turns: IdsOf<'_>, text: &str) -> anyhow::Result<String> {
    if text.chars().count() >= RECORD_ID_CHARS {
        return Ok(text.to_owned());
    }
    find(settings, turns, text, Named::Record)
}

/// Returns the session id of the memory that is `text`, or else the one that begins with it, or else `text` itself.
pub fn session_id(settings: &Resolved, turns: IdsOf<'_>, text: &str) -> anyhow::Result<String> {
    let arguments = json!({"session_id": text, "limit": 1});
    let answer = match turns {
        IdsOf::Owner => memory::call_tool(settings, "memory_timeline", arguments)?,
        // Nothing but the list says whether one of these is whole, and an app's memory is read without a server, too.
        IdsOf::App(_) | IdsOf::Forgotten => return find(settings, turns, text, Named::Session),
    };
    let is_whole = match answer {
        Ok(answer) => answer["turns"].as_array().is_some_and(|turns| !turns.is_empty()),
        Err(reason) => anyhow::bail!("{reason}"),
    };
    match is_whole {
        true => Ok(text.to_owned()),
        false => find(settings, turns, text, Named::Session),
    }
}

/// Goes through the memory. Stores keep ids as hashes or in no order of their own, so none of them can look up a prefix.
fn find(settings: &Resolved, turns: IdsOf<'_>, text: &str, named: Named) -> anyhow::Result<String> {
    let mut found: Vec<String> = Vec::new();
    // An agent does not see the owner's memory as a whole.
    if !text.is_empty() && memory::exists(settings) && !settings.home.is_inside_agent() {
        memory::runtime()?.block_on(async {
            let tools = memory::open(settings, memory::STORE_BUSY_TIMEOUT).await?;
            let principal = match turns {
                IdsOf::App(app) => Principal::App(app.to_owned()),
                IdsOf::Owner | IdsOf::Forgotten => Principal::Owner,
            };
            if turns == IdsOf::Forgotten {
                for (record, session) in tools.engine.forgotten(&principal).await? {
                    let id = match named {
                        Named::Record => record.as_str(),
                        Named::Session => &session,
                    };
                    add_match(&mut found, id, text);
                }
                return anyhow::Ok(());
            }
            let id = |record: &Record| match named {
                Named::Record => record.id.as_str().to_owned(),
                Named::Session => record.session.clone(),
            };
            let mut after = 0;
            loop {
                let page = tools.engine.page(&principal, after, PAGE_RECORDS).await?;
                let Some(last) = page.last() else { return anyhow::Ok(()) };
                after = last.seq;
                page.iter().for_each(|record| add_match(&mut found, &id(record), text));
            }
        })?;
    }
    if found.iter().any(|known| known == text) {
        return Ok(text.to_owned());
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Ok(text.to_owned()),
        count => {
            let what = match named {
                Named::Record => "records",
                Named::Session => "sessions",
            };
            anyhow::bail!("{count} {what} have IDs that begin with {text}; type more characters")
        }
    }
}

/// Adds an id that begins with `text`, unless it is found already.
fn add_match(found: &mut Vec<String>, id: &str, text: &str) {
    if id.starts_with(text) && !found.iter().any(|known| known == id) {
        found.push(id.to_owned());
    }
}
