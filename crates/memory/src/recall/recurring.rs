//! What the user has said in several sessions and means to stand: "always use pnpm". It is found from the
//! latest prompts when it is asked for; nothing of it is kept, so that what is forgotten is gone here, too.

use std::collections::HashSet;

use hob_domain::Timestamp;
use hob_domain::memory::Record;

use crate::text::analyse::Analyser;

/// How many prompts are looked at.
pub(crate) const PROMPTS: usize = 400;
/// In so many sessions it was said at least.
const SESSIONS: usize = 2;
/// Sentences that share this part of their terms say the same.
const ALIKE: f64 = 0.6;
/// A rule is a short thing.
const LONGEST: usize = 240;
/// Words of one that is meant to stand; those of the second list say no. Some are parts of words, where the
/// script has no blanks.
const ALWAYS: &[&str] = &[
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
const NEVER: &[&str] = &[
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

/// A rule in the words in which it was said last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recurring {
    pub(crate) text: String,
    pub(crate) last: Timestamp,
    /// In how many sessions it was said.
    pub(crate) sessions: usize,
}

struct Group<'a> {
    rule: Recurring,
    terms: HashSet<String>,
    denies: bool,
    sessions: HashSet<&'a str>,
}

/// What recurs in prompts, which come newest first: what was said in most sessions first.
pub(crate) fn recurring(prompts: &[Record], analyser: &Analyser) -> Vec<Recurring> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for prompt in prompts {
        for (sentence, denies) in rules(&prompt.text) {
            let terms: HashSet<String> = analyser.telling(sentence).into_iter().collect();
            if terms.len() < 2 {
                continue;
            }
            let same =
                groups.iter_mut().find(|one| one.denies == denies && alike(&one.terms, &terms));
            let group = match same {
                Some(group) => group,
                None => {
                    let text = sentence.to_owned();
                    let rule = Recurring { text, last: prompt.ts, sessions: 0 };
                    groups.push(Group { rule, terms, denies, sessions: HashSet::new() });
                    groups.last_mut().expect("it was put there just now")
                }
            };
            group.sessions.insert(&prompt.session);
        }
    }
    let mut found: Vec<Recurring> = groups
        .into_iter()
        .map(|group| Recurring { sessions: group.sessions.len(), ..group.rule })
        .filter(|rule| rule.sessions >= SESSIONS)
        .collect();
    found.sort_by_key(|rule| std::cmp::Reverse((rule.sessions, rule.last)));
    found
}

/// The sentences of a text that are meant to stand, and whether they say no.
fn rules(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let ends = |c: char| matches!(c, '\n' | '!' | '。' | '！' | ';');
    let sentences = text.split(ends).flat_map(|line| line.split(". ")).map(str::trim);
    sentences.filter(|sentence| sentence.len() <= LONGEST && !sentence.ends_with('?')).filter_map(
        |sentence| {
            let words = sentence.to_lowercase().replace('’', "'");
            let has = |list: &[&str]| list.iter().any(|one| contains(&words, one));
            let denies = has(NEVER);
            (denies || has(ALWAYS)).then_some((sentence, denies))
        },
    )
}

/// Whether the words are there as such, not as a part of others; without blanks there are no others.
fn contains(words: &str, wanted: &str) -> bool {
    let alphabetic =
        wanted.starts_with(|c: char| c.is_ascii_alphabetic() || ('а'..='я').contains(&c));
    words.match_indices(wanted).any(|(at, _)| {
        let before = words[..at].chars().next_back();
        let behind = words[at + wanted.len()..].chars().next();
        !alphabetic
            || !(before.is_some_and(char::is_alphanumeric)
                || behind.is_some_and(char::is_alphanumeric))
    })
}

fn alike(a: &HashSet<String>, b: &HashSet<String>) -> bool {
    let shared = a.intersection(b).count() as f64;
    shared >= ALIKE * (a.len() + b.len()) as f64 - ALIKE * shared
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
            .map(|(place, (session, text))| prompt(100 - place as i64, session, text))
            .collect();
        let found = recurring(&records, &Analyser::default());
        found.into_iter().map(|rule| (rule.text, rule.sessions)).collect()
    }

    #[test]
    fn what_was_said_in_several_sessions_stands() {
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
    fn yes_and_no_are_two_things_and_once_is_no_rule() {
        assert_eq!(found(&[("a", "always squash commits"), ("b", "never squash commits")]), []);
        assert_eq!(found(&[("a", "always squash commits"), ("a", "always squash commits")]), []);
        assert_eq!(
            found(&[("a", "nevertheless commits land"), ("b", "nevertheless commits land")]),
            []
        );
    }

    #[test]
    fn in_other_scripts() {
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
