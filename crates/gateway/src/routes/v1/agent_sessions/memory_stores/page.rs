//! The parameters that lists and single objects of memory stores share.

use hob_domain::Timestamp;
use serde_json::{Value, json};

use super::document::View;
use crate::error::ApiError;
use crate::routes::v1::agent_sessions::cursor::Query;

const PAGE_ITEMS: usize = 20;
const MAX_PAGE_ITEMS: usize = 100;
/// The most items of a page with texts.
const MAX_FULL_ITEMS: usize = 20;

/// An item of a list and the key by which the list is sorted. A page begins after a key, also if its item was deleted
/// meanwhile.
pub(super) type KeyedItem = (String, Value);

/// Returns the key of an item of a list by time.
pub(super) fn time_key(at: Timestamp, id: &str) -> String {
    format!("{:020}_{id}", at.as_microsecond())
}

/// Returns whether the caller wants the texts.
pub(super) fn view(query: &Query, default: View) -> Result<View, ApiError> {
    match query.get("view") {
        None => Ok(default),
        Some("basic") => Ok(View::Basic),
        Some("full") => Ok(View::Full),
        Some(_) => Err(ApiError::bad_request("view: must be basic or full")),
    }
}

/// Returns whether a time lies within the caller's bounds.
pub(super) fn created_within(
    query: &Query,
) -> Result<impl Fn(Timestamp) -> bool + use<>, ApiError> {
    let bound = |name: &str| match query.get(name) {
        None => Ok(None),
        Some(text) => text
            .parse::<Timestamp>()
            .map(Some)
            .map_err(|_| ApiError::bad_request(format!("{name}: must be a time in RFC 3339"))),
    };
    let (from, to) = (bound("created_at[gte]")?, bound("created_at[lte]")?);
    Ok(move |at| from.is_none_or(|from| at >= from) && to.is_none_or(|to| at <= to))
}

/// Returns a page of a list with ascending keys.
pub(super) fn ascending(
    mut items: Vec<KeyedItem>,
    query: &Query,
    view: View,
) -> Result<Value, ApiError> {
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    if let Some(after) = query.get("page") {
        items.retain(|(key, _)| key.as_str() > after);
    }
    page(items, query, view)
}

/// Returns a page of a list with descending keys: the newest first.
pub(super) fn descending(
    mut items: Vec<KeyedItem>,
    query: &Query,
    view: View,
) -> Result<Value, ApiError> {
    items.sort_by(|(one, _), (other, _)| other.cmp(one));
    if let Some(after) = query.get("page") {
        items.retain(|(key, _)| key.as_str() < after);
    }
    page(items, query, view)
}

fn page(mut items: Vec<KeyedItem>, query: &Query, view: View) -> Result<Value, ApiError> {
    let limit = match query.get("limit") {
        None => PAGE_ITEMS,
        Some(text) => {
            let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE_ITEMS).contains(limit));
            limit.ok_or_else(|| {
                ApiError::bad_request(format!("limit: must be from 1 to {MAX_PAGE_ITEMS}"))
            })?
        }
    };
    let limit = if view == View::Full { limit.min(MAX_FULL_ITEMS) } else { limit };
    let has_more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| has_more).map(|(key, _)| key.clone());
    let data: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    Ok(json!({"data": data, "next_page": next, "prev_page": null}))
}
