//! Hostile texts and names.

use hob_domain::memory::{
    Forget, Forgetting, MaintenanceEvent, NewTurn, Principal, ProjectLocation, Scope, Superseded,
    TurnRole, TurnSource, Window,
};

use super::{Fixture, add_of, at, facts, found, latest_prompts, timeline, with_id};

const TEXTS: [&str; 9] = [
    "\u{0}",
    "a\u{0}b\u{1a}0\u{1a}",
    "'; DROP TABLE hob.memory_turns; --",
    "$1 %s {0} \\x00 \\",
    "\"quoted\" `ticks` E'\\n'",
    "ﬀ ı İ \u{202e}\u{feff} e\u{301}",
    "🦀🏳️‍🌈",
    "\r\n\t\u{7f}\u{85}\u{2028}",
    "{\"json\":[null,1e999]}",
];

/// Every field of a turn is returned as it was stored.
pub async fn hostile_texts_are_stored_unchanged(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let long = "x".repeat(20_000);
    let mut all: Vec<&str> = TEXTS.to_vec();
    all.push(&long);
    for (number, text) in all.iter().enumerate() {
        let speaker = Principal::App(format!("app{number}"));
        let session = format!("session {text}");
        let turn = NewTurn {
            place: ProjectLocation {
                project: format!("/p {text}"),
                worktree: format!("/w {text}"),
            },
            role: TurnRole::Assistant,
            sealed: Some(text.as_bytes().to_vec()),
            cue: Some(format!("cue {text}")),
            client: format!("client {text}"),
            source: TurnSource::from(format!("source {text}")),
            terms: format!("port t{}", text.replace(' ', "_")),
            vector: vec![-128, 127, 0, 5],
            ..with_id(&session, text, "1", 7)
        };
        assert_eq!(add_of(&*store, &speaker, vec![turn.clone()]).await, (1, 0, 0));
        assert_eq!(add_of(&*store, &speaker, vec![turn.clone()]).await, (0, 1, 0));
        let scope = Scope {
            project: Some(turn.place.project.clone()),
            session: Some(session.clone()),
            ..Scope::default()
        };
        assert_eq!(found(&*store, &speaker, &scope, &turn.terms).await, [*text]);
        let window = Window { scope, around: None, limit: 5 };
        let record = timeline(&*store, &speaker, &window).await.remove(0);
        assert_eq!(super::record(&*store, &speaker, &record.id).await.as_ref(), Some(&record));
        assert_eq!(record.text, *text);
        assert_eq!((record.place.clone(), record.session.clone()), (turn.place, session.clone()));
        assert_eq!((record.cue, record.sealed), (turn.cue, turn.sealed));
        assert_eq!((record.client, record.source), (turn.client.clone(), turn.source.clone()));
        assert_eq!((record.role, record.ts), (turn.role, turn.ts));
        let facets = store.facets(&speaker).await.unwrap();
        assert_eq!(facets.projects[0].root, record.place.project);
        assert_eq!(facets.clients, [(turn.client, 1)]);
        let outlines =
            store.latest_sessions(&speaker, &record.place.project, None, 5).await.unwrap();
        let answer = outlines[0].last_answer.as_ref().unwrap();
        assert_eq!((answer.text.as_str(), &answer.source), (*text, &turn.source));
        let other = Some(session.as_str());
        let others = store.latest_sessions(&speaker, &record.place.project, other, 5).await;
        assert!(others.unwrap().is_empty());
        let event =
            MaintenanceEvent { at: at(1), kind: format!("k{text}"), detail: (*text).to_owned() };
        store.note_event(event.clone()).await.unwrap();
        assert_eq!(store.events(1).await.unwrap(), [event]);
        let new = with_id(&session, "better", "2", 8);
        let by = store.supersede(&speaker, &record.id, new).await.unwrap();
        let Superseded::By(id) = by else { panic!("{by:?}") };
        let new = super::record(&*store, &speaker, &id).await.unwrap();
        assert_eq!(new.supersedes, Some(record.id));
        let whole = Forget::Session(session);
        assert_eq!(store.forget(Forgetting::hide(&speaker, &whole, at(9))).await.unwrap(), 2);
        assert_eq!(store.facets(&speaker).await.unwrap().projects, []);
    }
}

/// Names in queries are only names.
pub async fn hostile_texts_are_only_texts(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(add_of(&*store, &Principal::Owner, vec![with_id("s", "stays", "1", 1)]).await.0, 1);
    let trick = "' OR true OR speaker = '";
    for text in TEXTS.iter().chain(&[trick, "%", "_", "*", ""]) {
        let scope = Scope { project: Some((*text).to_owned()), ..Scope::default() };
        assert!(found(&*store, &Principal::Owner, &scope, "stays").await.is_empty());
        let scope = Scope { session: Some((*text).to_owned()), ..Scope::default() };
        assert!(found(&*store, &Principal::Owner, &scope, "stays").await.is_empty());
        let app = Principal::App(format!("x{}", text.replace('\0', "")));
        assert!(found(&*store, &app, &Scope::default(), "stays").await.is_empty());
        assert!(store.projects_named(&Principal::Owner, text).await.unwrap().is_empty());
        assert!(facts(&*store, &Principal::Owner, text).await.is_empty());
        assert!(latest_prompts(&*store, &Principal::Owner, text, 9).await.is_empty());
        let id = hob_domain::memory::RecordId::new(*text);
        assert!(super::record(&*store, &Principal::Owner, &id).await.is_none());
        let none = Forget::Record(id);
        assert_eq!(
            store.forget(Forgetting::hide(&Principal::Owner, &none, at(1))).await.unwrap(),
            0
        );
    }
    assert_eq!(store.projects_named(&Principal::Owner, "p").await.unwrap(), ["/p"]);
    assert_eq!(store.counts(&Principal::Owner).await.unwrap().turns, 1);
}
