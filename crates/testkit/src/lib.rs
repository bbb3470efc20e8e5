//! The test kit: a scripted agent that speaks several protocols, a scripted model API, servers on temporary homes and a
//! client of their API, clusters, a PostgreSQL server, the contracts of the stores, and leak checks. Only tests use it.
//!
//! The same words in a prompt steer the agent and the model API; see [`script`].
#![allow(clippy::disallowed_methods, reason = "tests start programs to look at them from outside")]

pub mod agent;
pub mod campaign;
pub mod client;
pub mod cluster;
pub mod earlier_server;
pub mod http;
pub mod leak;
pub mod memory_contract;
pub mod memory_ledger;
pub mod model_api;
pub mod postgres;
pub mod programs;
pub mod proof;
pub mod proxy;
pub mod random;
pub mod script;
pub mod secret_samples;
pub mod server;
pub mod steered_memory;
pub mod stopwatch;
pub mod store_contract;
pub mod timed_output;
pub mod wait;
pub mod web_socket;
pub mod wire;

pub use campaign::is_campaign;
pub use client::{Client, EventStream};
pub use cluster::{Cluster, ClusterOptions};
pub use earlier_server::EarlierServer;
pub use leak::LeakCheck;
pub use memory_ledger::MemoryLedger;
pub use model_api::ModelApi;
pub use postgres::Postgres;
pub use programs::{program, strictest_sandbox, tiny_model};
pub use proof::{proved_with_program, proved_with_samples};
pub use proxy::Proxy;
pub use random::Random;
pub use secret_samples::{SecretSample, parse_secret_samples};
pub use server::{HobServer, TestHome};
pub use steered_memory::SteeredMemory;
pub use stopwatch::Stopwatch;
pub use timed_output::output_in_time;
pub use wait::{wait_until, wait_until_ok};
pub use web_socket::WebSocket;
pub use wire::Wire;
