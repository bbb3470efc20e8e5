//! Hostile texts and names.

use hob_domain::AppName;
use hob_domain::session::{
    Accepted, DeleteFilter, EventRange, IdempotencyKey, NewEvent, OpenLimits, Repeat, Session,
    SessionFilter, SessionSetup, TurnEnding, TurnState, UsageNote,
};
use serde_json::json;

use super::{
    Fixture, after, app, at, ending, event, find_turn, id, lease, list, node, prompts, remembered,
    request, session, sessionless, usage_on,
};
use hob_domain::session::TurnRequest;

/// Every text is returned as it was stored.
const TEXTS: [&str; 9] = [
    "",
    "\0",
    "a\0b\0\0",
    "\u{1a}0\u{1a}1\u{1a}",
    "'; DROP TABLE events; --",
    "\"\\ $1 ?1 %s {} \\x00 E'\\\\' $$x$$",
    "🦀 e\u{301} \u{202e}rtl \u{feff}bom \u{10ffff}",
    "\r\n\t\u{7f}\u{80}\u{2028}",
    "NULL",
];

pub async fn hostile_texts_are_stored_unchanged(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let a = app("a");
    for (byte, text) in (1..).zip(TEXTS) {
        let made = session("a", byte, 5);
        let setup = SessionSetup {
            meta: json!({text: text, "z": 1, "a": [text]}),
            cwd: text.to_owned(),
            model: Some(text.to_owned()),
            system: Some(text.to_owned()),
            mcp_servers: json!([{"name": text}]),
            ..made.setup.clone()
        };
        let made = Session { setup, agent_session: Some(text.to_owned()), last_event: 1, ..made };
        let told = NewEvent { kind: text.into(), turn: Some(u32::MAX), body: text.to_owned() };
        store.create_session(&made, told.clone(), &node(), OpenLimits::default()).await.unwrap();
        let found = store.session(&a, &id(byte)).await.unwrap().unwrap();
        assert_eq!(found, made);
        assert_eq!(found.setup.meta.to_string(), made.setup.meta.to_string(), "in its order");
        let key = IdempotencyKey { key: format!("k{text}"), digest: text.to_owned() };
        let turn = TurnRequest {
            prompt: text.to_owned(),
            files: vec![text.to_owned(), "/x".to_owned()],
            idempotency: Some(key.clone()),
            queue: 9,
        };
        let taken = store.accept_turn(&a, &id(byte), &turn, at(9)).await.unwrap();
        assert_eq!(taken, Some(Accepted::Queued(1)));
        let taken = store.accept_turn(&a, &id(byte), &turn, at(9)).await.unwrap();
        assert_eq!(taken, Some(Accepted::Repeated(1)));
        let find = |key: IdempotencyKey| {
            let (store, a) = (&store, &a);
            async move { store.find_repeat(a, &id(byte), &key).await.unwrap() }
        };
        let other_digest = IdempotencyKey { digest: format!("{text}!"), ..key.clone() };
        let other_key = IdempotencyKey { key: format!("{}!", key.key), ..key.clone() };
        assert_eq!(find(key.clone()).await, Some(Repeat::Same(1)));
        assert_eq!(find(other_digest).await, Some(Repeat::OtherRequest));
        assert_eq!(find(other_key).await, None);
        let foreign = store.find_repeat(&app("b"), &id(byte), &key).await.unwrap();
        assert_eq!(foreign, None, "another app finds nothing");
        store.start_turn(&lease(byte), 1, at(9)).await.unwrap();
        store.append_events(&lease(byte), vec![told.clone(), told.clone()], at(9)).await.unwrap();
        store.keep_agent_session(&lease(byte), &format!("{text}{text}")).await.unwrap();
        let found = store.session(&a, &id(byte)).await.unwrap().unwrap();
        assert_eq!(found.agent_session, Some(format!("{text}{text}")));
        let end = TurnEnding {
            text: text.to_owned(),
            stop_reason: Some(text.to_owned()),
            error: Some(text.to_owned()),
            events: vec![told.clone()],
            agent_session: Some(text.to_owned()),
            outbox: Some(remembered(text)),
            ..ending(1, TurnState::Failed)
        };
        store.end_turn(&lease(byte), 1, end, at(9)).await.unwrap().unwrap();
        let turn = find_turn(&*store, &a, &id(byte), 1).await.unwrap();
        assert_eq!((turn.prompt.as_str(), turn.text.as_str()), (text, text));
        assert_eq!(turn.files, [text, "/x"]);
        assert_eq!((turn.stop_reason.as_deref(), turn.error.as_deref()), (Some(text), Some(text)));
        let events = store.events(&a, &id(byte), after(0, 9)).await.unwrap().unwrap();
        assert_eq!(events.len(), 4);
        assert!(events.iter().all(|event| event.event == told), "{events:?}");
        let of_turn = store.events(&a, &id(byte), EventRange::Turn(u32::MAX)).await.unwrap();
        assert_eq!(of_turn, Some(events));
    }
    assert_eq!(prompts(&store.outbox(99, &[]).await.unwrap()), TEXTS);
}

/// Callers choose names of apps. Names that look like patterns or statements are only names.
pub async fn hostile_app_names_are_only_names(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let hostile =
        ["0", "null", "public", "select", "a.b", "a_b", "a-b", "A", "a", "hob", "current_user"];
    for (byte, name) in (1..).zip(hostile) {
        let own = session(name, byte, 5);
        store
            .create_session(&own, event("create", None), &node(), OpenLimits::default())
            .await
            .unwrap();
        let turn = sessionless(&app(name), TurnState::Finished, None);
        store.note_usage(&UsageNote::SessionlessTurn(turn), at(1)).await.unwrap();
    }
    for (byte, name) in (1..).zip(hostile) {
        let own = list(&*store, SessionFilter::App(app(name))).await;
        assert_eq!(super::names(&own), [id(byte)], "{name}");
        assert_eq!(usage_on(&*store, &app(name), at(1)).await, super::used());
    }
    assert_eq!(list(&*store, SessionFilter::App(AppName::owner())).await, []);
    assert_eq!(store.delete_sessions(&DeleteFilter::App(app("a_b"))).await.unwrap(), [id(6)]);
    assert_eq!(list(&*store, SessionFilter::All).await.len(), hostile.len() - 1);
}

/// Large bodies: a megabyte, many at once, and text with the largest encoding.
pub async fn large_bodies_are_stored_unchanged(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    store
        .create_session(&session("a", 1, 5), event("create", None), &node(), OpenLimits::default())
        .await
        .unwrap();
    let large = ["x", "\0", "🦀", "'\\\u{1a}"].map(|piece| piece.repeat((1 << 20) / piece.len()));
    let events: Vec<NewEvent> = large
        .iter()
        .map(|body| NewEvent { kind: "message".into(), turn: Some(1), body: body.clone() })
        .collect();
    store.append_events(&lease(1), events.clone(), at(9)).await.unwrap();
    let many: Vec<NewEvent> = (0..1000).map(|_| event("message", Some(1))).collect();
    let stored = store.append_events(&lease(1), many, at(9)).await.unwrap();
    assert_eq!(stored.last().unwrap().seq, 1005);
    for (last, event) in (1..).zip(&events) {
        let found = store.events(&app("a"), &id(1), after(last, 1)).await.unwrap().unwrap();
        assert!(found[0].event == *event, "a large body is another");
    }
    let prompt = TurnRequest { prompt: large[1].clone(), ..request("") };
    store.accept_turn(&app("a"), &id(1), &prompt, at(9)).await.unwrap();
    let turn = find_turn(&*store, &app("a"), &id(1), 1).await.unwrap();
    assert!(turn.prompt == large[1], "a large prompt is another");
}
