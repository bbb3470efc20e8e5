//! Attachments of a message. Images and documents become files of the app, and the agent receives
//! their paths. Anything else is refused.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hob_domain::AppName;
use hob_domain::file::prompt_with_files;
use serde_json::{Value, json};

use super::dialect::Problem;
use crate::state::Gateway;

/// Merges adjacent messages of one role, as the APIs do.
pub(super) fn merged(messages: Vec<Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::new();
    for message in messages {
        match merged.last_mut() {
            Some(last) if last["role"].is_string() && last["role"] == message["role"] => {
                let mut blocks = blocks_of(last);
                blocks.extend(blocks_of(&message));
                last["content"] = Value::Array(blocks);
            }
            _ => merged.push(message),
        }
    }
    merged
}

fn blocks_of(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(blocks) => blocks.clone(),
        Value::Null => Vec::new(),
        // Not a message; the message parser reports it.
        other => vec![other.clone()],
    }
}

/// Returns the prompt for a last message that has more than text.
pub(super) async fn prompt(
    gateway: &Arc<Gateway>,
    app: &AppName,
    messages: &[Value],
) -> Result<Option<String>, Problem> {
    refuse_addresses(messages)?;
    let Some(last) = messages.last().filter(|last| last["role"] == "user") else {
        return Ok(None);
    };
    let blocks = blocks_of(last);
    if blocks.iter().all(|block| block["type"] == "text" || block["type"] == "tool_result") {
        return Ok(None);
    }
    let (mut texts, mut paths) = (Vec::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("messages[{}].content[{index}]", messages.len() - 1);
        match block["type"].as_str() {
            Some("text") => texts.push(block["text"].as_str().unwrap_or_default().to_owned()),
            Some("image" | "document") => match attach(gateway, app, block, &place).await? {
                Attachment::Text(text) => texts.push(text),
                Attachment::Path(path) => paths.push(path),
            },
            Some("tool_result") => {}
            Some(other) => {
                return Err(Problem::invalid(format!(
                    "{place}: a block of type {other:?} can't be passed on; send text, images or documents"
                )));
            }
            None => {
                return Err(Problem::invalid(format!("{place}: must be a content block")));
            }
        }
    }
    Ok(Some(prompt_with_files(&texts.join("\n\n"), &paths)))
}

/// Refuses images and documents that are only named, also in the history: the agent would not see them.
fn refuse_addresses(messages: &[Value]) -> Result<(), Problem> {
    for (index, message) in messages.iter().enumerate() {
        refuse_addresses_in(&message["content"], &format!("messages[{index}].content"))?;
    }
    Ok(())
}

/// Refuses images and documents of a message or of a tool's result that are only named.
pub(super) fn refuse_addresses_in(content: &Value, place: &str) -> Result<(), Problem> {
    for (index, block) in content.as_array().into_iter().flatten().enumerate() {
        let place = format!("{place}[{index}]");
        let is_named = matches!(block["source"]["type"].as_str(), Some("url" | "file"));
        match block["type"].as_str() {
            Some("image" | "document") if is_named => return Err(not_data(&place)),
            Some("tool_result") => {
                refuse_addresses_in(&block["content"], &format!("{place}.content"))?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn not_data(place: &str) -> Problem {
    Problem::invalid(format!("{place}.source: must be base64 data; Hob does not fetch URLs"))
}

/// What an image or a document becomes.
pub(super) enum Attachment {
    Text(String),
    /// The path of an uploaded file.
    Path(String),
}

/// Stores an image or a document of a message.
pub(super) async fn attach(
    gateway: &Gateway,
    app: &AppName,
    block: &Value,
    place: &str,
) -> Result<Attachment, Problem> {
    let kind = block["type"].as_str().unwrap_or_default();
    match file(&block["source"], kind, place)? {
        Attached::Text(text) => Ok(Attachment::Text(text)),
        Attached::File { name, bytes } => {
            let mut upload = gateway.files.begin(app, &name).await?;
            upload.write(&bytes).await?;
            let stored = upload.finish().await?;
            Ok(Attachment::Path(stored.path.display().to_string()))
        }
    }
}

#[derive(Debug, PartialEq)]
enum Attached {
    Text(String),
    File { name: String, bytes: Vec<u8> },
}

fn file(source: &Value, kind: &str, place: &str) -> Result<Attached, Problem> {
    let data = source["data"].as_str();
    match (source["type"].as_str(), data) {
        (Some("base64"), Some(data)) => {
            let bytes = STANDARD.decode(data.trim()).map_err(|_| {
                Problem::invalid(format!("{place}.source.data: must be valid base64"))
            })?;
            let media = source["media_type"].as_str().unwrap_or_default();
            let ending = match media {
                "image/png" => "png",
                "image/jpeg" => "jpg",
                "image/gif" => "gif",
                "image/webp" => "webp",
                "application/pdf" => "pdf",
                "text/plain" => "txt",
                _ => {
                    return Err(Problem::invalid(format!(
                        "{place}.source.media_type: {media:?} can't be passed on; send PNG, JPEG, GIF, \
                         WebP, PDF or plain text"
                    )));
                }
            };
            Ok(Attached::File { name: format!("{kind}.{ending}"), bytes })
        }
        (Some("text"), Some(data)) => Ok(Attached::Text(data.to_owned())),
        _ => Err(not_data(place)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_role_are_one() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let said = json!({"role": "assistant", "content": [{"type": "text", "text": "x"}]});
        let out = merged(vec![user("a"), user("b"), said.clone(), user("c")]);
        assert_eq!(out.len(), 3);
        let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(out[0]["content"], blocks);
        assert_eq!((&out[1], &out[2]), (&said, &user("c")));
    }

    #[test]
    fn images_that_are_only_named_are_refused_everywhere() {
        let far = json!({"type": "image", "source": {"type": "url", "url": "http://x/y.png"}});
        let near = json!({"type": "image", "source": {"type": "base64", "data": "aGk="}});
        let result = |content: &Value| json!({"type": "tool_result", "content": [content]});
        let check = |block: Value| refuse_addresses(&[json!({"role": "user", "content": [block]})]);
        assert!(check(near.clone()).is_ok() && check(result(&near)).is_ok());
        let place = |block: Value| check(block).unwrap_err().message().to_owned();
        assert!(place(far.clone()).starts_with("messages[0].content[0].source:"));
        assert!(place(result(&far)).starts_with("messages[0].content[0].content[0].source:"));
    }

    #[test]
    fn files_are_named_by_their_kind() {
        let source = json!({"type": "base64", "media_type": "image/png", "data": "aGk="});
        let expect = Attached::File { name: "image.png".into(), bytes: b"hi".to_vec() };
        assert_eq!(file(&source, "image", "x").unwrap(), expect);
        for bad in [
            json!({"type": "url", "url": "http://x/y.png"}),
            json!({"type": "base64", "media_type": "image/png", "data": "%%"}),
            json!({"type": "base64", "media_type": "audio/wav", "data": "aGk="}),
            json!({}),
        ] {
            assert!(file(&bad, "image", "x").is_err(), "{bad}");
        }
    }
}
