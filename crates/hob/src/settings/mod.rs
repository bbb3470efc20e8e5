//! Settings: flags, the environment, `config.toml` and defaults, resolved once into a plain struct
//! that keeps the source of each value.

mod agents;
mod apps;
mod paths;
pub mod registry;
mod resolve;
mod resolved;
mod setting;
mod source;
mod value;

pub use paths::socket_path;
pub use registry::SETTINGS;
pub use resolve::{check_file, load, load_or_default};
pub use resolved::Resolved;
pub use source::{Row, SettingsError, Source};
pub use value::FollowedRecords;
