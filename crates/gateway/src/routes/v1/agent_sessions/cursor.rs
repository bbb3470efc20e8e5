//! Pages of lists.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use hob_domain::Timestamp;
use serde_json::{Value, json};

use super::super::items_page::{cut, list};
use crate::error::ApiError;
use crate::extract::path_and_query::ApiQuery;
use crate::state::Gateway;

/// The items of a page if the caller does not say.
const PAGE_ITEMS: usize = 20;
const MAX_PAGE_ITEMS: usize = 1000;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl FromRequestParts<Arc<Gateway>> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Query, ApiError> {
        let ApiQuery(pairs) = ApiQuery::from_request_parts(parts, gateway).await?;
        Ok(Query { pairs })
    }
}

impl Query {
    pub fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str())
    }

    /// Returns the values of a list: `name=a&name=b`, `name[]=a` or `name[0]=a`.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let is_part = |key: &str| {
            key.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
        };
        let values = self.pairs.iter().filter(|(key, _)| is_part(key));
        values.flat_map(|(_, value)| value.split(',')).filter(|value| !value.is_empty()).collect()
    }

    /// Returns the keys and values of a table: `name[key]=value`.
    pub fn within(&self, name: &str) -> Vec<(&str, &str)> {
        let pairs = self.pairs.iter().filter_map(|(full, value)| {
            let key = full.strip_prefix(name)?.strip_prefix('[')?.strip_suffix(']')?;
            Some((key, value.as_str()))
        });
        pairs.collect()
    }

    /// Returns the times that the caller wants: `name[gte]=2026-01-01T00:00:00Z`, `gt`, `lt` and `lte`.
    pub fn times(&self, name: &str) -> Result<TimeRange, ApiError> {
        let mut range = TimeRange::default();
        for (bound, text) in self.within(name) {
            let known = COMPARISONS.iter().find(|(word, _)| *word == bound);
            let Some((_, holds)) = known else {
                let text = format!("{name}[{bound}]: must be gt, gte, lt or lte");
                return Err(ApiError::bad_request(text));
            };
            let wrong =
                |_| ApiError::bad_request(format!("{name}[{bound}]: must be a time in RFC 3339"));
            range.bounds.push((*holds, text.parse().map_err(wrong)?));
        }
        Ok(range)
    }

    /// Returns a switch; off if it is absent.
    pub fn is_set(&self, name: &str) -> Result<bool, ApiError> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(ApiError::bad_request(format!("{name}: must be true or false"))),
        }
    }

    pub fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else { return Ok(PAGE_ITEMS) };
        let limit = text.parse().ok().filter(|limit| (1..=MAX_PAGE_ITEMS).contains(limit));
        limit.ok_or_else(|| {
            ApiError::bad_request(format!("limit: must be from 1 to {MAX_PAGE_ITEMS}"))
        })
    }

    /// Returns whether the newest items come first.
    pub fn is_descending(&self, default: &str) -> Result<bool, ApiError> {
        match self.get("order").unwrap_or(default) {
            "desc" => Ok(true),
            "asc" => Ok(false),
            _ => Err(ApiError::bad_request("order: must be asc or desc")),
        }
    }
}

/// A comparison of a time with a bound.
type Comparison = fn(&Timestamp, &Timestamp) -> bool;

/// The comparisons of queries.
const COMPARISONS: [(&str, Comparison); 4] = [
    ("gt", |at, bound| at > bound),
    ("gte", |at, bound| at >= bound),
    ("lt", |at, bound| at < bound),
    ("lte", |at, bound| at <= bound),
];

/// The times that a caller wants.
#[derive(Default)]
pub(crate) struct TimeRange {
    bounds: Vec<(Comparison, Timestamp)>,
}

impl TimeRange {
    pub fn contains(&self, at: Timestamp) -> bool {
        self.bounds.iter().all(|(holds, bound)| holds(&at, bound))
    }

    /// Returns whether a rendered time is in the range. Without bounds, everything is.
    pub fn contains_rendered(&self, at: &Value) -> bool {
        let at = at.as_str().and_then(|text| text.parse().ok());
        self.bounds.is_empty() || at.is_some_and(|at| self.contains(at))
    }
}

/// Returns a page as Anthropic's API has it. `page` is the id of the last item of the page before.
pub(super) fn anthropic_page(items: Vec<Value>, query: &Query) -> Result<Value, ApiError> {
    let (data, has_more) = cut(items, query.get("page"), query.limit()?, "page")?;
    let next = has_more.then(|| data.last().map(|item| item["id"].clone())).flatten();
    Ok(json!({"data": data, "next_page": next, "prev_page": null}))
}

/// Returns a page as OpenAI's API has it. `after` is the id of the last item of the page before.
pub(super) fn openai_page(items: Vec<Value>, query: &Query) -> Result<Value, ApiError> {
    let (data, has_more) = cut(items, query.get("after"), query.limit()?, "after")?;
    Ok(list(data, has_more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pairs: &[(&str, &str)]) -> Query {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        Query { pairs: pairs.iter().map(owned).collect() }
    }

    fn ids(page: &Value) -> Vec<&str> {
        page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
    }

    #[test]
    fn pages_follow_each_other() {
        let items: Vec<Value> = ["a", "b", "c"].iter().map(|id| json!({"id": id})).collect();
        let first = anthropic_page(items.clone(), &query(&[("limit", "2")])).unwrap();
        assert_eq!((ids(&first), &first["next_page"]), (vec!["a", "b"], &json!("b")));
        let last = anthropic_page(items.clone(), &query(&[("limit", "2"), ("page", "b")])).unwrap();
        assert_eq!((ids(&last), &last["next_page"]), (vec!["c"], &Value::Null));
        let page = openai_page(items.clone(), &query(&[("after", "a"), ("limit", "1")])).unwrap();
        assert_eq!((ids(&page), &page["has_more"]), (vec!["b"], &json!(true)));
        assert!(openai_page(items, &query(&[("after", "x")])).is_err());
    }

    #[test]
    fn times_are_compared_with_all_bounds() {
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let range = |pairs: &[(&str, &str)]| query(pairs).times("created_at");
        let both = range(&[
            ("created_at[gt]", "1970-01-01T00:00:01Z"),
            ("created_at[lte]", "1970-01-01T01:00:03+01:00"),
            ("other[gt]", "x"),
        ]);
        let both = both.unwrap();
        let wanted: Vec<i64> = (0..6).filter(|at| both.contains(second(*at))).collect();
        assert_eq!(wanted, [2, 3]);
        assert!(both.contains_rendered(&json!("1970-01-01T00:00:02Z")));
        assert!(!both.contains_rendered(&Value::Null));
        assert!(range(&[]).unwrap().contains_rendered(&Value::Null));
        assert!(range(&[("created_at[gt]", "yesterday")]).is_err());
        assert!(range(&[("created_at[eq]", "1970-01-01T00:00:01Z")]).is_err());
        assert_eq!(query(&[("m[a]", "1"), ("m", "2")]).within("m"), [("a", "1")]);
    }

    #[test]
    fn lists_are_read_in_all_forms() {
        let types = query(&[
            ("types", "a"),
            ("types", "b"),
            ("types[]", "c"),
            ("types[1]", "d"),
            ("other", "e"),
        ]);
        assert_eq!(types.all("types"), ["a", "b", "c", "d"]);
        assert!(query(&[("limit", "0")]).limit().is_err());
        assert!(query(&[("limit", "")]).limit().is_err());
        assert_eq!(query(&[]).limit().unwrap(), PAGE_ITEMS);
    }
}
