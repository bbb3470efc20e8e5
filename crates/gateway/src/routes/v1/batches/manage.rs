//! Creating, reading, cancelling and deleting batches.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Json, Response};
use hob_domain::{AppFilter, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::super::anthropic;
use super::super::dialect::{Dialect, Problem};
use super::super::items_page::PageQuery;
use super::worker;
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::message_batches::{BatchRequest, MessageBatch};
use crate::routes::v1::schemas;
use crate::state::Gateway;

const MAX_REQUESTS: usize = 1000;
const MAX_ID_CHARACTERS: usize = 64;

/// A batch of messages.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"requests": [{"custom_id": "hello", "params": {"model": "claude", "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Say hello."}]}}]}))]
pub(crate) struct BatchBody {
    /// Each has a `custom_id`, and in `params` the body of a request to `/v1/messages`.
    #[schema(value_type = Vec<Object>)]
    requests: Vec<BatchRequest>,
}

/// Creates a batch of messages. Its requests run one after another.
#[utoipa::path(post, path = "/v1/messages/batches", tag = "v1", operation_id = "create_message_batch",
    security(("token" = [])), request_body = BatchBody, responses(
    (status = 200, description = "The batch.", body = schemas::MessageBatchObject),
    (status = 400, description = "Invalid request; the error names the field.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    request: Request,
) -> Response {
    let created = async {
        let Caller(app) = caller?;
        let JsonBody(body) = JsonBody::<BatchBody>::from_request(request, &gateway).await?;
        check(&body.requests)?;
        let batch = gateway.batches.create(&app.name, &body.requests).await?;
        // The app may have been removed while the body arrived. A later app of its name is another one.
        let apps = gateway.apps.apps(AppFilter::All).await.map_err(ApiError::from)?;
        if !app.name.is_owner() && !apps.contains(&app) {
            gateway.batches.delete(&app.name, &batch.id).await?;
            return Err(ApiError::Unauthorized.into());
        }
        worker::start(&gateway, app);
        Ok(render(&batch))
    };
    answer(created.await)
}

/// Lists the batches.
#[utoipa::path(get, path = "/v1/messages/batches", tag = "v1", operation_id = "list_message_batches",
    security(("token" = [])),
    params(PageQuery), responses(
    (status = 200, description = "The batches, newest first.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    query: Result<ApiQuery<PageQuery>, ApiError>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiQuery(query)) = (caller?, query?);
        let batches = gateway.batches.list(&app.name).await?;
        let newest_first = batches.iter().rev().map(render);
        Ok(query.page(newest_first.collect())?)
    };
    answer(listed.await)
}

/// Returns a batch.
#[utoipa::path(get, path = "/v1/messages/batches/{id}", tag = "v1", operation_id = "get_message_batch",
    security(("token" = [])), params(("id" = String, Path, description = "The batch.")), responses(
    (status = 200, description = "The batch.", body = schemas::MessageBatchObject),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such batch of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    id: Result<ApiPath<String>, ApiError>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let batch = gateway.batches.find(&app.name, &id).await?;
        if !batch.has_ended() {
            worker::start(&gateway, app);
        }
        Ok(render(&batch))
    };
    answer(found.await)
}

/// Cancels a batch. Requests without a result get the result `canceled`.
#[utoipa::path(post, path = "/v1/messages/batches/{id}/cancel", tag = "v1", operation_id = "cancel_message_batch",
    security(("token" = [])), params(("id" = String, Path, description = "The batch.")), responses(
    (status = 200, description = "The batch.", body = schemas::MessageBatchObject),
    (status = 400, description = "The batch has ended.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such batch of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    id: Result<ApiPath<String>, ApiError>,
) -> Response {
    let cancelled = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        loop {
            let mut batch = gateway.batches.find(&app.name, &id).await?;
            if batch.has_ended() {
                return Err(Problem::invalid("the batch has ended"));
            }
            if batch.state.cancel_initiated_at.is_none() {
                batch.state.cancel_initiated_at = Some(Timestamp::now());
                if !gateway.batches.save(&app.name, &mut batch).await? {
                    // A result was stored meanwhile.
                    continue;
                }
            }
            gateway.batches.cancel(&app.name, &id);
            worker::start(&gateway, app);
            return Ok(render(&batch));
        }
    };
    answer(cancelled.await)
}

/// Deletes a batch that has ended, with its results.
#[utoipa::path(delete, path = "/v1/messages/batches/{id}", tag = "v1", operation_id = "delete_message_batch",
    security(("token" = [])), params(("id" = String, Path, description = "The batch.")), responses(
    (status = 200, description = "It is deleted.", body = schemas::DeletedObject),
    (status = 400, description = "The batch has not ended.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such batch of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    id: Result<ApiPath<String>, ApiError>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        if !gateway.batches.find(&app.name, &id).await?.has_ended() {
            return Err(Problem::invalid("the batch has not ended; cancel it first"));
        }
        gateway.batches.delete(&app.name, &id).await?;
        Ok(json!({"id": id, "type": "message_batch_deleted"}))
    };
    answer(deleted.await)
}

/// Returns the results of a batch that has ended: one JSON object per line.
#[utoipa::path(get, path = "/v1/messages/batches/{id}/results", tag = "v1", operation_id = "get_message_batch_results",
    security(("token" = [])), params(("id" = String, Path, description = "The batch.")), responses(
    (status = 200, description = "The results, in the order of the requests.", content_type = "application/x-jsonl", body = String),
    (status = 401, description = "Missing or wrong token.", body = schemas::VendorError),
    (status = 404, description = "No such batch of this app, or it has not ended.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn results(
    State(gateway): State<Arc<Gateway>>,
    caller: Result<Caller, ApiError>,
    id: Result<ApiPath<String>, ApiError>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let batch = gateway.batches.find(&app.name, &id).await?;
        match batch.has_ended() {
            true => Ok(batch.state.results),
            false => Err(Problem::from(ApiError::NotFound("the batch has not ended".to_owned()))),
        }
    };
    match found.await {
        Ok(results) => {
            let lines: String = results.iter().map(|result| format!("{result}\n")).collect();
            ([(header::CONTENT_TYPE, "application/x-jsonl")], lines).into_response()
        }
        Err(problem) => answer(Err(problem)),
    }
}

fn answer(result: Result<Value, Problem>) -> Response {
    let mut response = match result {
        Ok(value) => Json(value).into_response(),
        Err(problem) => Dialect::Anthropic.respond(problem),
    };
    response.headers_mut().insert(anthropic::REQUEST_ID_HEADER, anthropic::request_id());
    response
}

fn check(requests: &[BatchRequest]) -> Result<(), ApiError> {
    let wrong = |text: String| Err(ApiError::bad_request(text));
    if !(1..=MAX_REQUESTS).contains(&requests.len()) {
        return wrong(format!("requests: must have 1 to {MAX_REQUESTS} entries"));
    }
    let mut known = HashSet::new();
    for (index, BatchRequest { custom_id, params }) in requests.iter().enumerate() {
        let is_valid =
            |character: char| character.is_ascii_alphanumeric() || "_-".contains(character);
        if !(1..=MAX_ID_CHARACTERS).contains(&custom_id.len()) || !custom_id.chars().all(is_valid) {
            return wrong(format!(
                "requests[{index}].custom_id: must be 1 to {MAX_ID_CHARACTERS} letters, digits, \"_\" or \"-\""
            ));
        }
        if !known.insert(custom_id) {
            return wrong(format!("requests[{index}].custom_id: another request has it"));
        }
        if !params.is_object() || params["stream"] == true {
            return wrong(format!(
                "requests[{index}].params: must be the body of a message without stream"
            ));
        }
    }
    Ok(())
}

fn render(batch: &MessageBatch) -> Value {
    let state = &batch.state;
    // Until the batch has ended, all requests count as processing.
    let results = if batch.has_ended() { state.results.as_slice() } else { &[] };
    let count =
        |kind: &str| results.iter().filter(|result| result["result"]["type"] == kind).count();
    let processing = if batch.has_ended() { 0 } else { state.request_count };
    let status = match (state.ended_at, state.cancel_initiated_at) {
        (Some(_), _) => "ended",
        (None, Some(_)) => "canceling",
        (None, None) => "in_progress",
    };
    // The SDKs add their own base URL. Hob does not know by which name a client reaches it.
    let results_url =
        batch.has_ended().then(|| format!("/v1/messages/batches/{}/results", batch.id));
    let time = |at: Timestamp| at.to_string();
    json!({"id": batch.id, "type": "message_batch", "processing_status": status,
        "request_counts": {"processing": processing,
            "succeeded": count("succeeded"), "errored": count("errored"),
            "canceled": count("canceled"), "expired": count("expired")},
        "created_at": time(batch.created_at), "expires_at": time(batch.expires_at()),
        "ended_at": state.ended_at.map(time), "archived_at": null,
        "cancel_initiated_at": state.cancel_initiated_at.map(time), "results_url": results_url})
}
