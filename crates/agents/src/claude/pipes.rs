//! The pipes of a `claude` without a terminal: JSON records out, JSON messages in.

use hob_transcript::claude::stream_json;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::app_permits::{AppPermit, PermitsOfApp};
use crate::json_lines::LineReader;

/// Records that may wait to be handled. When the channel is full, the program itself waits.
pub const MAX_PENDING_RECORDS: usize = 32;
const READ_BUFFER_BYTES: usize = 16 << 10;

/// A record of the program. A long one has a permit, which is held until it is stored.
pub struct Record {
    pub value: Value,
    pub permit: Option<AppPermit>,
}

/// Reads records until the output ends. It runs as a task of its own, so that no partial line is lost
/// when its receiver waits for something else. A line that is too long ends the turn and the output.
pub async fn read(output: pipe::Receiver, records: mpsc::Sender<Record>, limit: PermitsOfApp) {
    let output = BufReader::with_capacity(READ_BUFFER_BYTES, output);
    let mut reader = LineReader::new(output, limit);
    loop {
        let record = match reader.next().await {
            Ok(None) => return,
            Ok(Some(line)) => {
                let value = serde_json::from_str(&line.text).unwrap_or_default();
                Record { value, permit: line.permit }
            }
            Err(error) => {
                let value = stream_json::failed_result(&error.to_string());
                let _ = records.send(Record { value, permit: None }).await;
                return;
            }
        };
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
