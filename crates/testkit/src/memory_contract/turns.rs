//! Turns: each once, whatever way they come; found while they are there, and by nobody else.

use std::collections::HashMap;

use hob_domain::Timestamp;
use hob_domain::memory::{
    Around, CandidateSet, Counts, Forget, Forgetting, Identity, ImportMark, MaintenanceEvent,
    NewTurn, PageFilter, Principal, RecordId, Remask, Scope, Superseded, Tier, TurnKey, TurnRole,
    TurnSource, Window, answer_key, record_key,
};

use super::{
    Fixture, add, add_of, facts, forget_everything, found, latest_prompts, nth, probe, record,
    timeline, turn, with_id,
};

pub async fn turn_is_stored_once_with_and_without_its_id(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(add(&*store, vec![with_id("s", "go", "1", 1)]).await, (1, 0, 0));
    assert_eq!(add(&*store, vec![with_id("s", "go", "1", 9)]).await, (0, 1, 0));
    // Without an id the first turn with these words is recognised; a second one is another turn.
    assert_eq!(add(&*store, vec![nth("s", "go", 1, 1)]).await, (0, 1, 0));
    assert_eq!(add(&*store, vec![nth("s", "go", 2, 2)]).await, (1, 0, 0));
    // The record of that second one claims it; a third record is new.
    assert_eq!(add(&*store, vec![with_id("s", "go", "2", 2)]).await, (0, 1, 0));
    assert_eq!(add(&*store, vec![with_id("s", "go", "3", 3)]).await, (1, 0, 0));
    assert_eq!(add(&*store, vec![with_id("other", "go", "1", 1)]).await, (1, 0, 0));
    assert_eq!(store.counts(&Principal::Owner).await.unwrap().turns, 4);
}

pub async fn answer_and_its_record_are_one_turn(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let answer = |prompt: &str, second| {
        turn("s", "done", Identity::Answer(answer_key(prompt, "done", 1)), second)
    };
    let record = |prompt: &str, id: &str, second| {
        let key = record_key("s", id, TurnRole::User, "done");
        let answer = Some(answer_key(prompt, "done", 1));
        turn("s", "done", Identity::Record { key, answer }, second)
    };
    // The answers to two prompts are two turns, in any order.
    assert_eq!(add(&*store, vec![answer("p2", 5), answer("p1", 4)]).await, (2, 0, 0));
    assert_eq!(add(&*store, vec![answer("p1", 9)]).await, (0, 1, 0));
    assert_eq!(add(&*store, vec![record("p1", "a1", 1), record("p2", "a2", 2)]).await, (0, 2, 0));
    assert_eq!(add(&*store, vec![answer("p2", 5), record("p2", "a2", 2)]).await, (0, 2, 0));
    // A record that was stored first is found by its position, too.
    assert_eq!(add(&*store, vec![record("p3", "a3", 3), answer("p3", 7)]).await, (1, 1, 0));
    let page =
        store.page(&PageFilter::Of { principal: Principal::Owner, after: 0 }, 10).await.unwrap();
    let times: Vec<i64> = page.iter().map(|record| record.ts.as_second()).collect();
    assert_eq!(times, [2, 1, 3], "a record knows better when it was said");
}

/// A numbered turn keeps its identity, also when an earlier one comes later.
pub async fn numbered_turns_may_come_in_any_order(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(add(&*store, vec![nth("s", "go", 2, 2)]).await, (1, 0, 0));
    assert_eq!(add(&*store, vec![nth("s", "go", 1, 1)]).await, (1, 0, 0));
    assert_eq!(add(&*store, vec![nth("s", "go", 2, 2), nth("s", "go", 1, 1)]).await, (0, 2, 0));
}

/// A session of few different words comes in by several ways: whole or in pieces, with ids or
/// counted, in any order and more than once. Each turn is there once in the end.
pub async fn captures_in_any_order_store_each_turn_once(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for seed in 0..40_u64 {
        let speaker = Principal::App(format!("seed{seed}"));
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |most: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % most as u64) as usize
        };
        let length = 3 + random(12);
        let words = ["go", "stop", "yes"];
        let said: Vec<&str> = (0..length).map(|_| words[random(3)]).collect();
        let counted = |index: usize| said[..=index].iter().filter(|w| **w == said[index]).count();
        let one = |index: usize, by_id: bool| match by_id {
            true => with_id("s", said[index], &format!("id{index}"), index as i64),
            false => nth("s", said[index], counted(index) as u32, index as i64),
        };
        for _ in 0..1 + random(4) {
            let (from, by_id) = (random(length), random(2) == 0);
            let until = from + random(length - from + 1);
            // A reader of a transcript starts at its beginning.
            let from = if random(2) == 0 { from.min(until) } else { 0 };
            let from = if by_id { from } else { 0 };
            add_of(&*store, &speaker, (from..until).map(|index| one(index, by_id)).collect()).await;
        }
        add_of(&*store, &speaker, (0..length).map(|index| one(index, true)).collect()).await;
        add_of(&*store, &speaker, (0..length).map(|index| one(index, false)).collect()).await;
        let page = store
            .page(&PageFilter::Of { principal: speaker.clone(), after: 0 }, 1000)
            .await
            .unwrap();
        let mut expect: HashMap<&str, usize> = HashMap::new();
        said.iter().for_each(|word| *expect.entry(word).or_default() += 1);
        let mut there: HashMap<&str, usize> = HashMap::new();
        page.iter().for_each(|record| *there.entry(record.text.as_str()).or_default() += 1);
        assert_eq!(there, expect, "seed {seed}: {said:?}");
    }
}

pub async fn forgotten_turns_stay_forgotten(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let now = Timestamp::from_second(100).unwrap();
    add(&*store, vec![with_id("s", "secret plan", "1", 1), nth("s", "go", 1, 2)]).await;
    let page =
        store.page(&PageFilter::Of { principal: Principal::Owner, after: 0 }, 10).await.unwrap();
    for record in &page {
        let what = Forget::Record(record.id.clone());
        assert_eq!(store.forget(Forgetting::hide(&Principal::Owner, &what, now)).await.unwrap(), 1);
        assert_eq!(store.forget(Forgetting::hide(&Principal::Owner, &what, now)).await.unwrap(), 0);
    }
    assert!(found(&*store, &Principal::Owner, &Scope::default(), "secret").await.is_empty());
    assert_eq!(add(&*store, vec![with_id("s", "secret plan", "1", 1)]).await, (0, 0, 1));
    assert_eq!(add(&*store, vec![nth("s", "secret plan", 1, 1)]).await, (0, 0, 1));
    // A turn without an id is recognised by its record, too, and only once.
    assert_eq!(add(&*store, vec![with_id("s", "go", "7", 2)]).await, (0, 0, 1));
    assert_eq!(add(&*store, vec![with_id("s", "go", "8", 3)]).await, (1, 0, 0));

    add(&*store, vec![with_id("t", "one", "1", 5), with_id("t", "two", "2", 6)]).await;
    let session = Forget::Session("t".to_owned());
    assert_eq!(store.forget(Forgetting::hide(&Principal::Owner, &session, now)).await.unwrap(), 2);
    assert_eq!(add(&*store, vec![with_id("t", "never seen", "3", 7)]).await, (0, 0, 1));
    assert_eq!(add(&*store, vec![with_id("t", "later", "4", 200)]).await, (1, 0, 0));
}

pub async fn principals_and_projects_are_isolated(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let app = Principal::App("shop".to_owned());
    let mut elsewhere = with_id("s2", "the port is 7", "2", 2);
    elsewhere.place.project = "/q".to_owned();
    add(&*store, vec![with_id("s", "the port is 9", "1", 1), elsewhere]).await;
    // The same record of another speaker is that speaker's own.
    let other = vec![with_id("s", "the port is 9", "1", 1)];
    assert_eq!(store.store_turns(&app, other, Vec::new()).await.unwrap().inserted, 1);
    let all = Scope::default();
    let scope = |project: &str| Scope { project: Some(project.to_owned()), ..Scope::default() };
    assert_eq!(found(&*store, &Principal::Owner, &all, "port").await.len(), 2);
    assert_eq!(found(&*store, &Principal::Owner, &scope("/q"), "port").await, ["the port is 7"]);
    assert_eq!(found(&*store, &app, &all, "port").await, ["the port is 9"]);
    assert!(found(&*store, &app, &scope("/q"), "port").await.is_empty());
    assert!(found(&*store, &Principal::App("x".to_owned()), &all, "port").await.is_empty());
    let id =
        store.page(&PageFilter::Of { principal: Principal::Owner, after: 0 }, 1).await.unwrap()[0]
            .id
            .clone();
    assert!(record(&*store, &Principal::App("x".to_owned()), &id).await.is_none());
    // A term is never a query.
    for term in ["\" OR \"port", "port*", "scope : p1", "port NEAR", "a\"b", "\u{0}", ""] {
        let _ = store.candidates(&app, &all, probe(term)).await.unwrap();
    }
}

pub async fn windows_corrections_and_outlines_are_read(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let turns = (0..10).map(|n| with_id("s", &format!("turn {n}"), &n.to_string(), n)).collect();
    add(&*store, turns).await;
    let list = async |around: Option<Around>, limit| {
        let window = Window { scope: Scope::default(), around, limit };
        let turns = timeline(&*store, &Principal::Owner, &window).await;
        turns.iter().map(|record| record.text.clone()).collect::<Vec<_>>()
    };
    assert_eq!(list(None, 2).await, ["turn 8", "turn 9"]);
    let page =
        store.page(&PageFilter::Of { principal: Principal::Owner, after: 0 }, 20).await.unwrap();
    let around = Around::Record(page[5].id.clone());
    assert_eq!(list(Some(around), 3).await, ["turn 4", "turn 5", "turn 6"]);
    let time = Around::Time(Timestamp::from_second(0).unwrap());
    assert_eq!(list(Some(time), 2).await, ["turn 0", "turn 1"]);
    assert!(list(Some(Around::Record(RecordId::new("none"))), 2).await.is_empty());

    let mut right = with_id("note:/p", "turn 5 was wrong", "c", 50);
    right.tier = Tier::Semantic;
    let missing = store.supersede(&Principal::Owner, &RecordId::new("none"), right.clone()).await;
    assert_eq!(missing.unwrap(), Superseded::Missing);
    let corrected = store.supersede(&Principal::Owner, &page[5].id, right).await.unwrap();
    let Superseded::By(new) = corrected else { panic!("{corrected:?}") };
    let old = record(&*store, &Principal::Owner, &page[5].id).await.unwrap();
    assert_eq!(old.superseded_by.as_ref(), Some(&new));
    // With a second correction of one turn, two would be in force.
    let second = with_id("note:/p", "turn 5 was right", "d", 51);
    let already = store.supersede(&Principal::Owner, &page[5].id, second).await.unwrap();
    assert_eq!(already, Superseded::Already(new.clone()));
    let standing = facts(&*store, &Principal::Owner, "/p").await;
    assert_eq!(standing.iter().map(|r| r.id.clone()).collect::<Vec<_>>(), [new]);
    let prompts = latest_prompts(&*store, &Principal::Owner, "/p", 20).await;
    assert!(prompts.iter().any(|prompt| prompt.text == "turn 4"));
    assert!(prompts.iter().all(|prompt| prompt.text != "turn 5"), "a corrected prompt");
    let outlines = store.latest_sessions(&Principal::Owner, "/p", None, 5).await.unwrap();
    assert_eq!(outlines.len(), 1, "notes are no session");
    assert_eq!((outlines[0].turns, outlines[0].unanswered), (10, true));
    let first = outlines[0].first_prompt.as_ref().unwrap();
    assert_eq!((first.text.as_str(), &first.source), ("turn 0", &TurnSource::Hook));
}

/// A fact or a prompt is in force until somebody else than an agent corrects it.
pub async fn corrections_by_agents_leave_turns_in_force(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let fact = |text: &str, id: &str, at: i64, source: TurnSource| {
        let mut fact = with_id("note:/p", text, id, at);
        (fact.tier, fact.source) = (Tier::Semantic, source);
        fact
    };
    let own = fact("the vault opens at nine", "a", 1, TurnSource::Owner);
    let note = fact("the door is blue", "b", 2, TurnSource::Mcp);
    let prompt = with_id("s", "never force-push", "c", 3);
    add(&*store, vec![own.clone(), note.clone(), prompt.clone()]).await;
    let correct = async |old: &RecordId, turn: NewTurn| match store
        .supersede(&Principal::Owner, old, turn)
        .await
        .unwrap()
    {
        Superseded::By(new) => new,
        other => panic!("{other:?}"),
    };
    let by_agent = |text: &str, id: &str, at: i64| fact(text, id, at, TurnSource::Mcp);
    let first = correct(&own.record_id(), by_agent("it opens at ten", "d", 4)).await;
    let second = correct(&first, by_agent("it opens at noon", "e", 5)).await;
    correct(&note.record_id(), by_agent("the door is red", "f", 6)).await;
    correct(&prompt.record_id(), by_agent("always force-push", "g", 7)).await;
    let texts = async || {
        let facts = facts(&*store, &Principal::Owner, "/p").await;
        facts.into_iter().map(|fact| fact.text).collect::<Vec<_>>()
    };
    let own = "the vault opens at nine";
    assert_eq!(texts().await, [own, "always force-push", "the door is red", "it opens at noon"]);
    let has_prompt = async |text: &str| {
        let prompts = latest_prompts(&*store, &Principal::Owner, "/p", 20).await;
        prompts.iter().any(|prompt| prompt.text == text)
    };
    assert!(has_prompt("never force-push").await);
    // The owner corrects what the agent made of it.
    let last = fact("it opens at eight", "h", 8, TurnSource::Owner);
    correct(&second, last).await;
    assert_eq!(texts().await, ["it opens at eight", "always force-push", "the door is red"]);
}

/// The counts by which turns are ranked are those of the turns that are there: whatever was stored,
/// changed and forgotten before.
pub async fn index_counts_match_the_stored_turns(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    // Enough for several runs of a term, by several sessions that take turns.
    for round in 0..6_i64 {
        let one = |n: i64| {
            let number = round * 100 + n;
            let text = if number % 7 == 0 { "port port rare" } else { "port common" };
            with_id(&format!("s{}", number % 3), text, &number.to_string(), number)
        };
        add(&*store, (0..100).map(one).collect()).await;
    }
    let all = Scope::default();
    let proposal =
        store.candidates(&Principal::Owner, &all, probe("port rare none")).await.unwrap();
    assert_eq!((proposal.turns, proposal.sessions), (600, 3));
    assert_eq!(proposal.length, 86 * 3 + 514 * 2);
    let spread: Vec<u64> =
        proposal.document_frequencies.iter().map(|spread| spread.turns).collect();
    assert_eq!(spread, [600, 86, 0]);
    let total: u32 = proposal
        .session_statistics
        .iter()
        .flat_map(|c| &c.counts)
        .filter(|c| c.term == 0)
        .map(|c| c.times)
        .sum();
    assert_eq!(total, 686);
    for candidate in &proposal.candidates {
        let previous = candidate.previous.unwrap_or(candidate.seq - 3);
        assert_eq!(previous, candidate.seq - 3, "three sessions take turns");
    }

    let page =
        store.page(&PageFilter::Of { principal: Principal::Owner, after: 0 }, 1000).await.unwrap();
    let rare: Vec<_> = page.iter().filter(|record| record.text.contains("rare")).collect();
    let now = Timestamp::from_second(1000).unwrap();
    for record in &rare[..40] {
        let what = Forget::Record(record.id.clone());
        assert_eq!(store.forget(Forgetting::hide(&Principal::Owner, &what, now)).await.unwrap(), 1);
    }
    let changed = Remask {
        seq: rare[50].seq,
        text: "another".to_owned(),
        sealed: None,
        cue: None,
        terms: "another common".to_owned(),
        vector: vec![2; 4],
        rules: 2,
    };
    store.remask(vec![changed]).await.unwrap();
    let proposal =
        store.candidates(&Principal::Owner, &all, probe("port rare common another")).await.unwrap();
    let spread: Vec<u64> =
        proposal.document_frequencies.iter().map(|spread| spread.turns).collect();
    assert_eq!(spread, [559, 45, 515, 1]);
    assert_eq!((proposal.turns, proposal.length), (560, 45 * 3 + 515 * 2));
    assert_eq!(found(&*store, &Principal::Owner, &all, "another").await, ["another"]);
    forget_everything(&*store, &Principal::Owner).await;
    let proposal = store.candidates(&Principal::Owner, &all, probe("port")).await.unwrap();
    assert_eq!(proposal, CandidateSet::default());
}

pub async fn scopes_limit_sessions_and_times(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let turns = (0..20)
        .map(|n| with_id(["s", "t"][n as usize % 2], &format!("port {n}"), &n.to_string(), n));
    add(&*store, turns.collect()).await;
    let session = Scope { session: Some("t".to_owned()), ..Scope::default() };
    assert_eq!(found(&*store, &Principal::Owner, &session, "port").await.len(), 10);
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let timed = Scope { since: at(4), until: at(6), ..Scope::default() };
    assert_eq!(
        found(&*store, &Principal::Owner, &timed, "port").await,
        ["port 4", "port 5", "port 6"]
    );
    let nothing = Scope { session: Some("x".to_owned()), ..Scope::default() };
    assert!(found(&*store, &Principal::Owner, &nothing, "port").await.is_empty());
}

/// Marks of imports, events, what was masked by older rules, prompts, what a speaker leaves behind.
pub async fn other_state_is_stored_and_removed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mark = |size| ImportMark { path: TurnKey::of(&["/t"]), size, modified: -5 };
    let turns = vec![with_id("s", "one", "1", 1), with_id("s", &"x".repeat(2001), "2", 2)];
    let stored = store.store_turns(&Principal::Owner, turns, vec![mark(7), mark(9)]).await.unwrap();
    assert_eq!(stored.inserted, 2);
    assert_eq!(store.imported(vec![mark(7), mark(9)]).await.unwrap(), [mark(9)]);
    for n in 0..3 {
        let event =
            MaintenanceEvent { at: super::at(n), kind: "k".to_owned(), detail: n.to_string() };
        store.note_event(event).await.unwrap();
    }
    let events = store.events(2).await.unwrap();
    assert_eq!(events.iter().map(|event| &*event.detail).collect::<Vec<_>>(), ["2", "1"]);
    let old = store.page(&super::masked_before(2), 9).await.unwrap();
    assert_eq!(old.len(), 2);
    let others = PageFilter::MaskedBefore { rules: 2, without: vec![old[0].seq] };
    assert_eq!(store.page(&others, 9).await.unwrap(), [old[1].clone()]);
    assert!(store.page(&super::masked_before(1), 9).await.unwrap().is_empty());
    let prompts = latest_prompts(&*store, &Principal::Owner, "/p", 9).await;
    assert_eq!(prompts.iter().map(|record| &*record.text).collect::<Vec<_>>(), ["one"]);
    let counts = store.counts(&Principal::Owner).await.unwrap();
    assert_eq!((counts.turns, counts.sessions, counts.projects), (2, 1, 1));
    assert_eq!(counts.last_ts, Some(super::at(2)));
    // What was forgotten of a speaker is unknown to whoever has the name next.
    let app = Principal::App("shop".to_owned());
    let one = || vec![with_id("s", "one", "1", 1)];
    assert_eq!(add_of(&*store, &app, one()).await, (1, 0, 0));
    let session = Forget::Session("s".to_owned());
    assert_eq!(store.forget(Forgetting::hide(&app, &session, super::at(9))).await.unwrap(), 1);
    assert_eq!(add_of(&*store, &app, one()).await, (0, 0, 1));
    assert_eq!(forget_everything(&*store, &app).await, 0);
    assert_eq!(add_of(&*store, &app, one()).await, (1, 0, 0));
    assert_eq!(forget_everything(&*store, &app).await, 1);
    assert_eq!(store.counts(&app).await.unwrap(), Counts::default());
    assert_eq!(store.counts(&Principal::Owner).await.unwrap(), counts);
}
