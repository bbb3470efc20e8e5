//! Claude Code's transcript: one JSON record a line, each with a link to its parent.
//!
//! [`record`] knows the format and [`order`] the order of records. [`conversation`] reads them and
//! their [`block`]s for capture, [`live_record`] and [`turn_reader`] for the live backend. [`seed`] writes them.
//! [`stream_json`] is the protocol of `claude -p`, which has records of its own.

mod block;
mod command_guard;
mod conversation;
mod event;
mod live_record;
mod order;
mod paths;
mod record;
mod seed;
pub mod stream_json;
mod turn_reader;
mod user_text;

pub use command_guard::{COMMAND_GUARD, is_command};
pub(crate) use conversation::ConversationReader;
pub use event::{
    Event, PausedTurn, TurnResult, Usage, UsageById, echoes, last_text, synthesize_turn_messages,
};
pub use live_record::LiveRecord;
pub use paths::transcript_path;
pub use record::SYNTHETIC_MODEL;
pub(crate) use record::is_speaker;
pub use seed::{SeedContext, seed_transcript};
pub use turn_reader::{TurnOutcome, TurnReader};
pub use user_text::has_spoken_element;
