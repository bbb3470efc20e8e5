//! Rules that the user repeats in several sessions: "always use pnpm".
//!
//! They are found in the latest prompts on request. Nothing is stored, so that forgetting a prompt
//! also forgets its rule.

use std::collections::HashSet;

use hob_domain::Timestamp;
use hob_domain::memory::Record;

use crate::text::analyse::Analyser;

/// How many of the latest prompts are searched.
pub(crate) const MAX_PROMPTS: usize = 400;
/// In how many sessions a rule must occur.
const MIN_SESSIONS: usize = 2;
/// Two sentences are the same rule from this Jaccard similarity of their terms on.
const MIN_SIMILARITY: f64 = 0.6;
/// A longer sentence is not a rule.
const MAX_RULE_BYTES: usize = 240;
/// Words of a rule that demands something. In writing systems without spaces they are parts of
/// words.
const DEMANDING_WORDS: &[&str] = &[
    "always",
    "prefer",
    "must",
    "only",
    "instead",
    "remember",
    "convention",
    "rule",
    "from now on",
    "всегда",
    "только",
    "вместо",
    "нужно",
    "помни",
    "总是",
    "始终",
    "必须",
    "只能",
    "记住",
    "必ず",
    "いつも",
    "常に",
    "覚えて",
];
/// Words of a rule that forbids something.
const FORBIDDING_WORDS: &[&str] = &[
    "never",
    "don't",
    "do not",
    "must not",
    "avoid",
    "stop using",
    "никогда",
    "нельзя",
    "не надо",
    "不要",
    "禁止",
    "别用",
    "しないで",
    "使わないで",
];

/// A rule, in its latest wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecurringRule {
    pub(crate) text: String,
    pub(crate) last: Timestamp,
    /// The number of sessions that have it.
    pub(crate) sessions: usize,
}

struct RuleGroup<'a> {
    rule: RecurringRule,
    terms: HashSet<String>,
    forbids: bool,
    sessions: HashSet<&'a str>,
}

/// Returns the rules that recur in prompts, those of most sessions first. The prompts are sorted
/// from the newest to the oldest.
pub(crate) fn recurring_rules(prompts: &[Record], analyser: &Analyser) -> Vec<RecurringRule> {
    let mut groups: Vec<RuleGroup<'_>> = Vec::new();
    for prompt in prompts {
        for (sentence, forbids) in rule_sentences(&prompt.text) {
            let terms: HashSet<String> = analyser.content_terms(sentence).into_iter().collect();
            if terms.len() < 2 {
                continue;
            }
            let same = groups
                .iter_mut()
                .find(|one| one.forbids == forbids && is_similar(&one.terms, &terms));
            let group = match same {
                Some(group) => group,
                None => {
                    let text = sentence.to_owned();
                    let rule = RecurringRule { text, last: prompt.ts, sessions: 0 };
                    groups.push(RuleGroup { rule, terms, forbids, sessions: HashSet::new() });
                    groups.last_mut().expect("a group was just pushed")
                }
            };
            group.sessions.insert(&prompt.session);
        }
    }
    let mut found: Vec<RecurringRule> = groups
        .into_iter()
        .map(|group| RecurringRule { sessions: group.sessions.len(), ..group.rule })
        .filter(|rule| rule.sessions >= MIN_SESSIONS)
        .collect();
    found.sort_by_key(|rule| std::cmp::Reverse((rule.sessions, rule.last)));
    found
}

/// Returns the sentences of a text that are rules, and whether they forbid something.
fn rule_sentences(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let ends = |c: char| matches!(c, '\n' | '!' | '。' | '！' | ';');
    let sentences = text.split(ends).flat_map(|line| line.split(". ")).map(str::trim);
    sentences
        .filter(|sentence| sentence.len() <= MAX_RULE_BYTES && !sentence.ends_with('?'))
        .filter_map(|sentence| {
            let words = sentence.to_lowercase().replace('’', "'");
            let has = |list: &[&str]| list.iter().any(|one| has_phrase(&words, one));
            let forbids = has(FORBIDDING_WORDS);
            (forbids || has(DEMANDING_WORDS)).then_some((sentence, forbids))
        })
}

/// Returns whether a text has a phrase as whole words; in writing systems without spaces, anywhere.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let alphabetic =
        phrase.starts_with(|c: char| c.is_ascii_alphabetic() || ('а'..='я').contains(&c));
    text.match_indices(phrase).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + phrase.len()..].chars().next();
        !alphabetic
            || !(before.is_some_and(char::is_alphanumeric)
                || after.is_some_and(char::is_alphanumeric))
    })
}

fn is_similar(a: &HashSet<String>, b: &HashSet<String>) -> bool {
    let shared = a.intersection(b).count() as f64;
    shared >= MIN_SIMILARITY * (a.len() + b.len()) as f64 - MIN_SIMILARITY * shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::memory::{ProjectLocation, RecordId, Tier, TurnRole, TurnSource};

    fn prompt(number: i64, session: &str, text: &str) -> Record {
        Record {
            id: RecordId::new(number.to_string()),
            seq: number,
            session: session.to_owned(),
            place: ProjectLocation { project: "/p".to_owned(), worktree: "/p".to_owned() },
            role: TurnRole::User,
            tier: Tier::Episodic,
            text: text.to_owned(),
            sealed: None,
            cue: None,
            ts: Timestamp::from_second(number).unwrap(),
            client: "claude".to_owned(),
            source: TurnSource::Hook,
            superseded_by: None,
            supersedes: None,
        }
    }

    fn found(prompts: &[(&str, &str)]) -> Vec<(String, usize)> {
        let records: Vec<Record> = prompts
            .iter()
            .enumerate()
            .map(|(index, (session, text))| prompt(100 - index as i64, session, text))
            .collect();
        let found = recurring_rules(&records, &Analyser::default());
        found.into_iter().map(|rule| (rule.text, rule.sessions)).collect()
    }

    #[test]
    fn rules_of_several_sessions_are_found() {
        let all = found(&[
            ("c", "Fix the build. Always use pnpm, not npm!\nthen run the tests"),
            ("b", "always use pnpm not npm please"),
            ("b", "always use pnpm not npm"),
            ("a", "run the tests"),
            ("b", "run the tests"),
            ("c", "continue"),
            ("a", "Don’t touch the generated files"),
            ("b", "don't touch generated files."),
            ("a", "Should we always rebase?"),
            ("b", "Should we always rebase?"),
        ]);
        assert_eq!(
            all,
            [
                ("Always use pnpm, not npm".to_owned(), 2),
                ("Don’t touch the generated files".to_owned(), 2)
            ]
        );
    }

    #[test]
    fn opposite_rules_differ_and_one_session_is_not_enough() {
        assert_eq!(found(&[("a", "always squash commits"), ("b", "never squash commits")]), []);
        assert_eq!(found(&[("a", "always squash commits"), ("a", "always squash commits")]), []);
        assert_eq!(
            found(&[("a", "nevertheless commits land"), ("b", "nevertheless commits land")]),
            []
        );
    }

    #[test]
    fn rules_are_found_in_other_writing_systems() {
        assert_eq!(
            found(&[("a", "提交前必须运行测试"), ("b", "提交前必须运行测试。谢谢")]).len(),
            1
        );
        assert_eq!(
            found(&[("a", "Всегда запускай тесты"), ("b", "всегда запускай тесты")]).len(),
            1
        );
    }
}
