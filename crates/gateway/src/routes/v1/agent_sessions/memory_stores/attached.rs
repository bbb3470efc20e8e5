//! Memory stores of a session: its agent searches them with the tools of Hob's memory.

use hob_domain::AppName;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{notes, stored};
use crate::error::ApiError;
use crate::state::Gateway;

const MAX_INSTRUCTION_CHARACTERS: usize = 4096;
/// The most memory stores of a session.
const MAX_STORES: usize = 8;

/// A memory store as a session has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedStore {
    pub id: String,
    pub name: String,
    pub description: String,
    pub instructions: Option<String>,
    pub is_read_only: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Resource {
    MemoryStore { memory_store_id: String, access: Option<String>, instructions: Option<String> },
}

impl AttachedStore {
    pub fn render(&self) -> Value {
        let access = if self.is_read_only { "read_only" } else { "read_write" };
        json!({"type": "memory_store", "memory_store_id": self.id, "name": self.name,
            "description": self.description, "instructions": self.instructions, "access": access,
            "mount_path": null})
    }
}

/// Reads the resources of a new session.
pub(crate) async fn read(
    gateway: &Gateway,
    app: &AppName,
    resources: &[Value],
) -> Result<Vec<AttachedStore>, ApiError> {
    let wrong = |text: String| Err(ApiError::bad_request(text));
    if resources.len() > MAX_STORES {
        return wrong(format!("resources: has more than {MAX_STORES} entries"));
    }
    let mut attached: Vec<AttachedStore> = Vec::new();
    for (index, resource) in resources.iter().enumerate() {
        let Ok(Resource::MemoryStore { memory_store_id: id, access, instructions }) =
            serde_json::from_value(resource.clone())
        else {
            return wrong(format!(
                "resources[{index}]: Hob supports only memory_store, with memory_store_id, access and instructions"
            ));
        };
        let is_read_only = match access.as_deref() {
            None | Some("read_write") => false,
            Some("read_only") => true,
            Some(_) => {
                return wrong(format!(
                    "resources[{index}].access: must be read_write or read_only"
                ));
            }
        };
        let length = instructions.as_deref().map_or(0, |text| text.chars().count());
        if length > MAX_INSTRUCTION_CHARACTERS {
            return wrong(format!(
                "resources[{index}].instructions: exceeds {MAX_INSTRUCTION_CHARACTERS} characters"
            ));
        }
        if attached.iter().any(|other| other.id == id) {
            return wrong(format!("resources[{index}]: the store is attached already"));
        }
        let store = stored::store(gateway, app, &id).await?;
        stored::check_open(&store.body)?;
        let text = |key: &str| store.body[key].as_str().unwrap_or_default().to_owned();
        let (name, description) = (text("name"), text("description"));
        attached.push(AttachedStore { id, name, description, instructions, is_read_only });
    }
    Ok(attached)
}

/// Returns the text for the agent's system prompt; nothing without a store.
pub(crate) fn system(attached: &[AttachedStore]) -> Option<String> {
    let line = |store: &AttachedStore| {
        let mut line = format!("- {} (project {:?})", store.name, notes::project(&store.id));
        let notes = [Some(store.description.as_str()), store.instructions.as_deref()];
        for text in notes.into_iter().flatten().filter(|text| !text.is_empty()) {
            line.push_str(": ");
            line.push_str(text);
        }
        if store.is_read_only {
            line.push_str(" Do not write to it.");
        }
        line
    };
    let lines: Vec<String> = attached.iter().map(line).collect();
    (!lines.is_empty()).then(|| {
        format!(
            "You have memory stores. Search one with the tool memory_recall, and add to one with memory_capture; \
             give its project as the argument project.\n{}",
            lines.join("\n")
        )
    })
}
