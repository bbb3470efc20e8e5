//! Images, documents and search results in requests to `/v1` and in results of a client's tools, on the scripted agent.

use serde_json::{Value, json};

use crate::api::*;

/// The bytes `hello`.
const DATA: &str = "aGVsbG8=";

fn source(media: &str) -> Value {
    json!({"type": "base64", "media_type": media, "data": DATA})
}

/// Returns what the scripted agent says about a message with this block: it repeats its prompt.
fn said(api: &Api, block: &Value) -> String {
    let content = json!([block, {"type": "text", "text": "see"}]);
    let body = json!({"max_tokens": 9, "messages": [{"role": "user", "content": content}]});
    let answer = api.post("/v1/messages", &body);
    assert_eq!(answer.status, 200, "{block}: {}", answer.text);
    answer.json()["content"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn texts_and_pictures_of_all_usual_types_reach_the_agent() {
    let api = api("");
    let path = |said: &str, ending: &str| {
        let path = said.split_whitespace().find(|word| word.ends_with(ending));
        let path = path.unwrap_or_else(|| panic!("no {ending} in {said:?}"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "hello");
    };
    for (media, ending) in [
        ("image/jpg", "image.jpg"),
        ("text/csv", "document.csv"),
        ("text/markdown", "document.md"),
        ("text/html; charset=utf-8", "document.html"),
        ("text/plain", "document.txt"),
        ("text/x-python", "document.txt"),
        ("application/json", "document.json"),
        ("application/pdf", "document.pdf"),
    ] {
        let kind = ending.split('.').next().unwrap();
        path(&said(&api, &json!({"type": kind, "source": source(media)})), ending);
        // OpenAI's APIs have a data: URL of the same data.
        let url = format!("data:{media};base64,{DATA}");
        let (chat, response) = match kind {
            "image" => (
                json!({"type": "image_url", "image_url": {"url": url}}),
                json!({"type": "input_image", "image_url": url}),
            ),
            _ => (
                json!({"type": "file", "file": {"file_data": url, "filename": "table"}}),
                json!({"type": "input_file", "file_data": url, "filename": "table"}),
            ),
        };
        let messages = json!([{"role": "user", "content": [chat]}]);
        let answer = api.post("/v1/chat/completions", &json!({"messages": messages})).json();
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        path(text, ending);
        assert_eq!(text.contains("table"), kind == "document", "{text}");
        let input = json!([{"role": "user", "content": [response]}]);
        let answer = api.post("/v1/responses", &json!({"input": input})).json();
        path(answer["output"][0]["content"][0]["text"].as_str().unwrap(), ending);
    }
    let found = json!([{"type": "text", "text": "42 degrees"}]);
    let search =
        json!({"type": "search_result", "source": "http://x", "title": "Ulm", "content": found});
    let text = said(&api, &search);
    assert!(["Ulm", "http://x", "42 degrees"].iter().all(|part| text.contains(part)), "{text}");
    for source in [
        json!({"type": "text", "media_type": "text/plain", "data": "42 degrees"}),
        json!({"type": "content", "content": found}),
        json!({"type": "content", "content": "42 degrees"}),
    ] {
        let document =
            json!({"type": "document", "title": "Ulm", "context": "today", "source": source});
        let text = said(&api, &document);
        assert!(["Ulm", "today", "42 degrees"].iter().all(|part| text.contains(part)), "{text}");
    }
    let titled = json!({"type": "document", "title": "Ulm", "source": source("application/pdf")});
    let text = said(&api, &titled);
    assert!(text.contains("Ulm"), "{text}");
    path(&text, "document.pdf");
}

#[test]
fn refused_content_is_named_as_the_client_wrote_it() {
    let api = api("");
    let far = "http://example.org/a.png";
    let user = |block: &Value| json!([{"role": "user", "content": "first"}, {"role": "user", "content": [block]}]);
    for (block, param) in [
        (json!({"type": "image", "source": source("image/bmp")}), "source.media_type"),
        (json!({"type": "image", "source": {"type": "url", "url": far}}), "source"),
        (json!({"type": "document", "source": {"type": "content"}}), "source.content"),
        (json!({"type": "document", "source": {"type": "wax"}}), "source.type"),
        (json!({"type": "container_upload", "file_id": "x"}), "type"),
    ] {
        let answer = api.post("/v1/messages", &json!({"max_tokens": 9, "messages": user(&block)}));
        let text = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        let place = format!("messages[1].content[0].{param}: ");
        assert!(answer.status == 400 && text.starts_with(&place), "{text}");
    }
    for (block, param) in [
        (json!({"type": "image_url", "image_url": {"url": far}}), "image_url.url"),
        (
            json!({"type": "image_url", "image_url": {"url": "data:image/bmp;base64,aGk="}}),
            "image_url.url",
        ),
        (json!({"type": "file", "file": {"file_id": "x"}}), "file.file_data"),
        (
            json!({"type": "file", "file": {"file_data": "data:audio/wav;base64,aGk="}}),
            "file.file_data",
        ),
    ] {
        let answer = api.post("/v1/chat/completions", &json!({"messages": user(&block)}));
        assert_eq!(answer.status, 400, "{}", answer.text);
        let place = format!("messages[1].content[0].{param}");
        assert_eq!(answer.json()["error"]["param"], place, "{}", answer.text);
    }
    for (block, param) in [
        (json!({"type": "input_image", "image_url": far}), "image_url"),
        (json!({"type": "input_file", "file_data": "data:audio/wav;base64,aGk="}), "file_data"),
    ] {
        let answer = api.post("/v1/responses", &json!({"input": user(&block)}));
        assert_eq!(answer.status, 400, "{}", answer.text);
        let place = format!("input[1].content[0].{param}");
        assert_eq!(answer.json()["error"]["param"], place, "{}", answer.text);
    }
}

/// The agent waits for the result in the middle of its turn.
#[test]
fn documents_in_a_tools_result_reach_the_agent_as_such() {
    for driver in ["claude-tui", "claude-stream"] {
        let api = api(&format!("[apps.tests]\ndriver = \"{driver}\"\n"));
        let prompt = "[[tool mcp__app__look {}]] [[say Seen: {result}]]";
        let mut messages = vec![json!({"role": "user", "content": prompt})];
        let tools = json!([{"name": "look", "input_schema": {}}]);
        let ask = |messages: &[Value]| {
            api.post(
                "/v1/messages",
                &json!({"max_tokens": 9, "messages": messages, "tools": tools}),
            )
        };
        let answer = ask(&messages).json();
        let call = answer["content"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(call["type"], "tool_use", "{answer}");
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        let with = |content: Value| {
            let result =
                json!({"type": "tool_result", "tool_use_id": call["id"], "content": content});
            [messages.clone(), vec![json!({"role": "user", "content": [result]})]].concat()
        };
        let document = |media: &str| json!({"type": "document", "source": source(media)});
        let refused = ask(&with(json!([{"type": "image", "source": source("image/bmp")}])));
        assert_eq!(refused.status, 400, "{}", refused.text);
        let place = "messages[2].content[0].content[0].source.media_type";
        assert!(refused.text.contains(place), "{}", refused.text);
        let found = json!([{"type": "text", "text": "42 degrees"}]);
        let answer = ask(&with(json!([document("application/pdf"), document("text/csv"),
            {"type": "image", "source": source("image/jpg")},
            {"type": "search_result", "source": "x", "title": "Ulm", "content": found}])));
        assert_eq!(answer.headers["x-hob-session"], "warm", "{}", answer.text);
        let text = answer.json()["content"][0]["text"].as_str().unwrap().to_owned();
        let parts = ["application/pdf", "hello", "image/jpeg", "Ulm", "42 degrees"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}
