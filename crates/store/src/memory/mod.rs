//! Remembered turns and what finds them: one implementation per database.

pub(crate) mod postgres;
pub(crate) mod sqlite;
