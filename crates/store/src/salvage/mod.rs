//! `hob store salvage`: copies what can be read of a damaged file into a new one.

mod copy;
mod reader;

pub use copy::{SalvagedTable, salvage_ledger, salvage_memory};
