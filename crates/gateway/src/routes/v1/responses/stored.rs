//! `/v1/responses/…`: stored responses, and an estimate of a request's tokens.

use std::sync::Arc;

use axum::extract::{FromRequest, Request, State};
use axum::response::{IntoResponse, Json, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::super::count_tokens::{MESSAGE_TOKENS, text_tokens, tokens};
use super::super::dialect::{Dialect, Problem};
use super::super::items_page::ItemsQuery;
use super::super::tools;
use super::history::{self, NamedHistory};
use super::{input, stream};
use crate::error::ApiError;
use crate::extract::body::JsonBody;
use crate::extract::caller::Caller;
use crate::extract::path_and_query::{ApiPath, ApiQuery};
use crate::routes::v1::schemas;
use crate::state::Gateway;

type Called<T> = Result<T, ApiError>;

/// The largest stored response that is streamed again, in bytes of JSON. Its events repeat its text.
const MAX_STREAMED_AGAIN: usize = 1 << 20;

/// Returns a stored response, or a stream of its events.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "v1", operation_id = "get_response", security(("token" = [])),
    params(("id" = String, Path, description = "The response."), GetQuery), responses(
    (status = 200, description = "The response, or its events.",
        content((schemas::OpenAiResponseObject = "application/json"), (Object = "text/event-stream"))),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such response of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn get(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<ApiQuery<GetQuery>>,
) -> Response {
    let found = async {
        let (Caller(app), ApiPath(id), ApiQuery(query)) = (caller?, id?, query?);
        let log = gateway.responses.events(&app.name, &id);
        let response = gateway.responses.current(&app.name, &id).await?;
        if query.stream != Some(true) {
            return Ok(Json(response.body).into_response());
        }
        let log = match log {
            Some(log) => log,
            None if response.is_running() => {
                let text = "stream: the response is not in the background, or runs on another node";
                return Err(ApiError::bad_request(text));
            }
            None if query.starting_after.is_some() => {
                let text = "starting_after: the numbers of this stream are no longer known; read it from its beginning";
                return Err(ApiError::bad_request(text));
            }
            None if response.size > MAX_STREAMED_AGAIN => {
                let text = "stream: the response is too large to be streamed again; read it without `stream`";
                return Err(ApiError::bad_request(text));
            }
            None => stream::log_of_stored(response.body),
        };
        let first = query.starting_after.map_or(0, |number| number.saturating_add(1));
        Ok(stream::follow(log, first).into_response())
    };
    found.await.unwrap_or_else(|error| Dialect::OpenAi.respond(error.into()))
}

/// Deletes a stored response. One that is being made is cancelled.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "v1", operation_id = "delete_response", security(("token" = [])),
    params(("id" = String, Path, description = "The response.")), responses(
    (status = 200, description = "Deleted.", body = schemas::DeletedObject),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such response of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let deleted = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        gateway.responses.delete(&app.name, &id).await?;
        Ok(json!({"id": id, "object": "response", "deleted": true}))
    };
    respond(deleted.await)
}

/// Cancels a response in the background. One that has ended stays as it is.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "v1", operation_id = "cancel_response",
    security(("token" = [])), params(("id" = String, Path, description = "The response.")), responses(
    (status = 200, description = "The response.", body = schemas::OpenAiResponseObject),
    (status = 400, description = "The response is not in the background, or runs on another node.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such response of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
) -> Response {
    let cancelled = async {
        let (Caller(app), ApiPath(id)) = (caller?, id?);
        let mut response = gateway.responses.current(&app.name, &id).await?;
        if response.body["background"] != true {
            return Err(ApiError::bad_request("only background responses can be cancelled"));
        }
        if response.is_running() {
            gateway.responses.cancel(&app.name, &id).await;
            response = gateway.responses.current(&app.name, &id).await?;
            if response.is_running() {
                let text = "the response is running on another node; send the request there";
                return Err(ApiError::bad_request(text));
            }
        }
        Ok(response.body)
    };
    respond(cancelled.await)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct GetQuery {
    /// Whether the answer is a stream of the response's events, until it ends.
    stream: Option<bool>,
    /// With `stream`: only the events after the one with this `sequence_number`.
    starting_after: Option<usize>,
}

/// Lists the items of a stored response's request.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "v1", operation_id = "list_response_input_items",
    security(("token" = [])), params(("id" = String, Path, description = "The response."), ItemsQuery), responses(
    (status = 200, description = "The items.", body = schemas::ObjectPage),
    (status = 400, description = "Invalid query; the error names the parameter.", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such response of this app.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn input_items(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    id: Called<ApiPath<String>>,
    query: Called<ApiQuery<ItemsQuery>>,
) -> Response {
    let listed = async {
        let (Caller(app), ApiPath(id), ApiQuery(query)) = (caller?, id?, query?);
        let items = gateway.responses.load(&app.name, &id).await?.input_items();
        query.page(items)
    };
    respond(listed.await)
}

/// The request whose tokens are counted.
#[derive(Deserialize, ToSchema)]
#[schema(example = json!({"model": "claude", "input": "Say hello."}))]
pub(crate) struct InputTokensBody {
    /// May be absent if one of the next two is there.
    #[schema(value_type = Option<Value>)]
    input: Option<Value>,
    instructions: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    previous_response_id: Option<String>,
    /// The ID of a conversation, or an object with it.
    #[schema(value_type = Option<Value>)]
    conversation: Option<Value>,
}

/// Estimates the input tokens of a request for a response.
///
/// One token per four bytes of text, 4 per message and 1,600 per image or document. What Claude Code adds itself, its
/// system prompt and its tools, is not counted.
#[utoipa::path(post, path = "/v1/responses/input_tokens", tag = "v1", operation_id = "count_response_tokens",
    request_body = InputTokensBody, security(("token" = [])), responses(
    (status = 200, description = "`{\"object\": \"response.input_tokens\", \"input_tokens\": N}`", body = schemas::InputTokens),
    (status = 400, description = "Invalid request (`invalid_request_error`).", body = schemas::VendorError),
    (status = 401, description = "Missing or wrong token (`invalid_api_key`).", body = schemas::VendorError),
    (status = 404, description = "No such previous response or conversation.", body = schemas::VendorError),
    (status = 408, description = "The body did not arrive in time.", body = schemas::VendorError),
    (status = 413, description = "The body is too large.", body = schemas::VendorError),
    (status = 500, description = "Internal error; see Hob's log.", body = schemas::VendorError),
))]
pub(crate) async fn input_tokens(
    State(gateway): State<Arc<Gateway>>,
    caller: Called<Caller>,
    request: Request,
) -> Response {
    match count(&gateway, caller, request).await {
        Ok(value) => Json(value).into_response(),
        Err(problem) => Dialect::OpenAi.respond(problem.in_responses()),
    }
}

async fn count(
    gateway: &Arc<Gateway>,
    caller: Called<Caller>,
    request: Request,
) -> Result<Value, Problem> {
    let Caller(app) = caller?;
    let JsonBody(body) = JsonBody::<InputTokensBody>::from_request(request, gateway).await?;
    tools::responses(body.tools.as_deref(), None, None)?;
    let named = history::named(body.conversation.as_ref(), body.previous_response_id.as_deref())?;
    let earlier = named.items(gateway, &app.name).await?;
    let mut new = match &body.input {
        None if named != NamedHistory::None || body.instructions.is_some() => Vec::new(),
        input => input::items(input.as_ref())?,
    };
    gateway.responses.resolve(&app.name, &mut new).await?;
    let input = input::conversation(&earlier, &new)?;
    let messages: usize =
        input.messages.iter().map(|message| MESSAGE_TOKENS + tokens(&message["content"])).sum();
    let instructions = body.instructions.iter().chain(&input.systems).map(|text| text_tokens(text));
    let tools = body.tools.iter().flatten().map(|tool| text_tokens(&tool.to_string()));
    let total = messages + instructions.chain(tools).sum::<usize>();
    Ok(json!({"object": "response.input_tokens", "input_tokens": total}))
}

fn respond(found: Result<Value, ApiError>) -> Response {
    match found {
        Ok(value) => Json(value).into_response(),
        Err(error) => Dialect::OpenAi.respond(error.into()),
    }
}
