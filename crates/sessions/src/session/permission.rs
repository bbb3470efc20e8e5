//! How an agent's permission request is answered.

use hob_domain::session::{EventKind, NewEvent, Permissions};

use super::events::audit_event;
use hob_agents::client_tools::ToolExchange;
use hob_agents::driver::{PermissionOption, PermissionOptionKind, PermissionRequest, form};
use serde_json::{Value, json};

/// How a permission request is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// By the session's policy, with this option; `None` if the agent offers no suitable one.
    Answer(Option<String>),
    /// By the caller.
    AskCaller,
}

/// The answer to a permission request.
pub(super) struct Settled {
    /// `None` if nobody will answer.
    pub option: Option<String>,
    /// The fields of the form that the request has.
    pub content: Option<Value>,
    /// What the caller tells the agent with a rejection.
    pub message: Option<String>,
    /// Who decided.
    pub by: &'static str,
}

impl Settled {
    /// An answer without a form.
    pub fn by(by: &'static str, option: Option<String>) -> Settled {
        Settled { option, content: None, message: None, by }
    }
}

/// Builds the event that puts a request to the caller.
pub(super) fn asked_event(turn: u32, ask: &PermissionRequest) -> NewEvent {
    let option = |option: &PermissionOption| json!({"option": option.id, "name": option.name, "kind": option.kind.as_str()});
    let options: Vec<Value> = ask.options.iter().map(option).collect();
    let mut body = json!({"request_id": ask.id, "turn_index": turn, "status": "asked",
        "title": ask.title, "options": options});
    if let Some(detail) = &ask.detail {
        body["detail"] = json!(detail);
    }
    if let Some(form) = &ask.form {
        body["form"] = form.clone();
    }
    audit_event(EventKind::Permission, Some(turn), body)
}

/// Builds the event that says how a request was answered.
pub(super) fn answered_event(turn: u32, request: &str, answer: &Settled) -> NewEvent {
    let mut body = json!({"request_id": request, "turn_index": turn, "status": "answered",
        "option": answer.option, "by": answer.by});
    if let Some(content) = &answer.content {
        body["content"] = content.clone();
    }
    if let Some(message) = &answer.message {
        body["message"] = json!(message);
    }
    audit_event(EventKind::Permission, Some(turn), body)
}

/// Returns the policy for a permission request. The caller runs its own tools, so they need no permission.
pub(super) fn policy_for(
    ask: &PermissionRequest,
    policy: Permissions,
    tools: Option<&ToolExchange>,
) -> Permissions {
    match tools.is_some_and(|tools| tools.is_asked_for(&ask.title)) {
        true => Permissions::Allow,
        false => policy,
    }
}

/// Decides a request by the session's policy.
pub(super) fn decide(policy: Permissions, ask: &PermissionRequest) -> Decision {
    match policy {
        Permissions::Ask => Decision::AskCaller,
        Permissions::Deny => Decision::Answer(rejection(ask)),
        // No policy can fill in a form.
        Permissions::Allow if ask.form.is_some() => Decision::Answer(rejection(ask)),
        Permissions::Allow => {
            let kinds = [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways];
            Decision::Answer(first_of(ask, &kinds))
        }
    }
}

/// Returns the option that rejects the request. Options are chosen by kind, because names and ids
/// differ between agents and their versions.
pub(crate) fn rejection(ask: &PermissionRequest) -> Option<String> {
    first_of(ask, &[PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways])
}

/// Finds the option that a caller names by its id, else by its kind.
pub(super) fn find_option<'a>(
    ask: &'a PermissionRequest,
    name: &str,
) -> Option<&'a PermissionOption> {
    let by_id = ask.options.iter().find(|offer| offer.id == name);
    by_id.or_else(|| ask.options.iter().find(|offer| offer.kind.as_str() == name))
}

/// Checks the fields that come with an answer. Errors name the field.
pub(super) fn check_content(
    ask: &PermissionRequest,
    option: &PermissionOption,
    content: Option<&Value>,
) -> Result<(), String> {
    let allows = option.kind == PermissionOptionKind::AllowOnce;
    match (&ask.form, content) {
        (Some(form), content) if allows => form::check(form, content.unwrap_or(&json!({}))),
        (_, Some(_)) => {
            Err("content: only the answer that accepts a form may have fields".to_owned())
        }
        (_, None) => Ok(()),
    }
}

fn first_of(ask: &PermissionRequest, kinds: &[PermissionOptionKind]) -> Option<String> {
    let find = |kind: &PermissionOptionKind| ask.options.iter().find(|offer| offer.kind == *kind);
    kinds.iter().find_map(find).map(|offer| offer.id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(kinds: &[PermissionOptionKind]) -> PermissionRequest {
        let offers = kinds.iter().enumerate().map(|(index, kind)| PermissionOption {
            id: format!("o{index}"),
            name: String::new(),
            kind: *kind,
        });
        PermissionRequest {
            id: "1".into(),
            title: "rm".into(),
            detail: None,
            options: offers.collect(),
            form: None,
        }
    }

    #[test]
    fn options_are_chosen_by_kind() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, Other, RejectAlways, RejectOnce};
        let usual = ask(&[AllowAlways, AllowOnce, RejectOnce]);
        let answer = |text: &str| Decision::Answer(Some(text.to_owned()));
        assert_eq!(decide(Permissions::Deny, &usual), answer("o2"));
        assert_eq!(decide(Permissions::Allow, &usual), answer("o1"));
        let form = PermissionRequest { form: Some(json!({"type": "object"})), ..usual.clone() };
        assert_eq!(decide(Permissions::Allow, &form), answer("o2"), "nobody fills in the form");
        assert_eq!(decide(Permissions::Ask, &form), Decision::AskCaller);
        assert_eq!(decide(Permissions::Ask, &usual), Decision::AskCaller);
        let odd = ask(&[RejectAlways, Other, AllowAlways]);
        assert_eq!(decide(Permissions::Deny, &odd), answer("o0"));
        assert_eq!(decide(Permissions::Allow, &odd), answer("o2"));
        let none = ask(&[Other]);
        assert_eq!(decide(Permissions::Allow, &none), Decision::Answer(None));
        assert_eq!(decide(Permissions::Deny, &none), Decision::Answer(None));
        assert_eq!(find_option(&usual, "o1").map(|offer| offer.kind), Some(AllowOnce));
        assert_eq!(find_option(&usual, "reject_once").map(|offer| offer.id.as_str()), Some("o2"));
        assert_eq!(find_option(&usual, "maybe"), None);
    }
}
