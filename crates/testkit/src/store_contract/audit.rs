//! The audit log.

use hob_domain::AuditEntry;
use serde_json::{Value, json};

use super::{Fixture, at};

pub async fn audit_entries_stay_and_are_read_newest_first(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let detail = json!({"z": n, "a": "\0 ünï '\"; 🦀", "deep": [null, 1.5, {"x": true}]});
        ids.push(
            store.append_audit(at(n), "attach \0 it", "some-'session", &detail).await.unwrap(),
        );
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "numbers grow: {ids:?}");
    drop(store);
    let store = fixture.open().await;
    let numbers = |entries: Vec<AuditEntry>| -> Vec<u64> { entries.iter().map(|e| e.id).collect() };
    let newest = store.list_audit(2, None).await.unwrap();
    assert_eq!(newest[0].at, at(4));
    let text = newest[0].detail.to_string();
    assert!(text.starts_with("{\"z\":4,\"a\":"), "as it was given, in its order: {text}");
    assert_eq!(newest[0].detail["a"], Value::from("\0 ünï '\"; 🦀"));
    assert_eq!(
        (newest[0].action.as_str(), newest[0].target.as_str()),
        ("attach \0 it", "some-'session")
    );
    assert_eq!(numbers(newest), [ids[4], ids[3]]);
    assert_eq!(numbers(store.list_audit(9, Some(ids[3])).await.unwrap()), [ids[2], ids[1], ids[0]]);
    assert_eq!(numbers(store.list_audit(1, Some(u64::MAX)).await.unwrap()), [ids[4]]);
    assert!(store.list_audit(9, Some(0)).await.unwrap().is_empty());
    assert!(store.list_audit(0, None).await.unwrap().is_empty());
}
