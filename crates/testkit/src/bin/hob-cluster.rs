//! A cluster for benchmarks: nodes with the scripted agent on one temporary PostgreSQL, until standard input ends.
//!
//!     hob-cluster NODES
//!
//! Prints a line of JSON with `addresses`, a `token` and the nodes' `pids`. Every line of standard input is a statement
//! for the database; what it prints is answered as a line of JSON.

#![allow(clippy::disallowed_methods, reason = "it is a test's program")]

use std::io::BufRead;

use hob_testkit::{Cluster, ClusterOptions, TestHome};
use serde_json::json;

fn main() {
    let nodes = std::env::args().nth(1).and_then(|nodes| nodes.parse().ok());
    let nodes = nodes.expect("hob-cluster NODES");
    let agent = TestHome::scripted_agent("scripted", "acp", &["acp"]);
    let cluster = Cluster::start(&ClusterOptions {
        nodes,
        lease_secs: 10,
        config: format!("log = \"warn\"\n[sessions]\nmax_live = 1000\n{agent}"),
        separate_disks: false,
        proxied: false,
    });
    let token = cluster.app("bench");
    let addresses: Vec<String> = (0..nodes).map(|node| cluster.address(node)).collect();
    let pids: Vec<i32> = (0..nodes).map(|node| cluster.with(node, |server| server.pid())).collect();
    println!("{}", json!({"addresses": addresses, "token": token, "pids": pids}));
    for statement in std::io::stdin().lock().lines().map_while(Result::ok) {
        println!("{}", json!(cluster.sql(&statement)));
    }
}
