//! The content blocks of a message, as far as capture reads them.

use serde::de::MapAccess;

use crate::block::TextBlock;
use crate::json::{self, Fields, Loose, Scalar};
use crate::work::{WorkItem, patched_files};

/// How the result of a call begins that the user did not permit. Nothing failed.
const REFUSED: &str = "The user doesn't want to";

/// A text, a call of a tool, or its result.
#[derive(Debug, Default)]
pub struct ConversationBlock<'a> {
    pub kind: Scalar<'a>,
    pub text: Scalar<'a>,
    name: Scalar<'a>,
    input: Loose<'a, ToolInput<'a>>,
    content: Loose<'a, TextBlock<'a>>,
    is_error: bool,
}

impl<'a> Fields<'a> for ConversationBlock<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "type" => self.kind = map.next_value()?,
            "text" => self.text = map.next_value()?,
            "name" => self.name = map.next_value()?,
            "input" => self.input = map.next_value()?,
            "content" => self.content = map.next_value()?,
            "is_error" => self.is_error |= json::flag(map)?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

/// The arguments of a tool that runs commands or changes files.
#[derive(Debug, Default)]
struct ToolInput<'a> {
    command: Scalar<'a>,
    path: Scalar<'a>,
    patch: Scalar<'a>,
}

impl<'a> Fields<'a> for ToolInput<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "command" => self.command = map.next_value()?,
            "file_path" | "notebook_path" => self.path = map.next_value()?,
            "patch" => self.patch = map.next_value()?,
            _ => json::skip(map)?,
        }
        Ok(())
    }
}

impl ConversationBlock<'_> {
    /// Returns what the block says of the agent's work.
    pub fn work(&self) -> Vec<WorkItem> {
        match self.kind.text() {
            Some("tool_use") => self.call().unwrap_or_default(),
            Some("tool_result") if self.is_error => self.failure().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn call(&self) -> Option<Vec<WorkItem>> {
        let input = self.input.object()?;
        let name = self.name.text()?.to_ascii_lowercase();
        let edits = ["edit", "write"].iter().any(|verb| name.contains(verb));
        let path = input.path.text().filter(|_| edits).and_then(WorkItem::edit);
        let command = input.command.text().and_then(WorkItem::command);
        let patched = input.patch.text().into_iter().flat_map(patched_files);
        Some(path.into_iter().chain(command).chain(patched).collect())
    }

    fn failure(&self) -> Option<WorkItem> {
        let output = match &self.content {
            Loose::Text(text) => text.as_ref(),
            Loose::List(blocks) => blocks.iter().find_map(|block| block.text.text())?,
            _ => return None,
        };
        WorkItem::failure(output).filter(|_| !output.starts_with(REFUSED))
    }
}
