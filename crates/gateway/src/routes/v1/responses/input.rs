//! The items of a request as messages in Anthropic's shape.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::super::content::{data_url, with_title};
use super::super::dialect::Problem;
use super::object::TEXT_SEPARATOR;
use crate::error::ApiError;

/// A conversation as the client sends it: messages, and the texts of system and developer messages.
#[derive(Debug, Default, PartialEq)]
pub(in crate::routes::v1) struct Input {
    pub messages: Vec<Value>,
    pub systems: Vec<String>,
}

/// Returns the items of a request's `input`, of which there must be some. A text is one message of the user.
pub(super) fn items(input: Option<&Value>) -> Result<Vec<Value>, Problem> {
    match input {
        Some(Value::String(text)) => {
            let content = json!([{"type": "input_text", "text": text}]);
            Ok(vec![json!({"type": "message", "role": "user", "content": content})])
        }
        Some(Value::Array(items)) if !items.is_empty() => Ok(items.clone()),
        None | Some(Value::Null | Value::Array(_)) => Err(wrong("input: must not be empty")),
        Some(_) => Err(wrong("input: must be a string or a list of items")),
    }
}

/// Converts the items of a conversation so far and those of a request. An error about the latter names their place.
pub(in crate::routes::v1) fn conversation(
    earlier: &[Value],
    new: &[Value],
) -> Result<Input, Problem> {
    let Input { messages: more, systems } = messages(new)?;
    let mut input = messages(earlier)?;
    input.messages.extend(more);
    input.systems.extend(systems);
    // A client that continues a response may send its system message with every request.
    let mut known = HashSet::new();
    input.systems.retain(|text| known.insert(text.clone()));
    Ok(input)
}

fn messages(items: &[Value]) -> Result<Input, Problem> {
    let mut input = Input::default();
    for (index, item) in items.iter().enumerate() {
        add(item, &format!("input[{index}]"), &mut input)?;
    }
    Ok(input)
}

/// Checks that every function call of a conversation has one output, and every output a call before it.
pub(super) fn check_calls<'a>(items: impl Iterator<Item = &'a Value>) -> Result<(), Problem> {
    let mut open: HashMap<&str, usize> = HashMap::new();
    for item in items {
        let id = item["call_id"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("function_call") => *open.entry(id).or_default() += 1,
            Some("function_call_output") => match open.get_mut(id) {
                Some(1) => drop(open.remove(id)),
                Some(count) => *count -= 1,
                None => {
                    return Err(wrong(&format!(
                        "input: no function call with the call_id {id:?} is waiting for an output"
                    )));
                }
            },
            _ => {}
        }
    }
    match open.keys().next() {
        Some(call) => Err(wrong(&format!("input: the function call {call:?} has no output"))),
        None => Ok(()),
    }
}

fn add(item: &Value, place: &str, input: &mut Input) -> Result<(), Problem> {
    let text_of = |field: &str| {
        let text = item[field].as_str().filter(|text| !text.is_empty());
        text.ok_or_else(|| wrong(&format!("{place}.{field}: must be a string")))
    };
    match item["type"].as_str() {
        None | Some("message") => message(item, place, input)?,
        Some("function_call") => {
            let arguments = item["arguments"].as_str().filter(|text| !text.trim().is_empty());
            let arguments = arguments.unwrap_or("{}");
            let arguments: Map<String, Value> = serde_json::from_str(arguments)
                .map_err(|_| wrong(&format!("{place}.arguments: must be a JSON object")))?;
            let call = json!({"type": "tool_use", "id": text_of("call_id")?, "name": text_of("name")?,
                "input": arguments});
            input.messages.push(json!({"role": "assistant", "content": [call]}));
        }
        Some("function_call_output") => {
            let content = match &item["output"] {
                Value::Array(_) => {
                    Value::Array(blocks(&item["output"], &format!("{place}.output"))?)
                }
                text @ Value::String(_) => text.clone(),
                _ => {
                    return Err(wrong(&format!(
                        "{place}.output: must be a string or a list of parts"
                    )));
                }
            };
            let result = json!({"type": "tool_result", "tool_use_id": text_of("call_id")?,
                "content": content});
            input.messages.push(json!({"role": "user", "content": [result]}));
        }
        // What the agent thought is not part of the conversation.
        Some("reasoning") => {}
        Some(kind) => {
            return Err(wrong(&format!("{place}.type: items of type {kind:?} are not supported")));
        }
    }
    Ok(())
}

fn message(item: &Value, place: &str, input: &mut Input) -> Result<(), Problem> {
    let mut content = blocks(&item["content"], &format!("{place}.content"))?;
    match item["role"].as_str() {
        // Messages of one answer are joined again, so the separator between their texts is left out.
        Some("assistant")
            if input.messages.last().is_some_and(|last| last["role"] == "assistant") =>
        {
            let first = content.first_mut().map(|block| &mut block["text"]);
            if let Some(Value::String(text)) = first
                && let Some(rest) = text.strip_prefix(TEXT_SEPARATOR)
            {
                *text = rest.to_owned();
            }
            input.messages.push(json!({"role": "assistant", "content": content}));
        }
        Some(role @ ("user" | "assistant")) => {
            input.messages.push(json!({"role": role, "content": content}));
        }
        Some("system" | "developer") => {
            let texts: Option<Vec<&str>> =
                content.iter().map(|block| block["text"].as_str()).collect();
            let texts = texts.ok_or_else(|| wrong(&format!("{place}.content: must be text")))?;
            input.systems.push(texts.join("\n\n"));
        }
        _ => {
            return Err(wrong(&format!(
                "{place}.role: must be user, assistant, system or developer"
            )));
        }
    }
    Ok(())
}

/// Converts content to Anthropic's blocks.
fn blocks(content: &Value, place: &str) -> Result<Vec<Value>, Problem> {
    let text = |text: &Value| json!({"type": "text", "text": text});
    let parts = match content {
        Value::String(_) => return Ok(vec![text(content)]),
        Value::Array(parts) => parts,
        _ => return Err(wrong(&format!("{place}: must be a string or a list of parts"))),
    };
    let part = |(index, part): (usize, &Value)| {
        let refuse = |what: &str| wrong(&format!("{place}[{index}]: {what}"));
        let inside = |field: &str| format!("{place}[{index}].{field}");
        match part["type"].as_str() {
            Some("input_text" | "output_text" | "text") if part["text"].is_string() => {
                Ok(text(&part["text"]))
            }
            Some("refusal") if part["refusal"].is_string() => Ok(text(&part["refusal"])),
            Some("input_image") => data_url(&part["image_url"], "image", &inside("image_url")),
            Some("input_file") => {
                let block = data_url(&part["file_data"], "document", &inside("file_data"));
                block.map(|block| with_title(block, &part["filename"]))
            }
            _ => Err(refuse("it is not a part that can be passed on; send text, images or files")),
        }
    };
    parts.iter().enumerate().map(part).collect()
}

fn wrong(message: &str) -> Problem {
    ApiError::bad_request(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let all = [
            json!({"role": "developer", "content": "be brief"}),
            json!({"role": "user", "content": [{"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="}]}),
            json!({"type": "reasoning", "summary": []}),
            json!({"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                "content": [{"type": "output_text", "text": "well", "annotations": []}]}),
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"x\":1}"}),
            json!({"type": "function_call_output", "call_id": "c", "output": "out"}),
        ];
        let Input { messages, systems } = messages(&all).unwrap();
        assert_eq!(systems, ["be brief"]);
        assert_eq!(messages[0]["content"][1]["source"]["media_type"], "image/png");
        assert_eq!(messages[1]["content"][0]["text"], "well");
        assert_eq!(messages[2]["content"][0]["input"]["x"], 1);
        assert_eq!(messages[3]["content"][0]["tool_use_id"], "c");
        let text = items(Some(&json!("hi"))).unwrap();
        assert_eq!(super::messages(&text).unwrap().messages[0]["content"][0]["text"], "hi");
    }

    #[test]
    fn separator_between_messages_of_an_answer_is_left_out() {
        let message = |role: &str, text: &str| {
            let content = json!([{"type": "output_text", "text": text}]);
            json!({"type": "message", "role": role, "content": content})
        };
        let thought = json!({"type": "reasoning", "summary": []});
        let all = [
            message("user", "go"),
            message("assistant", "\n\nA."),
            thought,
            message("assistant", "\n\n\n\nB."),
            message("user", "\n\nand"),
        ];
        let messages = messages(&all).unwrap().messages;
        let texts: Vec<&Value> = messages.iter().map(|m| &m["content"][0]["text"]).collect();
        assert_eq!(texts, ["go", "\n\nA.", "\n\nB.", "\n\nand"]);
    }

    #[test]
    fn calls_and_outputs_belong_together() {
        let call = |id: &str| json!({"type": "function_call", "call_id": id});
        let output = |id: &str| json!({"type": "function_call_output", "call_id": id});
        assert!(check_calls([call("a"), call("b"), output("b"), output("a")].iter()).is_ok());
        assert!(check_calls([call("a"), output("a"), output("a")].iter()).is_err());
        assert!(check_calls([call("a"), call("b"), output("b")].iter()).is_err());
        assert!(check_calls([output("a"), call("a")].iter()).is_err());
    }

    #[test]
    fn what_cannot_be_passed_on_is_named() {
        let check = |item: Value, word: &str| {
            let text = format!("{:?}", messages(&[item]).unwrap_err());
            assert!(text.contains(word), "{text}");
        };
        check(json!({"type": "web_search_call"}), "web_search_call");
        check(json!({"role": "wizard", "content": "x"}), "input[0].role");
        check(json!({"role": "user", "content": 1}), "input[0].content");
        check(json!({"type": "function_call", "name": "f"}), "call_id");
        check(json!({"type": "function_call_output", "call_id": "c"}), "output");
        let far = json!([{"type": "input_image", "image_url": "http://x"}]);
        check(json!({"role": "user", "content": far}), "data:");
        assert!(items(Some(&json!(1))).is_err());
    }
}
