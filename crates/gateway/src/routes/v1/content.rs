//! Content blocks of users and of their tools, as agents can read them: texts, and data of known types. Anything else is
//! refused by name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::dialect::Problem;
use crate::error::ApiError;

/// The types of data that agents can read, and the endings of their files. Other types of texts are plain texts.
const TYPES: [(&str, &str); 18] = [
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("application/pdf", "pdf"),
    ("text/csv", "csv"),
    ("text/markdown", "md"),
    ("text/x-markdown", "md"),
    ("text/html", "html"),
    ("text/xml", "xml"),
    ("text/yaml", "yaml"),
    ("application/csv", "csv"),
    ("application/json", "json"),
    ("application/x-ndjson", "jsonl"),
    ("application/xml", "xml"),
    ("application/yaml", "yaml"),
    ("application/x-yaml", "yaml"),
    ("application/toml", "toml"),
];

/// Returns the messages with the blocks that agents can read in those of the user. Types of blocks that nobody can read are
/// refused in the messages that the agent is to answer; earlier ones were answered without them.
pub(super) fn readable(mut messages: Vec<Value>) -> Result<Vec<Value>, Problem> {
    let is_users = |message: &Value| message["role"] == "user";
    let answered = messages.iter().rposition(|message| !is_users(message)).map_or(0, |at| at + 1);
    for (index, message) in messages.iter_mut().enumerate().filter(|(_, message)| is_users(message))
    {
        let Some(blocks) = message["content"].as_array_mut().map(std::mem::take) else { continue };
        let mut read = Vec::with_capacity(blocks.len());
        for (number, block) in blocks.into_iter().enumerate() {
            let place = format!("messages[{index}].content[{number}]");
            let is_known = matches!(
                block["type"].as_str(),
                Some("text" | "image" | "document" | "search_result" | "tool_result")
            );
            if index >= answered && !is_known {
                return Err(unknown(&block, &place));
            }
            read.extend(readable_block(block, &place)?);
        }
        message["content"] = Value::Array(read);
    }
    Ok(messages)
}

/// Returns the content of a tool's result with the blocks that agents can read.
pub(super) fn readable_result(content: Value, place: &str) -> Result<Value, Problem> {
    let Value::Array(blocks) = content else { return Ok(content) };
    let mut read = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.into_iter().enumerate() {
        for block in readable_block(block, &format!("{place}[{index}]"))? {
            read.push(as_text(block));
        }
    }
    Ok(Value::Array(read))
}

/// Returns a block as blocks that agents can read: `text`, and `image` and `document` with data. Blocks of other types are
/// unchanged.
pub(super) fn readable_block(mut block: Value, place: &str) -> Result<Vec<Value>, Problem> {
    match block["type"].as_str() {
        Some("image") => {
            check_source(&mut block, place)?;
            Ok(vec![block])
        }
        Some("document") => document(block, place),
        Some("search_result") => {
            let mut parts = Vec::new();
            parts.extend(block["title"].as_str().map(|title| format!("Search result: {title}")));
            parts.extend(block["source"].as_str().map(|source| format!("Source: {source}")));
            let place = format!("{place}.content");
            Ok(vec![text(&with_heading(&parts, &texts(&block["content"], &place)?))])
        }
        Some("tool_result") => {
            let content = block["content"].take();
            block["content"] = readable_result(content, &format!("{place}.content"))?;
            Ok(vec![block])
        }
        _ => Ok(vec![block]),
    }
}

/// Reads a document with its title and context.
fn document(mut block: Value, place: &str) -> Result<Vec<Value>, Problem> {
    let mut heading = Vec::new();
    let field = |name: &str| block[name].as_str().filter(|text| !text.trim().is_empty());
    heading.extend(field("title").map(|title| format!("Document: {title}")));
    heading.extend(field("context").map(|context| format!("Context: {context}")));
    let source = &block["source"];
    match source["type"].as_str() {
        Some("text") => {
            let Some(data) = source["data"].as_str() else {
                return Err(wrong(format!("{place}.source.data: must be a string")));
            };
            Ok(vec![text(&with_heading(&heading, data))])
        }
        Some("content") => {
            let place = format!("{place}.source.content");
            let inner = match &source["content"] {
                Value::String(inner) => vec![text(inner)],
                Value::Array(blocks) => {
                    let mut inner = Vec::with_capacity(blocks.len());
                    for (index, block) in blocks.iter().enumerate() {
                        let place = format!("{place}[{index}]");
                        match block["type"].as_str() {
                            Some("text" | "image") => {
                                inner.extend(readable_block(block.clone(), &place)?);
                            }
                            _ => return Err(wrong(format!("{place}.type: must be text or image"))),
                        }
                    }
                    inner
                }
                _ => return Err(wrong(format!("{place}: must be a string or a list of blocks"))),
            };
            let heading = (!heading.is_empty()).then(|| text(&heading.join("\n")));
            Ok(heading.into_iter().chain(inner).collect())
        }
        _ => {
            check_source(&mut block, place)?;
            let heading = (!heading.is_empty()).then(|| text(&heading.join("\n")));
            Ok(heading.into_iter().chain([block]).collect())
        }
    }
}

/// Checks that a source is data which agents can read, and gives its type the usual name.
fn check_source(block: &mut Value, place: &str) -> Result<(), Problem> {
    let source = &mut block["source"];
    match source["type"].as_str() {
        Some("base64") => {}
        Some("url" | "file") => {
            let text = "must be base64 data; Hob does not fetch URLs";
            return Err(wrong(format!("{place}.source: {text}")));
        }
        _ => return Err(wrong(format!("{place}.source.type: must be base64"))),
    }
    let media = media_type(source["media_type"].as_str().unwrap_or_default());
    if ending(&media).is_none() {
        return Err(wrong(format!("{place}.source.media_type: {}", unreadable(&media))));
    }
    if decoded(source).is_none() {
        return Err(wrong(format!("{place}.source.data: must be valid base64")));
    }
    source["media_type"] = media.into();
    Ok(())
}

/// Converts `data:image/png;base64,…` to a block. `place` is that of the URL.
pub(super) fn data_url(url: &Value, kind: &str, place: &str) -> Result<Value, Problem> {
    let data = url.as_str().and_then(|url| url.strip_prefix("data:"));
    let Some((media, data)) = data.and_then(|data| data.split_once(";base64,")) else {
        let text = "only base64 data: URLs can be passed on; Hob fetches nothing";
        return Err(wrong(format!("{place}: {text}")));
    };
    let media = media_type(media);
    if ending(&media).is_none() {
        return Err(wrong(format!("{place}: {}", unreadable(&media))));
    }
    let source = json!({"type": "base64", "media_type": media, "data": data});
    if decoded(&source).is_none() {
        return Err(wrong(format!("{place}: must be valid base64")));
    }
    Ok(json!({"type": kind, "source": source}))
}

/// Gives a document the name of its file as the title.
pub(super) fn with_title(mut document: Value, name: &Value) -> Value {
    document["title"] = name.clone();
    document
}

/// Returns the bytes and the file's ending of a checked image or document.
pub(super) fn file(block: &Value) -> Option<(&'static str, Vec<u8>)> {
    let source = &block["source"];
    Some((ending(source["media_type"].as_str()?)?, decoded(source)?))
}

fn decoded(source: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(source["data"].as_str()?.trim()).ok()
}

/// Returns a document that is a text as a text block, because results of tools have no files.
fn as_text(block: Value) -> Value {
    let is_text = |ending: &str| !matches!(ending, "png" | "jpg" | "gif" | "webp" | "pdf");
    if block["type"] != "document" {
        return block;
    }
    match file(&block).filter(|(ending, _)| is_text(ending)) {
        Some((_, bytes)) => text(&String::from_utf8_lossy(&bytes)),
        None => block,
    }
}

/// Returns a media type without its parameters, by its usual name.
fn media_type(media: &str) -> String {
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "image/jpg" | "image/pjpeg" => "image/jpeg".to_owned(),
        _ => media,
    }
}

fn ending(media: &str) -> Option<&'static str> {
    let known = TYPES.iter().find(|(known, _)| *known == media).map(|(_, ending)| *ending);
    known.or_else(|| media.starts_with("text/").then_some("txt"))
}

fn unreadable(media: &str) -> String {
    format!("{media:?} can't be passed on; send PNG, JPEG, GIF, WebP, PDF or text")
}

/// Returns the texts of a list of text blocks.
fn texts(blocks: &Value, place: &str) -> Result<String, Problem> {
    let texts = blocks.as_array().and_then(|blocks| {
        blocks.iter().map(|block| block["text"].as_str()).collect::<Option<Vec<&str>>>()
    });
    let texts = texts.ok_or_else(|| wrong(format!("{place}: must be a list of text blocks")))?;
    Ok(texts.join("\n\n"))
}

fn with_heading(heading: &[String], text: &str) -> String {
    match heading {
        [] => text.to_owned(),
        heading => format!("{}\n\n{text}", heading.join("\n")),
    }
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Refuses a block of a type that agents cannot read.
pub(super) fn unknown(block: &Value, place: &str) -> Problem {
    match block["type"].as_str() {
        Some(kind) => wrong(format!(
            "{place}.type: {kind:?} can't be passed on; send text, images, documents or search results"
        )),
        None => wrong(format!("{place}: must be a content block")),
    }
}

fn wrong(message: String) -> Problem {
    ApiError::bad_request(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(block: Value) -> Vec<Value> {
        vec![json!({"role": "user", "content": [block]})]
    }

    fn read(block: Value) -> Value {
        readable(user(block)).unwrap()[0]["content"].clone()
    }

    #[test]
    fn data_of_known_types_is_readable() {
        let source = |media: &str, data: &str| json!({"type": "document", "source": {"type": "base64", "media_type": media, "data": data}});
        let check = |media: &str, expect: Option<&str>| {
            let found = readable(user(source(media, "aGk="))).ok();
            let found = found.and_then(|messages| file(&messages[0]["content"][0]));
            assert_eq!(found.map(|(ending, _)| ending), expect, "{media}");
        };
        check("image/jpg", Some("jpg"));
        check("IMAGE/PNG", Some("png"));
        check("text/csv; charset=utf-8", Some("csv"));
        check("text/x-python", Some("txt"));
        check("application/pdf", Some("pdf"));
        check("audio/wav", None);
        check("", None);
        assert!(readable(user(source("image/png", "%%"))).is_err());
    }

    #[test]
    fn texts_in_other_blocks_are_texts() {
        let check = |block: Value, expect: &str| assert_eq!(read(block)[0]["text"], expect);
        let found = json!([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]);
        check(
            json!({"type": "search_result", "title": "T", "source": "http://x", "content": found}),
            "Search result: T\nSource: http://x\n\none\n\ntwo",
        );
        check(
            json!({"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "d"}}),
            "Document: T\nContext: C\n\nd",
        );
        let inner = json!({"type": "content", "content": found});
        let blocks = read(json!({"type": "document", "title": "T", "source": inner}));
        assert_eq!(
            (&blocks[0]["text"], &blocks[2]["text"]),
            (&json!("Document: T"), &json!("two"))
        );
        let csv = json!({"type": "base64", "media_type": "text/csv", "data": "YSxi"});
        let csv = json!([{"type": "document", "source": csv}]);
        let result = read(json!({"type": "tool_result", "content": csv}));
        assert_eq!(result[0]["content"][0], text("a,b"));
    }

    #[test]
    fn errors_name_the_field() {
        let check = |block: Value, expect: &str| {
            let problem = readable(user(block)).unwrap_err();
            assert!(problem.message().starts_with(expect), "{}", problem.message());
        };
        let far = json!({"type": "image", "source": {"type": "url", "url": "http://x/y.png"}});
        check(far.clone(), "messages[0].content[0].source: ");
        let result = json!({"type": "tool_result", "content": [far]});
        check(result, "messages[0].content[0].content[0].source: ");
        check(json!({"type": "document", "source": {}}), "messages[0].content[0].source.type: ");
        check(json!({"type": "audio"}), "messages[0].content[0].type: \"audio\"");
        let old = [user(json!({"type": "audio"})), vec![json!({"role": "assistant"})]].concat();
        assert!(readable(old).is_ok(), "it was answered");
    }
}
