//! Rules of the user: those that recur in several sessions ("use pnpm only"), and standing ones that
//! were said once ("never force-push").
//!
//! They are found in the latest prompts on request. Nothing is stored, so that forgetting a prompt
//! also forgets its rule.

use std::collections::HashSet;

use hob_domain::Timestamp;
use hob_domain::memory::{Record, TurnSource};

use crate::recall::standing_rules::is_standing;
use crate::text::analyse::Analyser;

/// How many of the latest prompts are searched.
pub(crate) const MAX_PROMPTS: usize = 400;
/// How many characters a prompt may have to be searched.
pub(crate) const MAX_PROMPT_CHARS: usize = 2000;
/// How many rules that were said once are returned.
const MAX_RULES_SAID_ONCE: usize = 10;
/// In how many sessions a rule must occur, unless it is a standing one.
const MIN_SESSIONS: usize = 2;
/// Two sentences are the same rule from this Jaccard similarity of their terms on.
const MIN_SIMILARITY: f64 = 0.6;
/// A prompt of more lines may be pasted text, whose rules are not those of the user.
const MAX_OWN_LINES: usize = 6;
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
    /// Whether all of it comes from imported transcripts.
    pub(crate) imported: bool,
}

struct RuleGroup<'a> {
    rule: RecurringRule,
    terms: HashSet<String>,
    forbids: bool,
    standing: bool,
    sessions: HashSet<&'a str>,
}

/// Returns the rules of these prompts: those that recur, of most sessions first, then standing ones that
/// were said once, the newest first. The prompts are sorted from the newest to the oldest, and a standing
/// rule replaces an older one that says the opposite.
pub(crate) fn rules(prompts: &[Record], analyser: &Analyser) -> Vec<RecurringRule> {
    let marks = [DEMANDING_WORDS, FORBIDDING_WORDS].concat().join("\n");
    let marks: HashSet<String> = analyser.terms(&marks).into_iter().collect();
    let mut groups: Vec<RuleGroup<'_>> = Vec::new();
    for prompt in prompts.iter().filter(|prompt| is_of_user(prompt)) {
        let is_own = prompt.source != TurnSource::Session && !is_long(&prompt.text);
        for RuleSentence { text, forbids, is_quoted } in rule_sentences(&prompt.text) {
            let mut terms: HashSet<String> = analyser.content_terms(text).into_iter().collect();
            if terms.len() < 2 {
                continue;
            }
            terms.retain(|term| !marks.contains(term));
            let imported = prompt.source.is_import();
            let mut similar: Vec<&mut RuleGroup<'_>> =
                groups.iter_mut().filter(|one| is_similar(&one.terms, &terms)).collect();
            if similar.iter().any(|one| one.standing && one.forbids != forbids) {
                continue;
            }
            if let Some(group) = similar.iter_mut().find(|one| one.forbids == forbids) {
                group.sessions.insert(&prompt.session);
                group.rule.imported &= imported;
                continue;
            }
            let rule =
                RecurringRule { text: text.to_owned(), last: prompt.ts, sessions: 0, imported };
            let standing = is_own && !is_quoted && is_standing(text);
            let sessions = HashSet::from([prompt.session.as_str()]);
            groups.push(RuleGroup { rule, terms, forbids, standing, sessions });
        }
    }
    let mut once = 0;
    groups.retain(|group| {
        let is_once = group.sessions.len() < MIN_SESSIONS;
        once += usize::from(is_once && group.standing);
        !is_once || group.standing && once <= MAX_RULES_SAID_ONCE
    });
    let mut found: Vec<RecurringRule> = groups
        .into_iter()
        .map(|group| RecurringRule { sessions: group.sessions.len(), ..group.rule })
        .collect();
    found.sort_by_key(|rule| std::cmp::Reverse((rule.sessions, rule.last)));
    found
}

/// Returns whether the user said a prompt: not an agent by a note or in a file of a repository, nor one by a message to
/// another.
fn is_of_user(prompt: &Record) -> bool {
    !prompt.source.may_be_of_agent()
        && !prompt.text.trim_start().starts_with('<')
        && !hob_transcript::claude::has_spoken_element(&prompt.text)
}

fn is_long(prompt: &str) -> bool {
    prompt.lines().filter(|line| !line.trim().is_empty()).count() > MAX_OWN_LINES
}

/// A sentence that may be a rule.
struct RuleSentence<'a> {
    text: &'a str,
    /// Whether it forbids something.
    forbids: bool,
    /// Whether it is in a code fence or in a quotation.
    is_quoted: bool,
}

/// Returns the sentences of a text that are rules.
fn rule_sentences(text: &str) -> impl Iterator<Item = RuleSentence<'_>> {
    let mut is_fenced = false;
    text.lines().flat_map(move |line| {
        let begins = line.trim_start();
        let fence = ["```", "~~~"].into_iter().find(|fence| begins.starts_with(fence));
        // A fence may also open and close on one line.
        is_fenced ^= fence.is_some_and(|fence| begins.matches(fence).count() == 1);
        let is_quoted = is_fenced || fence.is_some() || begins.starts_with('>');
        line.split(['!', '。', '！', ';'])
            .flat_map(|part| part.split(". "))
            .map(str::trim)
            .filter_map(move |text| Some(RuleSentence { text, forbids: forbids(text)?, is_quoted }))
    })
}

/// Returns whether a sentence forbids something; `None` if it is not a rule.
fn forbids(sentence: &str) -> Option<bool> {
    if sentence.len() > MAX_RULE_BYTES || sentence.ends_with('?') {
        return None;
    }
    let words = sentence.to_lowercase().replace('’', "'");
    let has = |list: &[&str]| list.iter().any(|one| has_phrase(&words, one));
    let forbids = has(FORBIDDING_WORDS);
    (forbids || has(DEMANDING_WORDS)).then_some(forbids)
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
        let found = rules(&records, &Analyser::default());
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
        // The newer rule replaces the older one.
        let squash = vec![("always squash commits".to_owned(), 1)];
        assert_eq!(found(&[("a", "always squash commits"), ("b", "never squash commits")]), squash);
        assert_eq!(
            found(&[("a", "only squash the commits"), ("a", "only squash the commits")]),
            []
        );
        assert_eq!(
            found(&[("a", "nevertheless commits land"), ("b", "nevertheless commits land")]),
            []
        );
    }

    #[test]
    fn standing_rules_of_the_user_are_found_once_said() {
        let all = found(&[
            ("a", "Looks good. Never force-push, please.\nthen merge"),
            ("b", "<teammate-message>Never touch the tests</teammate-message>"),
        ]);
        assert_eq!(all, [("Never force-push, please.".to_owned(), 1)]);
        let note = |source| Record { source, ..prompt(1, "a", "never force-push") };
        let rules_of = |source| rules(&[note(source)], &Analyser::default()).len();
        assert_eq!(rules_of(TurnSource::Import), 1);
        let others =
            [TurnSource::Mcp, TurnSource::Agent, TurnSource::Session, TurnSource::Repository];
        for source in others {
            assert_eq!(rules_of(source), 0);
        }
        let many: Vec<String> =
            (0..30).map(|n| format!("never use tool{n}x for part{n}y")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|text| ("a", text.as_str())).collect();
        assert_eq!(found(&many).len(), MAX_RULES_SAID_ONCE);
    }

    #[test]
    fn passing_remark_does_not_replace_the_opposite_rule() {
        let pnpm = ("always use pnpm".to_owned(), 2);
        assert_eq!(
            found(&[
                ("c", "don't use pnpm yet"),
                ("b", "always use pnpm"),
                ("a", "always use pnpm"),
                ("d", "never use pnpm"),
            ]),
            [pnpm]
        );
    }

    #[test]
    fn pasted_text_is_not_a_rule_that_was_said_once() {
        for pasted in [
            "Review this:\n```\nNever force-push to main\n```",
            "He wrote:\n> Hello. Never force-push to main",
            "Fix it:\na\nb\nc\nd\ne\nNever force-push to main",
            "Look:\n<bash-stdout>\nNever force-push to main\n</bash-stdout>",
            "Look: <teammate-message id=\"x\">\nNever force-push to main\n</teammate-message>",
        ] {
            assert_eq!(found(&[("a", pasted)]), [], "{pasted}");
        }
        let own = "Run it:\n```\nmake\n```\nNever force-push to main";
        assert_eq!(found(&[("a", own)]), [("Never force-push to main".to_owned(), 1)]);
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
