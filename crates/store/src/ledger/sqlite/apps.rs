//! Apps in SQLite.

use async_trait::async_trait;
use hob_domain::{App, AppFilter, AppName, AppStore, StoreError, TokenHash};
use rusqlite::{ErrorCode, Row, params};

use super::Ledger;
use crate::sqlite::failed;

#[async_trait]
impl AppStore for Ledger {
    async fn create_app(&self, app: &App, token: TokenHash) -> Result<(), StoreError> {
        let app = app.clone();
        self.database
            .write(move |transaction| {
                let inserted = transaction.execute(
                    "INSERT INTO apps (name, token_hash, created_at) VALUES (?1, ?2, ?3)",
                    params![app.name.as_str(), token.to_hex(), app.created_at.to_string()],
                );
                match inserted {
                    Ok(_) => Ok(()),
                    Err(error)
                        if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) =>
                    {
                        Err(StoreError::Exists(format!("an app named {}", app.name)))
                    }
                    Err(error) => Err(failed(error)),
                }
            })
            .await
    }

    async fn apps(&self, filter: AppFilter) -> Result<Vec<App>, StoreError> {
        let token = match filter {
            AppFilter::All => None,
            AppFilter::Token(token) => Some(token),
        };
        self.database
            .read(move |connection| {
                let sql = match token {
                    None => "SELECT name, created_at, token_hash FROM apps WHERE ?1 IS NULL ORDER BY name",
                    Some(_) => "SELECT name, created_at, token_hash FROM apps WHERE token_hash = ?1",
                };
                let mut statement = connection.prepare_cached(sql).map_err(failed)?;
                let hash = token.map(TokenHash::to_hex);
                let rows = statement
                    .query_map([hash], |row| Ok((app(row), row.get::<_, String>(2)?)))
                    .map_err(failed)?;
                let rows: Vec<_> = rows.collect::<Result<_, _>>().map_err(failed)?;
                // The index finds the row of a token; the hashes are then compared in constant time.
                let is_meant = |hash: &str| token.is_none() || TokenHash::from_hex(hash) == token;
                rows.into_iter().filter(|(_, hash)| is_meant(hash)).map(|(app, _)| app).collect()
            })
            .await
    }

    async fn remove_app(&self, name: &AppName) -> Result<bool, StoreError> {
        let name = name.clone();
        self.database
            .write(move |transaction| {
                let removed = transaction
                    .execute("DELETE FROM apps WHERE name = ?1", [name.as_str()])
                    .map_err(failed)?;
                Ok(removed > 0)
            })
            .await
    }
}

fn app(row: &Row<'_>) -> Result<App, StoreError> {
    let text = |column| row.get::<_, String>(column).map_err(failed);
    let damaged = |what: &str| StoreError::Failed(format!("an app's {what} is damaged"));
    Ok(App {
        name: AppName::new(text(0)?).map_err(|_| damaged("name"))?,
        created_at: text(1)?.parse().map_err(|_| damaged("time of creation"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::{DataKey, Token};

    fn key(byte: u8) -> DataKey {
        DataKey::from_bytes([byte; 32])
    }

    fn an_app(name: &str) -> App {
        App {
            name: AppName::new(name).unwrap(),
            created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
        }
    }

    #[tokio::test]
    async fn the_file_says_nothing_without_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hob.db");
        let ledger = Ledger::open(&path, &key(1)).unwrap();
        ledger
            .create_app(&an_app("needle-in-a-file"), Token::from_random([9; 32]).hash())
            .await
            .unwrap();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(6).any(|window| window == b"needle" || window == b"SQLite"));
        }
        let wrong = Ledger::open(&path, &key(2));
        assert!(matches!(wrong, Err(crate::OpenError::WrongKey(_))));
    }
}
