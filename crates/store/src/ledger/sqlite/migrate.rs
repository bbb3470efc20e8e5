//! The ledger's file as source or target of a migration.

use async_trait::async_trait;
use hob_domain::StoreError;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{ToSql, params_from_iter};

use super::Ledger;
use crate::migrate::{Cell, ColumnType, Endpoint, Row, Table};
use crate::sqlite::failed;
use crate::values::{damaged, hashed_key, key_by_hash};

#[async_trait]
impl Endpoint<&'static Table> for Ledger {
    async fn page(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = match &after {
            Some(_) => table.sqlite.next_page(limit),
            None => table.sqlite.first_page(limit),
        };
        self.database()
            .read(move |connection| {
                let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
                let after = after.unwrap_or_default();
                let mut rows = statement.query(params_from_iter(after)).map_err(failed)?;
                let mut page = Vec::new();
                while let Some(row) = rows.next().map_err(failed)? {
                    let cells = table
                        .columns
                        .iter()
                        .enumerate()
                        .map(|(index, kind)| cell(row.get_ref(index).map_err(failed)?, *kind));
                    page.push(cells.collect::<Result<Row, StoreError>>()?);
                }
                Ok(page)
            })
            .await
    }

    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        self.database()
            .write(move |transaction| {
                let mut insert = transaction.prepare_cached(table.sqlite.insert).map_err(failed)?;
                for row in rows {
                    let cells =
                        row.into_iter().zip(table.columns).map(|(cell, kind)| match (cell, kind) {
                            // PostgreSQL stores only the digest of the key.
                            (Cell::Text(hash), ColumnType::Hashed) => {
                                Cell::Text(key_by_hash(&hash))
                            }
                            (cell, _) => cell,
                        });
                    insert.execute(params_from_iter(cells)).map_err(failed)?;
                }
                Ok(())
            })
            .await
    }

    async fn last(&self, table: &'static Table) -> Result<Option<Row>, StoreError> {
        let said = &table.sqlite;
        let key = said.key.replace(", ", " DESC, ");
        let sql = format!("SELECT {} ORDER BY {key} DESC LIMIT 1", said.select);
        self.database()
            .read(move |connection| {
                let mut statement = connection.prepare(&sql).map_err(failed)?;
                let mut rows = statement.query([]).map_err(failed)?;
                let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
                let cells = table.columns[..table.key].iter().enumerate();
                let key =
                    cells.map(|(index, kind)| cell(row.get_ref(index).map_err(failed)?, *kind));
                key.collect::<Result<Row, StoreError>>().map(Some)
            })
            .await
    }

    async fn count(&self, table: &'static Table) -> Result<u64, StoreError> {
        let sql = format!("SELECT count(*) FROM {}", table.name);
        self.database()
            .read(move |connection| {
                let count = connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
                count.map(|count| count as u64).map_err(failed)
            })
            .await
    }
}

fn cell(value: ValueRef<'_>, kind: ColumnType) -> Result<Cell, StoreError> {
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| damaged("a text of the ledger"))
    };
    Ok(match (value, kind) {
        (ValueRef::Null, _) => Cell::None,
        (ValueRef::Integer(number), ColumnType::Real) => Cell::Real(number as f64),
        (ValueRef::Integer(number), _) => Cell::Number(number),
        (ValueRef::Real(number), _) => Cell::Real(number),
        (ValueRef::Text(bytes), ColumnType::Hashed) => Cell::Text(hashed_key(&text(bytes)?)),
        (ValueRef::Text(bytes), _) => Cell::Text(text(bytes)?),
        (ValueRef::Blob(_), _) => return Err(damaged("a value of the ledger")),
    })
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Cell::None => ToSqlOutput::Owned(Value::Null),
            Cell::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Cell::Real(number) => ToSqlOutput::Owned(Value::Real(*number)),
            Cell::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Cell::Bytes(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}
