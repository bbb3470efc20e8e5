//! The contract of the ledger, on everything it may be kept in, in the same run.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use hob_domain::{DataKey, LedgerStore};
use hob_store::{Encryption, Ledger, PostgresLedger};
use hob_testkit::store_contract::Fixture;
use hob_testkit::{MemoryLedger, Postgres, every_contract};

struct Sqlite(tempfile::TempDir);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn LedgerStore> {
        let path = self.0.path().join("hob.db");
        Arc::new(Ledger::open(&path, &DataKey::from_bytes([7; 32])).unwrap())
    }
}

/// The address of a database.
struct Database(String);

#[async_trait]
impl Fixture for Database {
    async fn open(&self) -> Arc<dyn LedgerStore> {
        let url = self.0.parse().unwrap();
        let key = DataKey::from_bytes([7; 32]);
        Arc::new(PostgresLedger::connect(&url, &key, Encryption::On).await.unwrap())
    }
}

/// What the real ones are compared with must itself hold to the contract.
struct InMemory(Arc<MemoryLedger>);

#[async_trait]
impl Fixture for InMemory {
    async fn open(&self) -> Arc<dyn LedgerStore> {
        self.0.clone()
    }
}

/// One server for all tests; it ends with this process.
fn server() -> &'static Postgres {
    static SERVER: OnceLock<Postgres> = OnceLock::new();
    SERVER.get_or_init(Postgres::start_shared)
}

macro_rules! on {
    ($backend:ident, $place:expr, $($module:ident: $($contract:ident)+;)+) => {
        mod $backend {
            use super::*;
            $(mod $module {
                use super::*;
                $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $contract() {
                    hob_testkit::store_contract::$module::$contract(&$place).await;
                })+
            })+
        }
    };
}

macro_rules! on_all {
    ($($contracts:tt)+) => {
        on! { memory, InMemory(Arc::default()), $($contracts)+ }
        on! { sqlite, Sqlite(tempfile::tempdir().unwrap()), $($contracts)+ }
        on! { postgres, Database(server().database()), $($contracts)+ }
    };
}

every_contract!(on_all);
