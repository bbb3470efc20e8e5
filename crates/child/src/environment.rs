//! The environment an agent gets: an explicit allow-list, never the gateway's own.

use std::ffi::{OsStr, OsString};

/// The variables that every agent gets, in addition to those in its settings.
const DEFAULT_VARIABLES: &[&str] =
    &["PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR"];

/// Builds an agent's environment from the caller's.
///
/// A variable of `inherited` passes when it is on the short list every agent gets or matches one of
/// `pass` (a name, or a prefix followed by `*`). `set` wins over both. Everything else is dropped.
pub fn cleaned_environment(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    pass: &[String],
    set: impl IntoIterator<Item = (String, String)>,
) -> Vec<(OsString, OsString)> {
    let mut out: Vec<(OsString, OsString)> = inherited
        .into_iter()
        .filter(|(name, _)| {
            DEFAULT_VARIABLES.iter().any(|p| name_matches(p, name))
                || pass.iter().any(|p| name_matches(p, name))
        })
        .collect();
    for (name, value) in set {
        let name = OsString::from(name);
        out.retain(|(n, _)| *n != name);
        out.push((name, OsString::from(value)));
    }
    out
}

/// Returns whether a variable's name matches a pattern: the name itself, or a prefix followed by `*`.
pub fn name_matches(pattern: &str, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pass: &[&str], set: &[(&str, &str)], expect: &[(&str, &str)]) {
        let inherited = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("SECRET", "x"),
            ("ANTHROPIC_API_KEY", "k"),
            ("HOB_ADMIN_TOKEN", "t"),
        ];
        let out = cleaned_environment(
            inherited.map(|(k, v)| (k.into(), v.into())),
            &pass.iter().map(|s| s.to_string()).collect::<Vec<_>>(),
            set.iter().map(|(k, v)| (k.to_string(), v.to_string())),
        );
        let out: Vec<(&str, &str)> =
            out.iter().map(|(k, v)| (k.to_str().unwrap(), v.to_str().unwrap())).collect();
        assert_eq!(out, expect);
    }

    #[test]
    fn drops_everything_that_is_not_named() {
        check(&[], &[], &[("PATH", "/bin"), ("LC_ALL", "C")]);
    }

    #[test]
    fn passes_names_and_prefixes() {
        check(
            &["ANTHROPIC_*"],
            &[],
            &[("PATH", "/bin"), ("LC_ALL", "C"), ("ANTHROPIC_API_KEY", "k")],
        );
        check(&["SECRET"], &[], &[("PATH", "/bin"), ("LC_ALL", "C"), ("SECRET", "x")]);
        check(&["SECRE"], &[], &[("PATH", "/bin"), ("LC_ALL", "C")]);
    }

    #[test]
    fn set_values_win() {
        check(
            &[],
            &[("PATH", "/opt"), ("A", "b")],
            &[("LC_ALL", "C"), ("PATH", "/opt"), ("A", "b")],
        );
    }
}
