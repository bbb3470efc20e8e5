//! What the owner's console looks at and does, beside sessions and apps.

pub(crate) mod health;
pub(crate) mod memory;
pub(crate) mod memory_change;
pub(crate) mod overview;
pub(crate) mod usage;

pub use health::{Check, Doctor, SettingRow, Verdict};
