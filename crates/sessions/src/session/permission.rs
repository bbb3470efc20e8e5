//! How an agent's permission request is answered.

use hob_domain::session::Permissions;

use hob_agents::driver::{PermissionOption, PermissionOptionKind, PermissionRequest};

/// How a permission request is decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// By the session's policy, with this option; `None` if the agent offers no suitable one.
    Answer(Option<String>),
    /// By the caller.
    AskCaller,
}

/// Decides a request by the session's policy.
pub(super) fn decide(policy: Permissions, ask: &PermissionRequest) -> Decision {
    match policy {
        Permissions::Ask => Decision::AskCaller,
        Permissions::Deny => Decision::Answer(rejection(ask)),
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
        PermissionRequest { id: "1".into(), title: "rm".into(), options: offers.collect() }
    }

    #[test]
    fn options_are_chosen_by_kind() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, Other, RejectAlways, RejectOnce};
        let usual = ask(&[AllowAlways, AllowOnce, RejectOnce]);
        let answer = |text: &str| Decision::Answer(Some(text.to_owned()));
        assert_eq!(decide(Permissions::Deny, &usual), answer("o2"));
        assert_eq!(decide(Permissions::Allow, &usual), answer("o1"));
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
