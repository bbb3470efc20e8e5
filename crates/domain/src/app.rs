//! Apps: the callers of Hob. An app is identified by its token, of which only the hash is stored.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::secret::{hex, unhex};
use crate::store_error::StoreError;

/// An app's name: 1 to 64 characters of `A-Z a-z 0-9 . _ -`, beginning with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct AppName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name must begin with a letter or a digit and have 1 to 64 characters, each one of: A-Z a-z 0-9 . _ -"
)]
pub struct BadName;

impl AppName {
    pub fn new(name: impl Into<String>) -> Result<AppName, BadName> {
        let name = name.into();
        if is_name(&name) { Ok(AppName(name)) } else { Err(BadName) }
    }

    /// Returns the name under which the owner's sessions are stored. No app can have it.
    pub fn owner() -> AppName {
        AppName(OWNER.to_owned())
    }

    pub fn is_owner(&self) -> bool {
        self.0 == OWNER
    }

    /// Parses a stored name, which may be the owner's.
    pub fn stored(name: impl Into<String>) -> Result<AppName, BadName> {
        let name = name.into();
        if name == OWNER { Ok(AppName(name)) } else { AppName::new(name) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The owner's name, which is not a valid app name.
const OWNER: &str = "@owner";

impl fmt::Display for AppName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether a text is a valid name of an app or agent: safe in paths, URLs and log lines.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(allowed)
}

/// A registered app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    pub name: AppName,
    pub created_at: Timestamp,
}

/// A choice of apps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AppFilter {
    All,
    /// The app with this token.
    Token(TokenHash),
}

/// A bearer token in clear. It exists only while it is shown once and while a request is checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Makes a token from 32 random bytes.
    pub fn from_random(bytes: [u8; 32]) -> Token {
        Token(format!("hob_{}", hex(&bytes)))
    }

    /// Wraps a token that a caller sent or the owner configured.
    pub fn presented(text: impl Into<String>) -> Token {
        Token(text.into())
    }

    /// Returns the token in clear, to show it once or to write the admin's file.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// The SHA-256 of a token. Tokens are random, so a fast hash is enough. Hashes are compared in constant time.
#[derive(Debug, Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    pub fn from_hex(text: &str) -> Option<TokenHash> {
        Some(TokenHash(unhex(text)?.try_into().ok()?))
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

/// Storage of apps.
///
/// Contract: a call that returned `Ok` is durable. Calls from several processes on one store may
/// interleave; each is atomic.
#[async_trait]
pub trait AppStore: Send + Sync {
    /// Adds an app. Returns [`StoreError::Exists`] if the name is taken.
    async fn create_app(&self, app: &App, token: TokenHash) -> Result<(), StoreError>;

    /// Returns the apps that pass a filter, ordered by name.
    async fn apps(&self, filter: AppFilter) -> Result<Vec<App>, StoreError>;

    /// Removes an app; its token is invalid at once. Returns `false` if there is no such app.
    async fn remove_app(&self, name: &AppName) -> Result<bool, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["a", "my-app", "A.b_c-9", &"x".repeat(64)] {
            assert!(AppName::new(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "-x", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(AppName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_token_is_long_random_and_never_printed() {
        let token = Token::from_random([0xab; 32]);
        assert_eq!(token.expose().len(), 4 + 64);
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(token.hash(), Token::presented(token.expose()).hash());
        assert!(token.hash() != Token::from_random([0xac; 32]).hash());
        assert_eq!(TokenHash::from_hex(&token.hash().to_hex()), Some(token.hash()));
    }
}
