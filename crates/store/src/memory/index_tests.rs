//! Random tests of both indexes against a plain list: whatever is stored, changed and forgotten by
//! two processes, in the middle of merges and after restarts, queries count what is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hob_domain::memory::{
    CandidateQuery, Forget, Forgetting, Identity, MemoryStore, NewTurn, PageFilter, Principal,
    ProjectLocation, QueryTerm, RecordId, Remask, Scope, Tier, TurnRole, TurnSource, record_key,
    words_key,
};
use hob_domain::{DataKey, Timestamp};
use hob_testkit::Postgres;

use crate::{Encryption, Memory, PostgresMemory};

const WORDS: [&str; 9] = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis"];
const PROJECTS: [&str; 3] = ["/a", "/b", "/c"];

/// A random generator with a fixed seed.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn terms(&mut self) -> String {
        let count = 1 + self.below(6);
        let words: Vec<&str> = (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect();
        words.join(" ")
    }
}

struct ExpectedTurn {
    id: RecordId,
    session: String,
    project: &'static str,
    terms: String,
    second: i64,
    /// How many signs of its vector equal those of the query.
    points: usize,
}

/// A store that can be opened several times.
enum TestStore {
    File(tempfile::TempDir),
    Database(String),
}

impl TestStore {
    async fn open(&self) -> Arc<dyn MemoryStore> {
        let (key, patience) = (DataKey::from_bytes([5; 32]), Duration::from_secs(5));
        match self {
            TestStore::File(folder) => {
                Arc::new(Memory::open(&folder.path().join("memory.db"), &key, patience).unwrap())
            }
            TestStore::Database(url) => {
                let url = url.parse().unwrap();
                Arc::new(
                    PostgresMemory::connect(&url, &key, Encryption::On, patience).await.unwrap(),
                )
            }
        }
    }
}

fn turn(number: usize, session: &str, project: &str, terms: &str, second: i64) -> NewTurn {
    let text = format!("{terms} {number}");
    let key = record_key(session, &number.to_string(), TurnRole::User, &text);
    NewTurn {
        identity: Identity::Record { key, answer: None },
        words: words_key(TurnRole::User, &text),
        session: session.to_owned(),
        place: ProjectLocation { project: project.to_owned(), worktree: project.to_owned() },
        role: TurnRole::User,
        tier: Tier::Episodic,
        text,
        sealed: None,
        cue: None,
        ts: Timestamp::from_second(second).unwrap(),
        at: Timestamp::from_second(second).unwrap(),
        client: "claude".to_owned(),
        source: TurnSource::Hook,
        terms: terms.to_owned(),
        vector: vector(number % 5),
        rules: 1,
    }
}

fn times(terms: &str, word: &str) -> u32 {
    terms.split(' ').filter(|term| *term == word).count() as u32
}

/// Without terms the turns with the nearest vectors are found, each once.
async fn check_vectors(memory: &dyn MemoryStore, expected: &BTreeMap<i64, ExpectedTurn>) {
    let probe =
        CandidateQuery { terms: Vec::new(), vector: vec![1; 4], model_vector: None, limit: 1000 };
    let found = memory.candidates(&Principal::Owner, &Scope::default(), probe).await.unwrap();
    assert!(found.candidates.iter().map(|one| &one.seq).eq(expected.keys()), "all have a vector");
    // A small limit selects the nearest turns, and their neighbours.
    let probe =
        CandidateQuery { terms: Vec::new(), vector: vec![1; 4], model_vector: None, limit: 1 };
    let found = memory.candidates(&Principal::Owner, &Scope::default(), probe).await.unwrap();
    let nearest = expected.iter().filter(|(_, turn)| turn.points == 4).map(|(seq, _)| *seq).max();
    if let Some(nearest) = nearest.filter(|_| expected.len() <= 8) {
        assert!(found.candidates.iter().any(|one| one.seq == nearest), "{nearest} is the nearest");
    }
}

/// A vector of four dimensions of which the first ones are positive.
fn vector(points: usize) -> Vec<i8> {
    (0..4).map(|place| if place < points { 1 } else { -1 }).collect()
}

async fn check(
    memory: &dyn MemoryStore,
    expected: &BTreeMap<i64, ExpectedTurn>,
    project: Option<&str>,
) {
    let terms =
        WORDS.iter().map(|word| QueryTerm { term: (*word).to_owned(), weight: 1.0 }).collect();
    let probe = CandidateQuery { terms, vector: Vec::new(), model_vector: None, limit: 1000 };
    let scope = Scope { project: project.map(str::to_owned), ..Scope::default() };
    let found = memory.candidates(&Principal::Owner, &scope, probe).await.unwrap();
    let inside: BTreeMap<i64, &ExpectedTurn> = expected
        .iter()
        .filter(|(_, turn)| project.is_none_or(|project| project == turn.project))
        .map(|(seq, turn)| (*seq, turn))
        .collect();
    assert_eq!(found.turns, inside.len() as u64);
    if inside.is_empty() {
        return;
    }
    for (number, word) in WORDS.iter().enumerate() {
        let having = inside.values().filter(|turn| times(&turn.terms, word) > 0).count();
        assert_eq!(
            found.document_frequencies[number].turns, having as u64,
            "{word} in {project:?}"
        );
    }
    let candidates: BTreeMap<i64, _> = found
        .candidates
        .iter()
        .filter(|candidate| candidate.in_scope)
        .map(|candidate| (candidate.seq, candidate))
        .collect();
    assert!(candidates.keys().eq(inside.keys()), "all turns have one of the words");
    for (seq, turn) in inside {
        let candidate = candidates[&seq];
        for (number, word) in WORDS.iter().enumerate() {
            let counted = candidate.counts.iter().find(|count| count.term == number);
            assert_eq!(counted.map_or(0, |count| count.times), times(&turn.terms, word));
        }
        let before = expected
            .iter()
            .filter(|(other, one)| {
                one.session == turn.session && (one.second, **other) < (turn.second, seq)
            })
            .max_by_key(|(other, one)| (one.second, **other))
            .map(|(other, _)| *other);
        assert_eq!(candidate.previous, before, "of {seq}");
    }
}

#[tokio::test]
async fn sqlite_index_counts_what_is_there() {
    for seed in 1..=6 {
        check_random_changes(seed, &TestStore::File(tempfile::tempdir().unwrap())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_index_counts_what_is_there() {
    let server = Postgres::start();
    for seed in 1..=6 {
        let url = server.database();
        let expected = check_random_changes(seed, &TestStore::Database(url.clone())).await;
        // The codes of removed turns are removed, too.
        let codes = "SELECT (SELECT sum(octet_length(codes)) / 40 FROM hob.memory_codes),
             (SELECT count(*) FROM hob.memory_vectors v, hob.memory_merge m WHERE v.seq <= m.coded),
             (SELECT count(*) FROM hob.memory_vectors)";
        let said = server.sql(&url, codes);
        let counts: Vec<usize> = said.split('|').map(|count| count.parse().unwrap()).collect();
        assert_eq!((counts[0], counts[2]), (counts[1], expected), "{said}");
        assert!(counts[0] > expected / 2, "most are packed: {said}");
    }
}

async fn check_random_changes(seed: u64, place: &TestStore) -> usize {
    // Two clients of one store, as two processes would be.
    let mut memories = [place.open().await, place.open().await];
    let mut random = SeededRandom(seed * 0x9E37_79B9);
    let mut expected: BTreeMap<i64, ExpectedTurn> = BTreeMap::new();
    let mut number = 0;
    for _ in 0..120 {
        let who = random.below(2);
        let memory = &memories[who];
        match random.below(10) {
            0..=5 => {
                let turns: Vec<NewTurn> = (0..1 + random.below(5))
                    .map(|_| {
                        number += 1;
                        let session = random.below(6);
                        let project = PROJECTS[session % PROJECTS.len()];
                        let second = 1000 + random.below(300) as i64;
                        turn(number, &format!("s{session}"), project, &random.terms(), second)
                    })
                    .collect();
                memory.store_turns(&Principal::Owner, turns.clone(), Vec::new()).await.unwrap();
                let last = expected.keys().last().copied().unwrap_or_default();
                let stored = memory.page(&PageFilter::All { after: last }, 100).await.unwrap();
                for record in stored {
                    let turn = turns.iter().find(|turn| turn.text == record.text);
                    let Some(turn) = turn else { continue };
                    let project = PROJECTS.iter().find(|one| **one == record.place.project);
                    let one = ExpectedTurn {
                        id: record.id,
                        session: record.session,
                        project: project.unwrap(),
                        terms: turn.terms.clone(),
                        second: turn.ts.as_second(),
                        points: turn.vector.iter().filter(|value| **value > 0).count(),
                    };
                    expected.insert(record.seq, one);
                }
            }
            6 => {
                let Some(seq) = pick(&mut random, &expected) else { continue };
                let what = Forget::Record(expected[&seq].id.clone());
                let now = Timestamp::UNIX_EPOCH;
                assert_eq!(
                    memory.forget(Forgetting::hide(&Principal::Owner, &what, now)).await.unwrap(),
                    1
                );
                expected.remove(&seq);
            }
            7 => {
                let Some(seq) = pick(&mut random, &expected) else { continue };
                let terms = random.terms();
                let change = Remask {
                    seq,
                    text: terms.clone(),
                    sealed: None,
                    cue: None,
                    terms: terms.clone(),
                    vector: vector(3),
                    rules: 2,
                };
                memory.remask(vec![change]).await.unwrap();
                let expected = expected.get_mut(&seq).unwrap();
                (expected.terms, expected.points) = (terms, 3);
            }
            8 => memories[who] = place.open().await,
            _ => {
                for project in [None, Some(PROJECTS[random.below(3)])] {
                    check(&**memory, &expected, project).await;
                }
                check_vectors(&**memory, &expected).await;
            }
        }
    }
    for memory in &memories {
        check(&**memory, &expected, None).await;
        check_vectors(&**memory, &expected).await;
    }
    assert!(expected.len() > 60, "there was something to count");
    expected.len()
}

fn pick(random: &mut SeededRandom, expected: &BTreeMap<i64, ExpectedTurn>) -> Option<i64> {
    if expected.is_empty() {
        return None;
    }
    expected.keys().nth(random.below(expected.len())).copied()
}
