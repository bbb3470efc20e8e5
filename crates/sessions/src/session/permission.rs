//! What an agent's question is answered with. Pure.

use hob_domain::session::Permissions;

use hob_agents::driver::{PermissionOption, PermissionOptionKind, PermissionRequest};

/// What to do about a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// Answer with this option; `None` when the agent offers nothing that fits.
    Answer(Option<String>),
    /// The caller is asked.
    AskCaller,
}

/// By the session's policy.
pub(super) fn by_policy(policy: Permissions, ask: &PermissionRequest) -> Choice {
    match policy {
        Permissions::Ask => Choice::AskCaller,
        Permissions::Deny => Choice::Answer(rejection(ask)),
        Permissions::Allow => {
            let kinds = [PermissionOptionKind::AllowOnce, PermissionOptionKind::AllowAlways];
            Choice::Answer(first_of(ask, &kinds))
        }
    }
}

/// The option that says no. By its kind: names and ids differ between agents and their versions.
pub(crate) fn rejection(ask: &PermissionRequest) -> Option<String> {
    first_of(ask, &[PermissionOptionKind::RejectOnce, PermissionOptionKind::RejectAlways])
}

/// The option a caller means: by its id, else by its kind.
pub(super) fn meant<'a>(ask: &'a PermissionRequest, word: &str) -> Option<&'a PermissionOption> {
    let by_id = ask.options.iter().find(|offer| offer.id == word);
    by_id.or_else(|| ask.options.iter().find(|offer| offer.kind.as_str() == word))
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
    fn chosen_by_kind() {
        use PermissionOptionKind::{AllowAlways, AllowOnce, Other, RejectAlways, RejectOnce};
        let usual = ask(&[AllowAlways, AllowOnce, RejectOnce]);
        let answer = |text: &str| Choice::Answer(Some(text.to_owned()));
        assert_eq!(by_policy(Permissions::Deny, &usual), answer("o2"));
        assert_eq!(by_policy(Permissions::Allow, &usual), answer("o1"));
        assert_eq!(by_policy(Permissions::Ask, &usual), Choice::AskCaller);
        let odd = ask(&[RejectAlways, Other, AllowAlways]);
        assert_eq!(by_policy(Permissions::Deny, &odd), answer("o0"));
        assert_eq!(by_policy(Permissions::Allow, &odd), answer("o2"));
        let none = ask(&[Other]);
        assert_eq!(by_policy(Permissions::Allow, &none), Choice::Answer(None));
        assert_eq!(by_policy(Permissions::Deny, &none), Choice::Answer(None));
        assert_eq!(meant(&usual, "o1").map(|offer| offer.kind), Some(AllowOnce));
        assert_eq!(meant(&usual, "reject_once").map(|offer| offer.id.as_str()), Some("o2"));
        assert_eq!(meant(&usual, "maybe"), None);
    }
}
