//! What a random program attacks. A test writes it to a file, and the program reads it there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What the program may attack.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Targets {
    /// Files that must be neither read nor changed. Each contains a marker.
    pub secrets: Vec<PathBuf>,
    /// Files that may be read but not changed.
    pub readable: Vec<PathBuf>,
    /// Folders in which nothing may be created.
    pub folders: Vec<PathBuf>,
    /// Sockets that must not be connected to. They answer with a marker.
    pub sockets: Vec<PathBuf>,
    /// A terminal of the owner, on which a marker was typed.
    pub terminal: PathBuf,
    /// The name of an abstract socket that must not be connected to.
    pub abstract_socket: String,
    /// Hob's socket, by which the program may speak for its app.
    pub hob: PathBuf,
    /// `127.0.0.1:PORT` of Hob.
    pub http: String,
    /// The server's process.
    pub server: i32,
    /// What no program may ever read.
    pub markers: Vec<String>,
}
