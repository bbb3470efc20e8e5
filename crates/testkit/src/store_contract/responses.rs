//! Responses are stored for their app.

use hob_domain::session::DeleteFilter;
use hob_domain::{ResponseChange, StoredResponse};

use super::{Fixture, app, at};

fn response(name: &str, id: &str, second: i64, body: &str) -> StoredResponse {
    StoredResponse {
        app: app(name),
        id: id.to_owned(),
        created_at: at(second),
        input: "[\"\\u0000 'x' \u{1F525}\"]".to_owned(),
        body: body.to_owned(),
    }
}

pub async fn responses_are_stored_replaced_and_deleted(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let first = response("a", "resp_1", 5, "{\"n\":1}");
    let second = response("a", "resp_1", 6, "{\"n\":2}");
    let save = |one: &StoredResponse| ResponseChange::Save(one.clone());
    assert!(!store.change_response(&save(&first)).await.unwrap());
    assert_eq!(store.response(&app("a"), "resp_1").await.unwrap(), Some(first));
    assert!(store.change_response(&save(&second)).await.unwrap());
    let other = fixture.open().await;
    assert_eq!(other.response(&app("a"), "resp_1").await.unwrap(), Some(second));
    // Another app has none of them.
    assert_eq!(store.response(&app("b"), "resp_1").await.unwrap(), None);
    let delete = |name: &str| ResponseChange::Delete { app: app(name), id: "resp_1".to_owned() };
    assert!(!store.change_response(&delete("b")).await.unwrap());
    assert!(store.change_response(&delete("a")).await.unwrap());
    assert!(!store.change_response(&delete("a")).await.unwrap());
    assert_eq!(store.response(&app("a"), "resp_1").await.unwrap(), None);
}

pub async fn old_responses_and_those_of_removed_apps_are_deleted(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    for (name, id, second) in [("a", "old", 5), ("a", "new", 50), ("b", "new", 50)] {
        let change = ResponseChange::Save(response(name, id, second, "{}"));
        store.change_response(&change).await.unwrap();
    }
    store.delete_sessions(&DeleteFilter::ClosedBefore(at(10))).await.unwrap();
    assert_eq!(store.response(&app("a"), "old").await.unwrap(), None);
    assert!(store.response(&app("a"), "new").await.unwrap().is_some());
    store.delete_sessions(&DeleteFilter::App(app("a"))).await.unwrap();
    assert_eq!(store.response(&app("a"), "new").await.unwrap(), None);
    assert!(store.response(&app("b"), "new").await.unwrap().is_some());
}
