//! The content of a message to a session: its text, and files for its images and documents.

use hob_domain::AppName;
use serde_json::{Value, json};

use crate::routes::v1::attachments::attach;
use crate::routes::v1::content::{readable_block, unknown};
use crate::routes::v1::dialect::Problem;
use crate::state::Gateway;

/// A prompt with the paths of its files.
#[derive(Debug, Default)]
pub(super) struct Prompt {
    pub text: String,
    pub files: Vec<String>,
}

impl Prompt {
    /// Joins messages that come one after another in a request: one turn answers them all.
    pub fn joined(messages: impl IntoIterator<Item = Prompt>) -> Prompt {
        let (mut texts, mut files) = (Vec::new(), Vec::new());
        for message in messages {
            texts.extend(Some(message.text).filter(|text| !text.is_empty()));
            files.extend(message.files);
        }
        Prompt { text: texts.join("\n\n"), files }
    }
}

/// Returns whether a file of a prompt is an image.
pub(super) fn is_image(path: &str) -> bool {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    ["png", "jpg", "jpeg", "gif", "webp"].iter().any(|image| ending.eq_ignore_ascii_case(image))
}

/// Reads content blocks in Anthropic's format.
pub(super) async fn read(
    gateway: &Gateway,
    app: &AppName,
    content: &Value,
    place: &str,
) -> Result<Prompt, Problem> {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let content = content.as_str().map_or_else(|| content.clone(), text);
    let Some(blocks) = content.as_array().filter(|blocks| !blocks.is_empty()) else {
        return Err(Problem::invalid(format!("{place}: must be a list of content blocks")));
    };
    let (mut texts, mut files) = (Vec::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{place}[{index}]");
        let is_uploaded = matches!(block["type"].as_str(), Some("image" | "document"))
            && block["source"]["type"] == "file";
        if is_uploaded {
            let id = block["source"]["file_id"].as_str().unwrap_or_default().to_owned();
            files.extend(gateway.file_paths(app, &[id]).await?);
            continue;
        }
        for block in readable_block(block.clone(), &place)? {
            match block["type"].as_str() {
                Some("text") => match block["text"].as_str() {
                    Some(text) => texts.push(text.to_owned()),
                    None => {
                        return Err(Problem::invalid(format!("{place}.text: must be a string")));
                    }
                },
                Some("image" | "document") => files.push(attach(gateway, app, &block).await?),
                _ => return Err(unknown(&block, &place)),
            }
        }
    }
    let text = texts.join("\n\n");
    if text.trim().is_empty() && files.is_empty() {
        return Err(Problem::invalid(format!("{place}: must have a text, an image or a document")));
    }
    Ok(Prompt { text, files })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_one_request_are_joined_in_order() {
        let prompt =
            |text: &str, file: &str| Prompt { text: text.to_owned(), files: vec![file.to_owned()] };
        let joined = Prompt::joined([prompt("one", "a"), prompt("", "b"), prompt("two", "c")]);
        assert_eq!(
            (joined.text.as_str(), joined.files.as_slice()),
            ("one\n\ntwo", ["a", "b", "c"].map(str::to_owned).as_slice())
        );
    }
}
