//! Databases in which other programs record conversations.

mod cursor;
mod cursor_chat;
mod foreign;
mod goose;
mod opencode;
mod zed;

pub use cursor::CursorDatabase;
pub use cursor_chat::CursorChatDatabase;
pub use foreign::ForeignError;
pub use goose::{GooseDatabase, GooseMessageRow, GooseSessionRow};
pub use opencode::{OpencodeDatabase, OpencodePartRow, OpencodeSessionRow};
pub use zed::{ZedDatabase, ZedThreadRow};
