//! Documents are stored for their app.

use hob_domain::session::DeleteFilter;
use hob_domain::{DocumentChange, DocumentKind, LedgerStore, StoredDocument};

use super::{Fixture, app, at};

fn document(name: &str, kind: DocumentKind, id: &str, second: i64, body: &str) -> StoredDocument {
    StoredDocument {
        app: app(name),
        kind,
        id: id.to_owned(),
        created_at: at(second),
        input: "[\"\\u0000 'x' \u{1F525}\"]".to_owned(),
        body: body.to_owned(),
    }
}

async fn find(
    store: &dyn LedgerStore,
    name: &str,
    kind: DocumentKind,
    id: &str,
) -> Option<StoredDocument> {
    store.documents(&app(name), kind, Some(id)).await.unwrap().pop()
}

pub async fn documents_are_stored_replaced_and_deleted(fixture: &dyn Fixture) {
    let kind = DocumentKind::Response;
    let store = fixture.open().await;
    let first = document("a", kind, "resp_1", 5, "{\"n\":1}");
    let second = document("a", kind, "resp_1", 6, "{\"n\":2}");
    let save = |one: &StoredDocument| DocumentChange::Save(one.clone());
    assert!(!store.change_document(&save(&first)).await.unwrap());
    assert_eq!(find(store.as_ref(), "a", kind, "resp_1").await, Some(first));
    assert!(store.change_document(&save(&second)).await.unwrap());
    let other = fixture.open().await;
    assert_eq!(find(other.as_ref(), "a", kind, "resp_1").await, Some(second.clone()));
    // Another app has none of them, and a document of another kind is another document.
    assert_eq!(find(store.as_ref(), "b", kind, "resp_1").await, None);
    assert_eq!(find(store.as_ref(), "a", DocumentKind::Agent, "resp_1").await, None);
    let earlier = document("a", kind, "resp_2", 4, "{}");
    store.change_document(&save(&earlier)).await.unwrap();
    store
        .change_document(&save(&document("a", DocumentKind::Agent, "agent_1", 1, "{}")))
        .await
        .unwrap();
    let all = store.documents(&app("a"), kind, None).await.unwrap();
    assert_eq!(all, [earlier, second]);
    // Only the writer that has read the stored body replaces it.
    let replace = |name: &str, kind, expected: &str, body: &str| DocumentChange::Replace {
        document: document(name, kind, "resp_1", 7, body),
        expected_body: expected.to_owned(),
    };
    for (change, is_made) in [
        (replace("a", kind, "{\"n\":1}", "{\"n\":9}"), false),
        (replace("b", kind, "{\"n\":2}", "{\"n\":9}"), false),
        (replace("a", DocumentKind::Agent, "{\"n\":2}", "{\"n\":9}"), false),
        (replace("a", kind, "{\"n\":2}", "{\"n\":3}"), true),
        (replace("a", kind, "{\"n\":2}", "{\"n\":4}"), false),
    ] {
        assert_eq!(store.change_document(&change).await.unwrap(), is_made, "{change:?}");
    }
    let third = document("a", kind, "resp_1", 7, "{\"n\":3}");
    assert_eq!(find(store.as_ref(), "a", kind, "resp_1").await, Some(third));
    assert_eq!(find(store.as_ref(), "b", kind, "resp_1").await, None);
    let delete =
        |name: &str| DocumentChange::Delete { app: app(name), kind, id: "resp_1".to_owned() };
    assert!(!store.change_document(&delete("b")).await.unwrap());
    assert!(store.change_document(&delete("a")).await.unwrap());
    assert!(!store.change_document(&delete("a")).await.unwrap());
    assert_eq!(find(store.as_ref(), "a", kind, "resp_1").await, None);
}

pub async fn old_documents_and_those_of_removed_apps_are_deleted(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let kept = [
        ("a", DocumentKind::Response, "new", 50),
        ("b", DocumentKind::Response, "new", 50),
        ("a", DocumentKind::Agent, "agent_1", 5),
        ("a", DocumentKind::Environment, "env_1", 5),
        ("a", DocumentKind::MemoryStore, "memstore_1", 5),
        ("a", DocumentKind::Memory, "mem_1", 5),
    ];
    for (name, kind, id, second) in kept {
        let change = DocumentChange::Save(document(name, kind, id, second, "{}"));
        store.change_document(&change).await.unwrap();
    }
    for kind in [
        DocumentKind::Response,
        DocumentKind::Session,
        DocumentKind::Conversation,
        DocumentKind::MessageBatch,
    ] {
        let change = DocumentChange::Save(document("a", kind, kind.as_str(), 5, "{}"));
        store.change_document(&change).await.unwrap();
    }
    store.delete_sessions(&DeleteFilter::ClosedBefore(at(10))).await.unwrap();
    for kind in [DocumentKind::Response, DocumentKind::Conversation, DocumentKind::MessageBatch] {
        assert_eq!(find(store.as_ref(), "a", kind, kind.as_str()).await, None);
    }
    for (name, kind, id, _) in kept {
        assert!(find(store.as_ref(), name, kind, id).await.is_some(), "{name} {id}");
    }
    store.delete_sessions(&DeleteFilter::App(app("a"))).await.unwrap();
    assert_eq!(find(store.as_ref(), "a", DocumentKind::Response, "new").await, None);
    assert_eq!(find(store.as_ref(), "a", DocumentKind::Agent, "agent_1").await, None);
    assert!(find(store.as_ref(), "b", DocumentKind::Response, "new").await.is_some());
}
