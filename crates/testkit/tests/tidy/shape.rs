//! The size of things: type names, storage ports, ARCHITECTURE.md.

use std::fs;

use crate::source::{production, root, types};

const MAX_TYPES_PER_NAME: usize = 3;
/// Every command has its `Args`, as is usual with clap.
const USUAL: [&str; 1] = ["Args"];
const MAX_PORT_METHODS: usize = 59;

/// Returns every type name that is defined too often, with its places.
pub fn overused_type_names() -> Vec<String> {
    let types = types(&production());
    let overused = types.iter().filter(|(name, places)| {
        places.len() > MAX_TYPES_PER_NAME && !USUAL.contains(&name.as_str())
    });
    overused
        .map(|(name, places)| format!("{name} ×{}: {}", places.len(), places.join(", ")))
        .collect()
}

/// Returns what is wrong with the number of methods of the storage ports: the traits of the domain that are called
/// `…Store`.
pub fn too_many_port_methods() -> Vec<String> {
    let mut methods: Vec<String> = Vec::new();
    for file in production().iter().filter(|file| file.krate == "crates/domain") {
        let mut port: Option<String> = None;
        for (number, line) in file.code.lines().enumerate() {
            if let Some(rest) = line.strip_prefix("pub trait ") {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                // A trait on one line has no methods.
                port = Some(name).filter(|name| name.ends_with("Store") && !line.contains("{}"));
            } else if line.starts_with('}') {
                port = None;
            }
            let line = line.trim_start();
            let method = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            if let (Some(port), Some(method)) = (&port, method) {
                let method: String =
                    method.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                methods.push(format!("{}:{} {port}::{method}", file.path, number + 1));
            }
        }
    }
    assert!(!methods.is_empty(), "the ports are no longer found");
    if methods.len() <= MAX_PORT_METHODS {
        return Vec::new();
    }
    methods.insert(0, format!("{} methods, at most {MAX_PORT_METHODS}:", methods.len()));
    methods
}

/// Returns what is wrong with the size of ARCHITECTURE.md.
pub fn long_architecture() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap_or_default();
    let mut found = Vec::new();
    let lines = text.lines().count();
    if lines > 250 {
        found.push(format!("ARCHITECTURE.md:251: {lines} lines, at most 250"));
    }
    let words = text.split_whitespace().count();
    if words >= 3000 {
        found.push(format!("ARCHITECTURE.md: {words} words, fewer than 3000"));
    }
    for (number, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        if columns > 100 {
            found.push(format!("ARCHITECTURE.md:{}: {columns} columns, at most 100", number + 1));
        }
    }
    found
}
