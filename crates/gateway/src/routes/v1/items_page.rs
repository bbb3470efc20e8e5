//! Pages of items in the shapes of both APIs.

use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::error::ApiError;

/// How many items a page has if the client does not say.
const PAGE_ITEMS: usize = 20;

/// Which items of a list a page has.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ItemsQuery {
    /// `desc` (the default) or `asc`.
    order: Option<String>,
    /// At most this many items, from 1 to 100.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
    /// The items after this one.
    after: Option<String>,
}

impl ItemsQuery {
    /// Returns a page of a list in OpenAI's shape.
    pub fn page(&self, mut items: Vec<Value>) -> Result<Value, ApiError> {
        match self.order.as_deref() {
            None | Some("desc") => items.reverse(),
            Some("asc") => {}
            Some(_) => return Err(ApiError::bad_request("order: must be asc or desc")),
        }
        let limit = self.limit.unwrap_or(PAGE_ITEMS);
        if !(1..=100).contains(&limit) {
            return Err(ApiError::bad_request("limit: must be from 1 to 100"));
        }
        let (items, has_more) = cut(items, self.after.as_deref(), limit, "after")?;
        Ok(list(items, has_more))
    }
}

/// Which items of a list in Anthropic's shape a page has.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// At most this many items, from 1 to 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The items after this one.
    after_id: Option<String>,
    /// The items before this one.
    before_id: Option<String>,
}

impl PageQuery {
    /// Returns a page of a list in Anthropic's shape.
    pub fn page(&self, mut items: Vec<Value>) -> Result<Value, ApiError> {
        let limit = self.limit.unwrap_or(PAGE_ITEMS);
        if !(1..=1000).contains(&limit) {
            return Err(ApiError::bad_request("limit: must be from 1 to 1000"));
        }
        let (data, has_more) = match &self.before_id {
            None => cut(items, self.after_id.as_deref(), limit, "after_id")?,
            Some(before) => {
                items.reverse();
                let (mut data, has_more) = cut(items, Some(before), limit, "before_id")?;
                data.reverse();
                (data, has_more)
            }
        };
        let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
        Ok(json!({"has_more": has_more, "first_id": id(data.first()), "last_id": id(data.last()),
            "data": data}))
    }
}

/// Returns a list in OpenAI's shape.
pub(super) fn list(items: Vec<Value>, has_more: bool) -> Value {
    let id = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    json!({"object": "list", "first_id": id(items.first()), "last_id": id(items.last()),
        "has_more": has_more, "data": items})
}

/// Returns at most `limit` items after the one with an id, and whether there are more. `name` is the parameter with the id.
pub(super) fn cut(
    mut items: Vec<Value>,
    after: Option<&str>,
    limit: usize,
    name: &str,
) -> Result<(Vec<Value>, bool), ApiError> {
    if let Some(after) = after {
        let place = items.iter().position(|item| item["id"] == after);
        let place =
            place.ok_or_else(|| ApiError::bad_request(format!("{name}: no item has this ID")))?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    Ok((items, has_more))
}
