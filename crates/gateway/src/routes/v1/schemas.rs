//! The vendors' objects in the OpenAPI document, with their main fields. The SDKs' own types describe them whole.

#![allow(dead_code, reason = "the document is made of these types; handlers render JSON")]

use serde_json::Value;
use utoipa::ToSchema;

/// An error in the shape of the API that was called.
#[derive(ToSchema)]
pub(super) struct VendorError {
    /// `error` in Anthropic's shape.
    r#type: Option<String>,
    error: VendorErrorDetail,
}

#[derive(ToSchema)]
pub(super) struct VendorErrorDetail {
    r#type: String,
    /// What is wrong. It names the field.
    message: String,
    /// OpenAI's shape: the field.
    param: Option<String>,
    /// OpenAI's shape: a stable code.
    code: Option<String>,
}

/// A page of a list.
#[derive(ToSchema)]
pub(super) struct ObjectPage {
    #[schema(value_type = Vec<Object>)]
    data: Vec<Value>,
    /// `list` in OpenAI's shape.
    object: Option<String>,
    has_more: Option<bool>,
    first_id: Option<String>,
    last_id: Option<String>,
    /// The session API of Anthropic: the `page` of the next request.
    next_page: Option<String>,
}

/// What was deleted.
#[derive(ToSchema)]
pub(super) struct DeletedObject {
    id: String,
    r#type: Option<String>,
    object: Option<String>,
    deleted: Option<bool>,
}

/// A model. It has `type` in Anthropic's shape, `object` in OpenAI's.
#[derive(ToSchema)]
pub(super) struct ModelObject {
    id: String,
    r#type: Option<String>,
    display_name: Option<String>,
    created_at: Option<String>,
    /// Always `active`.
    lifecycle: Option<String>,
    object: Option<String>,
    created: Option<i64>,
    owned_by: Option<String>,
}

/// The estimated length of a request.
#[derive(ToSchema)]
pub(super) struct InputTokens {
    input_tokens: u64,
    object: Option<String>,
}

/// A message of Anthropic's Messages API.
#[derive(ToSchema)]
pub(super) struct MessageObject {
    id: String,
    r#type: String,
    role: String,
    model: String,
    #[schema(value_type = Vec<Object>)]
    content: Vec<Value>,
    stop_reason: Option<String>,
    #[schema(value_type = Object)]
    usage: Value,
}

/// A batch of Anthropic's Messages API.
#[derive(ToSchema)]
pub(super) struct MessageBatchObject {
    id: String,
    r#type: String,
    /// `in_progress`, `canceling` or `ended`.
    processing_status: String,
    #[schema(value_type = Object)]
    request_counts: Value,
    created_at: String,
    expires_at: String,
    ended_at: Option<String>,
    results_url: Option<String>,
}

/// A completion of OpenAI's Chat Completions.
#[derive(ToSchema)]
pub(super) struct CompletionObject {
    id: String,
    object: String,
    created: i64,
    model: String,
    #[schema(value_type = Vec<Object>)]
    choices: Vec<Value>,
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
}

/// A response of OpenAI's Responses.
#[derive(ToSchema)]
pub(super) struct OpenAiResponseObject {
    id: String,
    object: String,
    /// `queued`, `in_progress`, `completed`, `incomplete`, `failed` or `cancelled`.
    status: String,
    model: String,
    #[schema(value_type = Vec<Object>)]
    output: Vec<Value>,
    #[schema(value_type = Option<Object>)]
    usage: Option<Value>,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
}

/// A conversation of OpenAI's API.
#[derive(ToSchema)]
pub(super) struct ConversationObject {
    id: String,
    object: String,
    created_at: i64,
    #[schema(value_type = Object)]
    metadata: Value,
}

/// An item of a conversation.
#[derive(ToSchema)]
pub(super) struct ItemObject {
    id: String,
    r#type: String,
}

/// An agent. It has `type`, `version` and `system` in Anthropic's shape, `object` and `instructions` in OpenAI's.
#[derive(ToSchema)]
pub(super) struct AgentObject {
    id: String,
    r#type: Option<String>,
    object: Option<String>,
    name: Option<String>,
    version: Option<u32>,
    /// An object in Anthropic's shape, a name in OpenAI's.
    model: Value,
    system: Option<String>,
    instructions: Option<String>,
    #[schema(value_type = Vec<Object>)]
    tools: Vec<Value>,
    #[schema(value_type = Object)]
    metadata: Value,
}

/// A session. It has `type` and `title` in Anthropic's shape, `object` and `required_actions` in OpenAI's.
#[derive(ToSchema)]
pub(super) struct AgentSessionObject {
    id: String,
    r#type: Option<String>,
    object: Option<String>,
    /// `idle`, `running` or `terminated` in Anthropic's shape; `idle`, `in_progress` or `requires_action` in OpenAI's.
    status: String,
    title: Option<String>,
    #[schema(value_type = Object)]
    agent: Value,
    #[schema(value_type = Object)]
    metadata: Value,
    #[schema(value_type = Object)]
    usage: Value,
    #[schema(value_type = Option<Vec<Object>>)]
    required_actions: Option<Vec<Value>>,
}

/// A turn of a session in OpenAI's shape.
#[derive(ToSchema)]
pub(super) struct AgentTurnObject {
    id: String,
    object: String,
    session_id: String,
    /// `queued`, `in_progress`, `completed`, `cancelled` or `failed`.
    status: String,
    #[schema(value_type = Option<Object>)]
    error: Option<Value>,
    created_at: i64,
    started_at: Option<i64>,
    completed_at: Option<i64>,
    #[schema(value_type = Object)]
    usage: Value,
}

/// An agent, or changes of one: in OpenAI's shape, or in Anthropic's if `anthropic-version` is sent.
#[derive(ToSchema)]
#[schema(example = json!({"model": "claude", "name": "helper"}))]
pub(super) struct AgentRequestBody {
    /// The name of one of Hob's agents, an agent and its model (`codex/gpt-5`), or a model of the default agent. A new agent
    /// needs one. In Anthropic's shape also an object with an `id`.
    #[schema(value_type = Option<Value>)]
    model: Option<Value>,
    /// A new agent of Anthropic's API needs one.
    name: Option<String>,
    /// Texts under keys.
    #[schema(value_type = Option<Object>)]
    metadata: Option<Value>,
    #[schema(value_type = Option<Vec<Object>>)]
    tools: Option<Vec<Value>>,
    /// OpenAI: added to the agent's system prompt.
    instructions: Option<String>,
    /// Anthropic: added to the agent's system prompt.
    system: Option<String>,
    /// Anthropic.
    description: Option<String>,
    /// Anthropic: the servers that `tools` name.
    #[schema(value_type = Option<Vec<Object>>)]
    mcp_servers: Option<Vec<Value>>,
    /// Anthropic: the version that is changed.
    version: Option<u32>,
}

/// A file that a turn has left in its session's own folder, in OpenAI's shape.
#[derive(ToSchema)]
pub(super) struct ArtifactObject {
    id: String,
    object: String,
    session_id: String,
    turn_id: String,
    environment_id: String,
    /// The file's path on this machine.
    path: String,
    size_bytes: u64,
    created_at: i64,
}

/// An environment of Anthropic's API.
#[derive(ToSchema)]
pub(super) struct EnvironmentObject {
    id: String,
    r#type: String,
    name: String,
    description: Option<String>,
    #[schema(value_type = Object)]
    config: Value,
    #[schema(value_type = Object)]
    metadata: Value,
    created_at: String,
    updated_at: String,
    archived_at: Option<String>,
}

/// A memory store of Anthropic's API.
#[derive(ToSchema)]
pub(super) struct MemoryStoreObject {
    id: String,
    r#type: String,
    name: String,
    created_at: String,
    updated_at: String,
    archived_at: Option<String>,
}

/// A memory of a store.
#[derive(ToSchema)]
pub(super) struct MemoryObject {
    id: String,
    r#type: String,
    memory_store_id: String,
    memory_version_id: String,
    path: String,
    content: Option<String>,
    content_sha256: String,
    created_at: String,
    updated_at: String,
}

/// A version of a memory.
#[derive(ToSchema)]
pub(super) struct MemoryVersionObject {
    id: String,
    r#type: String,
    memory_id: String,
    memory_store_id: String,
    operation: String,
    path: Option<String>,
    content: Option<String>,
    created_at: String,
}
