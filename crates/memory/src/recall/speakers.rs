//! Who speaks: the person before a colon ("Anna: I'll take it."), or the one whom the other role
//! addresses by name ("Thanks, Anna!").

use hob_domain::Role;

use crate::recall::change_words::words;
use crate::recall::types::ScoredRecord;
use crate::recall::weights::WEIGHTS;
use crate::text::analyse::truncated;

/// How many bytes the name before a colon may have, with the colon.
const MAX_SPEAKER_BYTES: usize = 40;
/// In how many bytes of a text a form of address is looked for. People are addressed at the beginning.
const MAX_ADDRESS_BYTES: usize = 2 << 10;
/// Words that stand alone before a name when somebody is addressed: "Hey Anna!"
const GREETINGS: &[&str] = &[
    "awesome",
    "bonjour",
    "bye",
    "cheers",
    "ciao",
    "congrats",
    "congratulations",
    "cool",
    "danke",
    "dear",
    "dzięki",
    "gracias",
    "grazie",
    "great",
    "hallo",
    "hello",
    "hey",
    "hi",
    "hola",
    "merci",
    "morning",
    "nice",
    "no",
    "oh",
    "ok",
    "okay",
    "right",
    "salut",
    "sure",
    "thanks",
    "thx",
    "well",
    "wow",
    "yeah",
    "yep",
    "yes",
    "you",
    "здравствуй",
    "привет",
    "спасибо",
    "cześć",
];

/// A person whom the query names, as the speaker of a record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NamedSpeaker {
    pub(crate) name: String,
    /// Where the query names them. The person whom a query is about usually comes first.
    pub(crate) position: usize,
}

/// Returns for each record its speaker, if the query names them.
///
/// Names before a colon say it best. Where there are none, the roles of a conversation get the names by
/// which they address each other.
pub(crate) fn named_speakers(query: &str, records: &[ScoredRecord]) -> Vec<Option<NamedSpeaker>> {
    let named = speakers_before_colons(query, records);
    if named.iter().any(Option::is_some) { named } else { addressed_speakers(query, records) }
}

fn speakers_before_colons(query: &str, records: &[ScoredRecord]) -> Vec<Option<NamedSpeaker>> {
    let query = query.to_lowercase();
    let query_words: Vec<&str> = words(&query).collect();
    let speakers: Vec<Option<&str>> =
        records.iter().map(|scored| speaker(&scored.record.text)).collect();
    let is_frequent = |name: &str| {
        let turns = speakers.iter().filter(|speaker| **speaker == Some(name)).count();
        turns >= WEIGHTS.min_speaker_turns
    };
    let named = |speaker: &Option<&str>| {
        let name = speaker.filter(|name| is_frequent(name))?;
        let position = position_in_query(&query_words, name)?;
        Some(NamedSpeaker { name: name.to_owned(), position })
    };
    speakers.iter().map(named).collect()
}

/// Returns the speaker of a text that is written as a conversation: "Anna: I'll take it."
fn speaker(text: &str) -> Option<&str> {
    let (name, rest) = truncated(text, MAX_SPEAKER_BYTES).split_once(':')?;
    let is_name = name.split(' ').all(|part| part.starts_with(char::is_uppercase));
    (is_name && rest.starts_with(char::is_whitespace)).then_some(name)
}

/// Returns the first position in the query of any part of a name.
fn position_in_query(query_words: &[&str], name: &str) -> Option<usize> {
    let name = name.to_lowercase();
    words(&name).filter_map(|word| query_words.iter().position(|one| *one == word)).min()
}

fn addressed_speakers(query: &str, records: &[ScoredRecord]) -> Vec<Option<NamedSpeaker>> {
    let mut names: Vec<(Role, NamedSpeaker)> = Vec::new();
    for (position, name) in words(query).enumerate() {
        let is_new = names.iter().all(|(_, known)| known.name != name);
        if let Some(role) = is_name(name).then(|| role_named(name, records)).flatten()
            && is_new
        {
            names.push((role, NamedSpeaker { name: name.to_owned(), position }));
        }
    }
    let speaker = |scored: &ScoredRecord| {
        let named = names.iter().find(|(role, _)| *role == scored.record.role);
        named.map(|(_, speaker)| speaker.clone())
    };
    records.iter().map(speaker).collect()
}

/// Returns whether a word has a capital letter followed by small ones.
fn is_name(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_uppercase)
        && !letters.as_str().is_empty()
        && letters.all(char::is_lowercase)
}

/// Returns which role has a name: the one that does not use it as a form of address, if the other one
/// does often enough.
fn role_named(name: &str, records: &[ScoredRecord]) -> Option<Role> {
    let (mut by_user, mut by_assistant) = (0_usize, 0_usize);
    for scored in records.iter().filter(|scored| addresses(&scored.record.text, name)) {
        match scored.record.role {
            Role::User => by_user += 1,
            Role::Assistant => by_assistant += 1,
        }
    }
    let most = by_user.max(by_assistant);
    let share = most as f64 / (by_user + by_assistant).max(1) as f64;
    let is_clear = most >= WEIGHTS.min_speaker_turns && share >= WEIGHTS.min_address_share;
    is_clear.then_some(if by_user > by_assistant { Role::Assistant } else { Role::User })
}

/// Returns whether a text addresses somebody by a name: at the beginning of a sentence or after a greeting,
/// before a comma or a mark, or after a comma at the end of a sentence.
fn addresses(text: &str, name: &str) -> bool {
    let text = truncated(text, MAX_ADDRESS_BYTES);
    text.match_indices(name).any(|(start, _)| {
        let (before, after) = (&text[..start], text[start + name.len()..].trim_start_matches(' '));
        let ends = after.is_empty() || after.starts_with(['!', '?', '.', '\n']);
        let before = before.trim_end_matches(' ');
        let begins_sentence = before.is_empty() || before.ends_with(['!', '?', '.', '\n', ':']);
        let follows_comma = before.ends_with(',');
        match after.starts_with(',') {
            true => begins_sentence || follows_greeting(before),
            false => ends && (begins_sentence || follows_comma || follows_greeting(before)),
        }
    })
}

fn follows_greeting(before: &str) -> bool {
    let word = before.rsplit(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    let word = word.to_lowercase();
    GREETINGS.contains(&word.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recall::pack::tests::scored;

    #[test]
    fn speaker_is_the_name_before_a_colon() {
        assert_eq!(speaker("Anna: I'll take it."), Some("Anna"));
        assert_eq!(speaker("Anna Maria Schmidt: yes"), Some("Anna Maria Schmidt"));
        assert_eq!(speaker("Анна: да"), Some("Анна"));
        for text in [
            "anna: yes",
            "Anna:yes",
            "Anna 2: yes",
            "Anna and Ben: yes",
            "std::mem",
            "",
            "Anna",
            ": x",
        ] {
            assert_eq!(speaker(text), None, "{text}");
        }
        let query: Vec<&str> = words("what did anna's sister buy?").collect();
        assert_eq!(position_in_query(&query, "Anna"), position_in_query(&query, "Schmidt Anna"));
        assert!(position_in_query(&query, "Anna").is_some());
        assert!(
            position_in_query(&query, "An").is_none()
                && position_in_query(&query, "Maria").is_none()
        );
    }

    #[test]
    fn forms_of_address_are_found() {
        for text in [
            "Anna, can you take it?",
            "Hey Anna! How are you?",
            "That is great. Thanks, Anna!",
            "Thank you Anna.",
            "What do you think, Anna?",
            "See you\nAnna",
            "Danke, Anna!",
        ] {
            assert!(addresses(text, "Anna"), "{text}");
        }
        for text in [
            "I saw Anna, and Ben.",
            "Anna's sister came.",
            "Anna came.",
            "Berlin, Anna, Rome",
            "I like Anna.",
            "anna, hello",
            "",
        ] {
            assert!(!addresses(text, "Anna"), "{text}");
        }
    }

    #[test]
    fn person_who_is_addressed_by_the_other_role_is_its_speaker() {
        let said = |role: Role, text: &str| {
            let mut one = scored(1, text);
            one.record.role = role;
            one
        };
        let turns = |address: &str, times: usize| -> Vec<ScoredRecord> {
            let mut turns = vec![said(Role::User, "I moved to Oslo."), said(Role::User, "Tea.")];
            turns.extend((0..times).map(|_| said(Role::Assistant, address)));
            turns
        };
        let roles = |query: &str, turns: &[ScoredRecord]| -> Vec<Option<Role>> {
            let named = named_speakers(query, turns).into_iter().zip(turns);
            named.map(|(named, turn)| named.map(|_| turn.record.role)).collect()
        };
        let enough = turns("Great, Anna!", WEIGHTS.min_speaker_turns);
        let mut users = vec![Some(Role::User); 2];
        users.extend(vec![None; WEIGHTS.min_speaker_turns]);
        assert_eq!(roles("Where did Anna move?", &enough), users);
        assert_eq!(roles("Where did Ben move?", &enough), vec![None; enough.len()]);
        assert_eq!(roles("where did anna move?", &enough), vec![None; enough.len()]);
        let few = turns("Great, Anna!", WEIGHTS.min_speaker_turns - 1);
        assert_eq!(roles("Where did Anna move?", &few), vec![None; few.len()]);
        let mut both = enough.clone();
        both.push(said(Role::User, "Anna, wait."));
        both.push(said(Role::User, "Hi Anna!"));
        assert_eq!(roles("Where did Anna move?", &both), vec![None; both.len()]);
    }
}
