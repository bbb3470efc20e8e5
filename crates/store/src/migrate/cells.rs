//! Values of rows, independent of the database.

use hob_domain::StoreError;
use hob_domain::memory::TurnKey;
use sha2::{Digest, Sha256};

use crate::values::damaged;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    None,
    Number(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

pub(crate) type Row = Vec<Cell>;

impl Cell {
    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Makes a cell of an optional value.
    pub(crate) fn maybe<T>(value: Option<T>, cell: impl Fn(T) -> Cell) -> Cell {
        value.map_or(Cell::None, cell)
    }

    pub(crate) fn key(key: TurnKey) -> Cell {
        Cell::Bytes(key.bytes().to_vec())
    }

    /// Hashes the type, the length if it varies, and the bytes, so that different rows never hash the same bytes.
    pub(super) fn hash(&self, hash: &mut Sha256) {
        match self {
            Cell::None => hash.update(b"-"),
            Cell::Number(number) => {
                hash.update(b"n");
                hash.update(number.to_le_bytes());
            }
            Cell::Real(number) => {
                hash.update(b"r");
                hash.update(number.to_bits().to_le_bytes());
            }
            Cell::Text(text) => {
                hash.update(b"t");
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text.as_bytes());
            }
            Cell::Bytes(bytes) => {
                hash.update(b"b");
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
    }
}

/// The cells of a row, read one by one.
pub(crate) struct Cells(std::vec::IntoIter<Cell>);

impl Cells {
    pub(crate) fn of(row: Row) -> Cells {
        Cells(row.into_iter())
    }

    pub(crate) fn number(&mut self) -> Result<i64, StoreError> {
        self.maybe_number()?.ok_or_else(wrong)
    }

    pub(crate) fn maybe_number(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(Cell::Number(number)) => Ok(Some(number)),
            Some(Cell::None) => Ok(None),
            _ => Err(wrong()),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        self.maybe_text()?.ok_or_else(wrong)
    }

    pub(crate) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.0.next() {
            Some(Cell::Text(text)) => Ok(Some(text)),
            Some(Cell::None) => Ok(None),
            _ => Err(wrong()),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, StoreError> {
        self.maybe_bytes()?.ok_or_else(wrong)
    }

    pub(crate) fn maybe_bytes(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.0.next() {
            Some(Cell::Bytes(bytes)) => Ok(Some(bytes)),
            Some(Cell::None) => Ok(None),
            _ => Err(wrong()),
        }
    }

    pub(crate) fn key(&mut self) -> Result<TurnKey, StoreError> {
        self.maybe_key()?.ok_or_else(wrong)
    }

    pub(crate) fn maybe_key(&mut self) -> Result<Option<TurnKey>, StoreError> {
        let Some(bytes) = self.maybe_bytes()? else { return Ok(None) };
        let bytes = bytes.try_into().map_err(|_| wrong())?;
        Ok(Some(TurnKey::from_bytes(bytes)))
    }
}

fn wrong() -> StoreError {
    damaged("a row on its way")
}
