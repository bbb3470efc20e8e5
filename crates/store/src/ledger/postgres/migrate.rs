//! The ledger in PostgreSQL as source or target of a migration.

use async_trait::async_trait;
use hob_domain::StoreError;
use tokio_postgres::types::ToSql;

use super::PostgresLedger;
use crate::migrate::{Cell, ColumnType, Endpoint, Row, Table};
use crate::postgres::text::{put as put_text, take as take_text};
use crate::postgres::text_cipher::TextCipher;
use crate::values::damaged;

/// The values of one column in many rows.
enum Column {
    Texts(Vec<Option<String>>),
    Numbers(Vec<Option<i64>>),
    Reals(Vec<Option<f64>>),
}

#[async_trait]
impl Endpoint<&'static Table> for PostgresLedger {
    async fn page(
        &self,
        table: &'static Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let sql = match &after {
            Some(_) => table.postgres.next_page(limit),
            None => table.postgres.first_page(limit),
        };
        let after: Vec<Box<dyn ToSql + Sync + Send>> =
            after.unwrap_or_default().into_iter().map(value).collect();
        let values: Vec<&(dyn ToSql + Sync)> =
            after.iter().map(|value| value.as_ref() as &(dyn ToSql + Sync)).collect();
        let rows = self.read_rows(&sql, &values).await?;
        rows.iter().map(|row| cells(row, table.columns, &self.texts)).collect()
    }

    async fn put(&self, table: &'static Table, rows: Vec<Row>) -> Result<(), StoreError> {
        let mut columns = Vec::new();
        for (index, kind) in table.columns.iter().enumerate() {
            columns.push(column(rows.iter().map(|row| &row[index]), *kind, &self.texts)?);
        }
        let types: Vec<&str> = columns.iter().map(Column::name).collect();
        let arrays =
            types.iter().enumerate().map(|(index, kind)| format!("${}::{kind}[]", index + 1));
        let names = (1..=types.len()).map(|index| format!("c{index}"));
        let (arrays, names): (Vec<_>, Vec<_>) = (arrays.collect(), names.collect());
        let moved = format!(
            "moved AS (SELECT * FROM unnest({}) AS rows ({}))",
            arrays.join(", "),
            names.join(", ")
        );
        let sql = match table.postgres.insert.strip_prefix("WITH ") {
            Some(rest) => format!("WITH {moved}, {rest}"),
            None => format!("WITH {moved} {}", table.postgres.insert),
        };
        let values: Vec<&(dyn ToSql + Sync)> = columns.iter().map(Column::value).collect();
        self.write_rows(&sql, &values).await
    }

    async fn last(&self, table: &'static Table) -> Result<Option<Row>, StoreError> {
        let said = &table.postgres;
        let key = said.key.replace(", ", " DESC, ");
        let sql = format!("SELECT {} ORDER BY {key} DESC LIMIT 1", said.select);
        let rows = self.read_rows(&sql, &[]).await?;
        rows.first().map(|row| cells(row, &table.columns[..table.key], &self.texts)).transpose()
    }

    async fn count(&self, table: &'static Table) -> Result<u64, StoreError> {
        let sql = match table.name {
            "usage" => "SELECT count(DISTINCT (app, day)) FROM hob.usage".to_owned(),
            name => format!("SELECT count(*) FROM hob.{name}"),
        };
        let rows = self.read_rows(&sql, &[]).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }

    /// Lets the sequences continue after the migrated rows.
    async fn finish(&self) -> Result<(), StoreError> {
        for table in ["outbox", "audit"] {
            let sql = format!(
                "SELECT setval(pg_get_serial_sequence('hob.{table}', 'id'),
                     (SELECT coalesce(max(id), 0) + 1 FROM hob.{table}), false)"
            );
            self.write_rows(&sql, &[]).await?;
        }
        Ok(())
    }
}

fn value(cell: Cell) -> Box<dyn ToSql + Sync + Send> {
    match cell {
        Cell::None => Box::new(None::<String>),
        Cell::Number(number) => Box::new(number),
        Cell::Real(number) => Box::new(number),
        Cell::Text(text) => Box::new(put_text(&text).into_owned()),
        Cell::Bytes(bytes) => Box::new(bytes),
    }
}

fn cells(
    row: &tokio_postgres::Row,
    kinds: &[ColumnType],
    texts: &TextCipher,
) -> Result<Row, StoreError> {
    let cell = |(index, kind): (usize, &ColumnType)| {
        Ok(match kind {
            ColumnType::Number => Cell::maybe(row.get(index), Cell::Number),
            ColumnType::Real => Cell::maybe(row.get(index), Cell::Real),
            ColumnType::Text | ColumnType::Hashed => {
                Cell::maybe(row.get::<_, Option<String>>(index).map(take_text), Cell::Text)
            }
            ColumnType::Sealed(kind) => {
                let stored: Option<String> = row.get(index);
                let text = stored.map(|stored| texts.open(*kind, stored)).transpose()?;
                Cell::maybe(text, Cell::Text)
            }
        })
    };
    kinds.iter().enumerate().map(cell).collect()
}

fn column<'a>(
    cells: impl Iterator<Item = &'a Cell>,
    kind: ColumnType,
    texts: &TextCipher,
) -> Result<Column, StoreError> {
    let wrong = || damaged("a row on its way");
    let stored = |text: &str| match kind {
        ColumnType::Sealed(kind) => texts.seal(kind, text),
        _ => put_text(text).into_owned(),
    };
    Ok(match kind {
        ColumnType::Number => Column::Numbers(
            cells
                .map(|cell| match cell {
                    Cell::None => Ok(None),
                    Cell::Number(number) => Ok(Some(*number)),
                    _ => Err(wrong()),
                })
                .collect::<Result<_, _>>()?,
        ),
        ColumnType::Real => Column::Reals(
            cells
                .map(|cell| match cell {
                    Cell::None => Ok(None),
                    Cell::Real(number) => Ok(Some(*number)),
                    _ => Err(wrong()),
                })
                .collect::<Result<_, _>>()?,
        ),
        ColumnType::Text | ColumnType::Hashed | ColumnType::Sealed(_) => Column::Texts(
            cells
                .map(|cell| match cell {
                    Cell::None => Ok(None),
                    Cell::Text(text) => Ok(Some(stored(text))),
                    _ => Err(wrong()),
                })
                .collect::<Result<_, _>>()?,
        ),
    })
}

impl Column {
    fn name(&self) -> &'static str {
        match self {
            Column::Texts(_) => "text",
            Column::Numbers(_) => "bigint",
            Column::Reals(_) => "double precision",
        }
    }

    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Column::Texts(values) => values,
            Column::Numbers(values) => values,
            Column::Reals(values) => values,
        }
    }
}
