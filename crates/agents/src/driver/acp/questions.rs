//! An agent's questions to its user: permission requests, and forms to fill in.

use std::collections::BTreeMap;

use agent_client_protocol::Error;
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    self, CreateElicitationRequest, CreateElicitationResponse, ElicitationAcceptAction,
    ElicitationAction, ElicitationContentValue, ElicitationMode, RequestPermissionOutcome,
    RequestPermissionRequest, RequestPermissionResponse, SelectedPermissionOutcome,
};
use serde_json::{Value, json};

use crate::driver::form::MAX_FORM_BYTES;
use crate::driver::live_agent::{PermissionOption, PermissionOptionKind, PermissionRequest};
use crate::driver::permission_detail::permission_detail;

/// The options of a form.
const ACCEPT: &str = "accept";
const DECLINE: &str = "decline";

/// A question with its responder.
pub(super) enum Question {
    Permission {
        request: Box<RequestPermissionRequest>,
        responder: Responder<RequestPermissionResponse>,
    },
    Form {
        message: String,
        form: Value,
        responder: Responder<CreateElicitationResponse>,
    },
}

impl Question {
    /// Reads a request to fill in a form. A request for anything else is answered with an error. While the agent starts,
    /// nobody can fill in a form.
    pub fn form(
        request: CreateElicitationRequest,
        responder: Responder<CreateElicitationResponse>,
        is_started: bool,
    ) -> Result<Option<Question>, Error> {
        if !is_started {
            responder.respond(CreateElicitationResponse::new(ElicitationAction::Cancel))?;
            return Ok(None);
        }
        let refuse = |text: &str| Error::invalid_params().data(json!(text));
        let ElicitationMode::Form(mode) = &request.mode else {
            responder.respond_with_error(refuse("hob supports forms only"))?;
            return Ok(None);
        };
        let form = json!(mode.requested_schema);
        if form.to_string().len() + request.message.len() > MAX_FORM_BYTES {
            let text = format!("the form is larger than {MAX_FORM_BYTES} bytes");
            responder.respond_with_error(refuse(&text))?;
            return Ok(None);
        }
        Ok(Some(Question::Form { message: request.message, form, responder }))
    }

    /// Returns the question as the caller sees it.
    pub fn request(&self) -> PermissionRequest {
        match self {
            Question::Permission { request, responder } => {
                let options = request.options.iter().map(|option| {
                    PermissionOption::new(&option.option_id.0, &option.name, kind(option))
                });
                let title = request.tool_call.fields.title.clone().unwrap_or_default();
                PermissionRequest {
                    id: responder.raw_id().to_string(),
                    detail: permission_detail(&title, &json!(request.tool_call)),
                    title,
                    options: options.collect(),
                    form: None,
                }
            }
            Question::Form { message, form, responder } => PermissionRequest {
                id: responder.raw_id().to_string(),
                title: message.clone(),
                detail: None,
                options: vec![
                    PermissionOption::new(ACCEPT, "Send", PermissionOptionKind::AllowOnce),
                    PermissionOption::new(DECLINE, "Decline", PermissionOptionKind::RejectOnce),
                ],
                form: Some(form.clone()),
            },
        }
    }

    /// Answers the agent; with no option if nobody will answer.
    pub fn answer(self, option: Option<String>, content: Option<Value>) {
        match self {
            Question::Permission { responder, .. } => {
                let outcome = match option {
                    Some(id) => {
                        RequestPermissionOutcome::Selected(SelectedPermissionOutcome::new(id))
                    }
                    None => RequestPermissionOutcome::Cancelled,
                };
                let _ = responder.respond(RequestPermissionResponse::new(outcome));
            }
            Question::Form { responder, .. } => {
                let action = match option.as_deref() {
                    Some(ACCEPT) => accepted(content.unwrap_or_else(|| json!({}))),
                    Some(_) => ElicitationAction::Decline,
                    None => ElicitationAction::Cancel,
                };
                let _ = responder.respond(CreateElicitationResponse::new(action));
            }
        }
    }
}

/// Returns the answer with the fields of a form. Fields that cannot be sent decline it; the check of the form has refused
/// them before.
fn accepted(content: Value) -> ElicitationAction {
    match serde_json::from_value::<BTreeMap<String, ElicitationContentValue>>(content) {
        Ok(fields) => ElicitationAcceptAction::new().content(fields).into(),
        Err(error) => {
            tracing::error!(%error, "the fields of a form cannot be sent to the agent");
            ElicitationAction::Decline
        }
    }
}

fn kind(option: &schema::PermissionOption) -> PermissionOptionKind {
    match option.kind {
        schema::PermissionOptionKind::AllowOnce => PermissionOptionKind::AllowOnce,
        schema::PermissionOptionKind::AllowAlways => PermissionOptionKind::AllowAlways,
        schema::PermissionOptionKind::RejectOnce => PermissionOptionKind::RejectOnce,
        schema::PermissionOptionKind::RejectAlways => PermissionOptionKind::RejectAlways,
        _ => PermissionOptionKind::Other,
    }
}
