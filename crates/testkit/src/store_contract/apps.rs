//! Apps and their tokens.

use hob_domain::{App, AppFilter, AppName, StoreError, Token, TokenHash};

use super::{Fixture, app};

fn an_app(name: &str) -> App {
    // Finer than a microsecond: it is told as it was given.
    App { name: app(name), created_at: "2026-01-02T03:04:05.123456789Z".parse().unwrap() }
}

fn token(byte: u8) -> TokenHash {
    Token::from_random([byte; 32]).hash()
}

pub async fn app_is_created_listed_and_removed(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    assert_eq!(store.apps(AppFilter::All).await.unwrap(), []);
    for (byte, name) in (1..).zip(["b", "a", "a-b", "B", "a.b", "a_b", "ab", "0"]) {
        store.create_app(&an_app(name), token(byte)).await.unwrap();
    }
    let again = store.create_app(&an_app("b"), token(99)).await;
    assert!(matches!(again, Err(StoreError::Exists(_))));
    assert_eq!(
        store.apps(AppFilter::Token(token(99))).await.unwrap().pop(),
        None,
        "nothing was changed"
    );
    let names: Vec<AppName> =
        store.apps(AppFilter::All).await.unwrap().into_iter().map(|a| a.name).collect();
    let mut sorted = names.clone();
    sorted.sort();
    assert_eq!(names, sorted, "by name, byte by byte");
    assert_eq!(names.len(), 8);

    // Another process sees it at once.
    let other = fixture.open().await;
    assert_eq!(other.apps(AppFilter::Token(token(1))).await.unwrap().pop(), Some(an_app("b")));
    assert!(other.remove_app(&app("b")).await.unwrap());
    assert!(!store.remove_app(&app("b")).await.unwrap());
    assert_eq!(store.apps(AppFilter::Token(token(1))).await.unwrap().pop(), None);
    store.create_app(&an_app("b"), token(1)).await.unwrap();
    assert_eq!(other.apps(AppFilter::Token(token(1))).await.unwrap().pop(), Some(an_app("b")));
}

/// A token that is taken is no other app's.
pub async fn token_belongs_to_one_app(fixture: &dyn Fixture) {
    let store = fixture.open().await;
    store.create_app(&an_app("a"), token(1)).await.unwrap();
    assert!(store.create_app(&an_app("b"), token(1)).await.is_err());
    assert_eq!(store.apps(AppFilter::Token(token(1))).await.unwrap().pop(), Some(an_app("a")));
    assert_eq!(store.apps(AppFilter::All).await.unwrap(), [an_app("a")]);
}
