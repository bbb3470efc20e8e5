//! The contract of the memory store, run on both databases, and random comparisons of the two.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use hob_domain::DataKey;
use hob_domain::memory::MemoryStore;
use hob_store::{Memory, PostgresMemory};
use hob_testkit::memory_contract::{Fixture, same};
use hob_testkit::{Postgres, every_memory_contract};

const PATIENCE: Duration = Duration::from_secs(10);

fn key() -> DataKey {
    DataKey::from_bytes([5; 32])
}

struct Sqlite(tempfile::TempDir);

#[async_trait]
impl Fixture for Sqlite {
    async fn open(&self) -> Arc<dyn MemoryStore> {
        Arc::new(Memory::open(&self.0.path().join("memory.db"), &key(), PATIENCE).unwrap())
    }
}

/// The address of a database, and whether its bodies are encrypted.
struct Database(String, bool);

#[async_trait]
impl Fixture for Database {
    async fn open(&self) -> Arc<dyn MemoryStore> {
        let url = self.0.parse().unwrap();
        Arc::new(PostgresMemory::connect(&url, &key(), self.1.into(), PATIENCE).await.unwrap())
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
                    hob_testkit::memory_contract::$module::$contract(&$place).await;
                })+
            })+
        }
    };
}

macro_rules! on_all {
    ($($contracts:tt)+) => {
        on! { sqlite, Sqlite(tempfile::tempdir().unwrap()), $($contracts)+ }
        on! { postgres, Database(server().database(), true), $($contracts)+ }
        on! { postgres_plain, Database(server().database(), false), $($contracts)+ }
    };
}

every_memory_contract!(on_all);

#[tokio::test(flavor = "multi_thread")]
async fn both_stores_answer_alike() {
    for seed in 1..=8 {
        let file = Sqlite(tempfile::tempdir().unwrap());
        let database = Database(server().database(), seed % 2 == 0);
        same::whatever_is_done(seed, 60, &*file.open().await, &*database.open().await).await;
    }
}
