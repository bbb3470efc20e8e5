//! The pipes of a `claude` without a terminal: JSON records out, JSON messages in.

use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::json_lines;

/// Records that may wait to be handled. When the channel is full, the program itself waits.
pub const MAX_PENDING_RECORDS: usize = 256;
const READ_BUFFER_BYTES: usize = 16 << 10;

/// Reads records until the output ends. It runs as a task of its own, so that no partial line is lost
/// when its receiver waits for something else.
pub async fn read(output: pipe::Receiver, records: mpsc::Sender<Value>) {
    let mut output = BufReader::with_capacity(READ_BUFFER_BYTES, output);
    while let Some(line) = json_lines::next(&mut output).await {
        let record = serde_json::from_str(&line.text).unwrap_or_default();
        if records.send(record).await.is_err() {
            return;
        }
    }
}

/// Writes messages until their sender is dropped. Senders never wait for the program to read.
pub async fn write(mut input: pipe::Sender, mut messages: mpsc::UnboundedReceiver<Value>) {
    while let Some(message) = messages.recv().await {
        let line = format!("{message}\n");
        // A program that no longer reads is about to end; its exit is reported elsewhere.
        if input.write_all(line.as_bytes()).await.is_err() {
            return;
        }
    }
}
