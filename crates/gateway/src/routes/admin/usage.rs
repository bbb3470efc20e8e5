//! `GET /admin/usage`: usage of apps by day.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use hob_domain::session::UsageDay;
use hob_domain::{AppName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::{ApiError, ErrorBody};
use crate::extract::caller::Admin;
use crate::extract::path_and_query::ApiQuery;
use crate::state::Gateway;

const DAY: i64 = 24 * 60 * 60;
/// Default and maximum number of days per response.
const DAYS: i64 = 30;
const MAX_DAYS: i64 = 366;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    days: Option<i64>,
    app: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[schema(example = json!({"ok": true, "days": [{"day": "2026-11-15", "app": "my-app", "turns": 12, "failed": 1,
    "input_tokens": 4000, "output_tokens": 900, "cost_usd": 0.07}]}))]
pub(crate) struct UsageList {
    /// Always `true`.
    ok: bool,
    /// Oldest first; days without usage are left out.
    days: Vec<DayView>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DayView {
    /// In UTC.
    #[schema(format = Date)]
    day: String,
    /// `@owner` for the owner.
    app: String,
    /// Turns that ended.
    turns: u64,
    /// Failed turns among them.
    failed: u64,
    /// Includes cache reads and writes.
    input_tokens: u64,
    output_tokens: u64,
    /// In US dollars, as the agents report it. Claude Code in a terminal reports only tokens.
    cost_usd: f64,
}

impl From<UsageDay> for DayView {
    fn from(day: UsageDay) -> DayView {
        let usage = day.usage;
        DayView {
            day: day.day.to_string().chars().take(10).collect(),
            app: day.app.as_str().to_owned(),
            turns: day.turns,
            failed: day.failed,
            input_tokens: usage.tokens() - usage.output_tokens,
            output_tokens: usage.output_tokens,
            cost_usd: usage.cost_usd,
        }
    }
}

/// Returns the usage of apps by day.
#[utoipa::path(get, path = "/admin/usage", tag = "admin", operation_id = "usage", security(("token" = [])),
    params(("days" = Option<i64>, Query, minimum = 1, maximum = 366,
            description = "Number of days, including today. Default: 30."),
        ("app" = Option<String>, Query, description = "Only this app.")), responses(
    (status = 200, description = "The days.", body = UsageList),
    (status = 400, description = "Invalid query; the error names the parameter.", body = ErrorBody),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
    (status = 500, description = "Internal error; see Hob's log.", body = ErrorBody),
))]
pub(crate) async fn usage(
    State(gateway): State<Arc<Gateway>>,
    _: Admin,
    ApiQuery(which): ApiQuery<Which>,
) -> Result<Json<UsageList>, ApiError> {
    let days = which.days.unwrap_or(DAYS);
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(ApiError::bad_request(format!("days: must be between 1 and {MAX_DAYS}")));
    }
    let app = which.app.map(AppName::stored).transpose();
    let app = app.map_err(|error| ApiError::bad_request(format!("app: {error}")))?;
    let first = Timestamp::from_second(Timestamp::now().as_second() - (days - 1) * DAY);
    let first = first.unwrap_or_default();
    let days = gateway.sessions.usage_since(first, app.as_ref()).await?;
    Ok(Json(UsageList { ok: true, days: days.into_iter().map(DayView::from).collect() }))
}
