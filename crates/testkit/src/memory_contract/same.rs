//! Two stores with the same calls give the same answers.

use std::collections::BTreeMap;

use hob_domain::memory::{
    Candidate, CandidateQuery, CandidateSet, Forget, Forgetting, KindVector, MemoryStore, NewTurn,
    PageFilter, Principal, ProjectLocation, QueryTerm, Record, RecordId, Remask, Scope, TurnRole,
    Window,
};

use super::{at, forget_everything, latest_prompts, nth, timeline, with_id};
use crate::Random;

const WORDS: [&str; 12] =
    ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lark"];

/// Does the same at random to both, and compares all that can be asked: who is proposed, what is counted, what is listed.
pub async fn whatever_is_done(
    seed: u64,
    steps: usize,
    one: &dyn MemoryStore,
    two: &dyn MemoryStore,
) {
    some_steps(seed, steps, one, two).await;
    let mut random = random(seed.wrapping_add(1));
    let [owner, shop] = speakers();
    let a = forget_everything(one, &shop).await;
    assert_eq!(a, forget_everything(two, &shop).await);
    look(&format!("seed {seed}, of the owner alone"), &owner, &mut random, one, two).await;
}

fn random(seed: u64) -> Random {
    Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
}

fn speakers() -> [Principal; 2] {
    [Principal::Owner, Principal::App("shop".to_owned())]
}

/// The same, and what was done stays.
pub async fn some_steps(seed: u64, steps: usize, one: &dyn MemoryStore, two: &dyn MemoryStore) {
    let mut random = random(seed);
    let speakers = speakers();
    let mut made = seed * 1000;
    for step in 0..steps {
        let speaker = &speakers[random.below(4) as usize / 3];
        let what = format!("seed {seed}, step {step}");
        match random.below(12) {
            0..=5 => {
                let turns: Vec<NewTurn> =
                    (0..1 + random.below(6)).map(|_| turn(&mut random, &mut made)).collect();
                let a = one.store_turns(speaker, turns.clone(), Vec::new()).await.unwrap();
                let b = two.store_turns(speaker, turns, Vec::new()).await.unwrap();
                assert_eq!(a, b, "{what}");
            }
            6 => {
                let Some(id) = some_id(one, speaker, &mut random).await else { continue };
                let turn = turn(&mut random, &mut made);
                let a = one.supersede(speaker, &id, turn.clone()).await.unwrap();
                assert_eq!(a, two.supersede(speaker, &id, turn).await.unwrap(), "{what}");
            }
            7 => {
                let forget = match random.below(5) {
                    0 => Forget::Session(format!("s{}", random.below(6))),
                    _ => match some_id(one, speaker, &mut random).await {
                        Some(id) => Forget::Record(id),
                        None => continue,
                    },
                };
                let now = at(random.below(900) as i64);
                let hide = Forgetting::hide(speaker, &forget, now);
                let a = one.forget(hide.clone()).await.unwrap();
                assert_eq!(a, two.forget(hide).await.unwrap(), "{what}");
                let undo = match random.below(4) {
                    0 => Forgetting::Erase { hidden_before: at(random.below(900) as i64) },
                    1 | 2 => Forgetting::restore(speaker, &forget, at(random.below(900) as i64)),
                    _ => continue,
                };
                let a = one.forget(undo.clone()).await.unwrap();
                assert_eq!(a, two.forget(undo).await.unwrap(), "{what}");
                index_restored(one).await;
                index_restored(two).await;
            }
            8 => {
                let a =
                    one.page(&PageFilter::All { after: random.below(30) as i64 }, 1).await.unwrap();
                let Some(record) = a.first() else { continue };
                let text = terms(&mut random);
                let (terms, vector) = analysed(&text, record.cue.as_deref());
                let change = Remask {
                    seq: record.seq,
                    text,
                    sealed: None,
                    cue: record.cue.clone(),
                    terms,
                    vector,
                    rules: 2,
                };
                one.remask(vec![change.clone()]).await.unwrap();
                two.remask(vec![change]).await.unwrap();
            }
            9 => {
                let kind = random.below(2);
                let name = format!("model {kind}");
                let (a, b) = (
                    one.vector_kind(&name, 8).await.unwrap(),
                    two.vector_kind(&name, 8).await.unwrap(),
                );
                let page = one.without_vector(a, i64::MAX, 0, 4).await.unwrap();
                assert_eq!(page, two.without_vector(b, i64::MAX, 0, 4).await.unwrap(), "{what}");
                let made: Vec<(i64, Vec<i8>)> =
                    page.turns.iter().map(|turn| (turn.seq, vector(&mut random))).collect();
                one.save_vectors(a, made.clone()).await.unwrap();
                two.save_vectors(b, made).await.unwrap();
                assert_eq!(one.embedded(a).await.unwrap(), two.embedded(b).await.unwrap());
            }
            _ => look(&what, speaker, &mut random, one, two).await,
        }
    }
    for speaker in &speakers {
        look(&format!("seed {seed}, in the end"), speaker, &mut random, one, two).await;
    }
}

/// Indexes restored turns again, as the engine does.
async fn index_restored(store: &dyn MemoryStore) {
    let restored = store.page(&super::masked_before(1), 1000).await.unwrap();
    let remask = |record: Record| {
        let (terms, vector) = analysed(&record.text, record.cue.as_deref());
        let Record { seq, text, sealed, cue, .. } = record;
        Remask { seq, text, sealed, cue, terms, vector, rules: 1 }
    };
    store.remask(restored.into_iter().map(remask).collect()).await.unwrap();
}

/// What turns of these tests are found by: terms and a vector that follow from the text and the cue alone.
pub fn analysed(text: &str, cue: Option<&str>) -> (String, Vec<i8>) {
    let letters = text.bytes().chain(cue.unwrap_or_default().bytes());
    let seed = letters.fold(7_u64, |sum, letter| sum.wrapping_mul(31).wrapping_add(letter.into()));
    (text.to_lowercase(), vector(&mut random(seed)))
}

async fn look(
    what: &str,
    speaker: &Principal,
    random: &mut Random,
    one: &dyn MemoryStore,
    two: &dyn MemoryStore,
) {
    let scope = scope(random);
    let words = (0..1 + random.below(5)).map(|_| WORDS[random.below(12) as usize]);
    let mut words: Vec<&str> = words.collect();
    words.sort_unstable();
    words.dedup();
    let terms: Vec<QueryTerm> = words
        .into_iter()
        .map(|word| QueryTerm { term: word.to_owned(), weight: 0.5 + random.below(3) as f32 })
        .collect();
    let asked = vector(random);
    let limit = 1 + random.below(12) as usize;
    let name = format!("model {}", random.below(2));
    let finer = random.below(2) == 0;
    let mut proposals = Vec::new();
    for store in [one, two] {
        let kind = store.vector_kind(&name, 8).await.unwrap();
        let finer = finer.then(|| KindVector { kind, vector: asked.clone() });
        let probe = CandidateQuery {
            terms: terms.clone(),
            vector: asked.clone(),
            model_vector: finer,
            limit,
        };
        proposals.push(plain(store.candidates(speaker, &scope, probe).await.unwrap()));
    }
    assert_eq!(proposals[0], proposals[1], "{what}: {scope:?}");
    let window = Window { scope: scope.clone(), around: None, limit: 7 };
    assert_eq!(
        timeline(one, speaker, &window).await,
        timeline(two, speaker, &window).await,
        "{what}"
    );
    assert_eq!(one.counts(speaker).await.unwrap(), two.counts(speaker).await.unwrap(), "{what}");
    assert_eq!(one.facets(speaker).await.unwrap(), two.facets(speaker).await.unwrap(), "{what}");
    let sessions = one.latest_sessions(speaker, "/a", Some("s1"), 4).await.unwrap();
    assert_eq!(
        sessions,
        two.latest_sessions(speaker, "/a", Some("s1"), 4).await.unwrap(),
        "{what}"
    );
    let prompts = latest_prompts(one, speaker, "/b", 4).await;
    assert_eq!(prompts, latest_prompts(two, speaker, "/b", 4).await, "{what}");
    let page = one.page(&PageFilter::All { after: 0 }, 1000).await.unwrap();
    assert_eq!(page, two.page(&PageFilter::All { after: 0 }, 1000).await.unwrap(), "{what}");
}

/// A proposal without the stores' own numbers for sessions.
fn plain(mut proposal: CandidateSet) -> CandidateSet {
    let mut sessions: BTreeMap<i64, i64> = BTreeMap::new();
    for Candidate { session, .. } in &proposal.candidates {
        let next = sessions.len() as i64;
        sessions.entry(*session).or_insert(next);
    }
    let number = |session: &mut i64| *session = sessions.get(session).copied().unwrap_or(-1);
    proposal.candidates.iter_mut().for_each(|candidate| number(&mut candidate.session));
    proposal.session_statistics.iter_mut().for_each(|context| number(&mut context.session));
    proposal.session_statistics.sort_by_key(|context| context.session);
    // The estimate of the sessions with a term depends on where its posting blocks are split.
    proposal.document_frequencies.iter_mut().for_each(|spread| spread.sessions = 0);
    proposal
}

async fn some_id(
    store: &dyn MemoryStore,
    speaker: &Principal,
    random: &mut Random,
) -> Option<RecordId> {
    let page = store
        .page(&PageFilter::Of { principal: speaker.clone(), after: random.below(40) as i64 }, 1)
        .await
        .unwrap();
    page.first().map(|record| record.id.clone())
}

fn scope(random: &mut Random) -> Scope {
    let second = |random: &mut Random| Some(at(random.below(900) as i64));
    Scope {
        project: (random.below(2) == 0)
            .then(|| ["/a", "/b", "/c"][random.below(3) as usize].to_owned()),
        session: (random.below(4) == 0).then(|| format!("s{}", random.below(7))),
        since: if random.below(4) == 0 { second(random) } else { None },
        until: if random.below(4) == 0 { second(random) } else { None },
    }
}

fn terms(random: &mut Random) -> String {
    let words: Vec<&str> =
        (0..1 + random.below(7)).map(|_| WORDS[random.below(12) as usize]).collect();
    words.join(" ")
}

fn vector(random: &mut Random) -> Vec<i8> {
    (0..8).map(|_| random.below(200) as i8).collect()
}

fn turn(random: &mut Random, made: &mut u64) -> NewTurn {
    let session = random.below(6);
    let second = random.below(900) as i64;
    let words = terms(random);
    *made += 1;
    let name = format!("s{session}");
    // Few different words, so that turns have several identities.
    let mut turn = match random.below(3) {
        0 => nth(&name, WORDS[random.below(3) as usize], 1 + random.below(2) as u32, second),
        1 => with_id(&name, WORDS[random.below(3) as usize], &random.below(9).to_string(), second),
        _ => with_id(&name, &words, &made.to_string(), second),
    };
    if random.below(3) == 0 {
        turn.role = TurnRole::Assistant;
    }
    if random.below(6) == 0 {
        turn.sealed = Some(vec![7; 3]);
    }
    let project = ["/a", "/b", "/c"][(session % 3) as usize];
    turn.place =
        ProjectLocation { project: project.to_owned(), worktree: format!("{project}/w{session}") };
    // No two turns have the same vector, so that their order is defined.
    turn.cue = Some(format!("cue {made}"));
    turn.vector = analysed(&turn.text, turn.cue.as_deref()).1;
    turn
}
