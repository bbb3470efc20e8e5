//! Hob as a black box: the real executable on temporary homes, with scripted agents.
//!
//! A test that runs on several backends has one of `file::`, `postgres::` and `cluster::` in its name, so
//! that a filter selects those that need a PostgreSQL server.
#![allow(clippy::disallowed_methods, reason = "tests start hob to look at it from outside")]

mod acp;
mod acp_remote;
mod admin;
mod admin_memory;
mod api;
mod attacks;
mod attacks_greedy;
mod backend;
mod cli;
mod cli_commands;
mod cli_output;
mod cluster;
mod console;
mod files;
mod http;
mod live;
mod live_attach;
mod memory_apps;
mod memory_capture;
mod memory_clients;
mod memory_commands;
mod memory_forget;
mod memory_keys;
mod memory_masking;
mod memory_mcp;
mod memory_model;
mod memory_recall;
mod memory_secrets;
mod memory_setup;
mod memory_turns;
mod on_terminal;
mod postgres;
mod random_programs;
mod recovery;
mod recovery_cases;
mod recovery_faults;
mod recovery_setup;
mod run;
mod serve;
mod sessions_cancel;
mod sessions_events;
mod sessions_hob_in_agent;
mod sessions_limits;
mod sessions_memory;
mod sessions_permissions;
mod sessions_restart;
mod sessions_sandbox;
mod sessions_seed;
mod sessions_turn_failures;
mod sessions_turns;
mod setup;
mod setup_command;
mod v1;
mod v1_agent_sessions;
mod v1_batches;
mod v1_conversations;
mod v1_ignored;
mod v1_memory_stores;
mod v1_responses;
mod v1_tools;
