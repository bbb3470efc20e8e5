//! The list of tools: names, descriptions, schemas and annotations.

use std::sync::Arc;

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::wire::{
    CaptureArguments, CaptureResult, CorrectArguments, CorrectResult, ForgetArguments,
    ForgetResult, RecallArguments, RecallResult, StatsArguments, StatsResult, TimelineArguments,
    TimelineResult,
};

/// The name of the memory's server, as it says itself and as Hob writes it into the settings of agents.
pub const SERVER_NAME: &str = "hob";

/// The server's instructions to agents.
pub(crate) const INSTRUCTIONS: &str = "Hob remembers every turn of past sessions, word for word. Use memory_recall before \
asking the user what was said, decided or tried before. Use memory_correct when a recalled record is wrong.";

/// The names of the tools, in the order of [`tools`].
pub(crate) const TOOL_NAMES: [&str; 6] = [
    "memory_recall",
    "memory_capture",
    "memory_correct",
    "memory_forget",
    "memory_timeline",
    "memory_stats",
];

/// Returns all tools with their schemas and annotations.
pub fn tools() -> Vec<Tool> {
    let read = || ToolAnnotations::default().read_only(true).open_world(false);
    let add = || ToolAnnotations::default().read_only(false).destructive(false).open_world(false);
    let delete = || ToolAnnotations::default().read_only(false).destructive(true).open_world(false);
    vec![
        tool::<RecallArguments, RecallResult>(
            "memory_recall",
            "Search past sessions. Returns the turns that answer the cue, word for word, the best first.",
            read(),
        ),
        tool::<CaptureArguments, CaptureResult>(
            "memory_capture",
            "Store a fact or decision for later sessions.",
            add().idempotent(true),
        ),
        tool::<CorrectArguments, CorrectResult>(
            "memory_correct",
            "Correct a record. The old record is kept and ranks last.",
            add(),
        ),
        tool::<ForgetArguments, ForgetResult>(
            "memory_forget",
            "Forget a record or a session of an app, with a day to undo it. In the owner's memory it only asks the owner.",
            delete().idempotent(true),
        ),
        tool::<TimelineArguments, TimelineResult>(
            "memory_timeline",
            "List turns in chronological order.",
            read(),
        ),
        tool::<StatsArguments, StatsResult>(
            "memory_stats",
            "Count the stored turns and report the memory's health.",
            read(),
        ),
    ]
}

fn tool<A: JsonSchema, R: JsonSchema>(
    name: &'static str,
    description: &'static str,
    annotations: ToolAnnotations,
) -> Tool {
    Tool::new(name, description, schema::<A>())
        .with_raw_output_schema(schema::<R>())
        .with_annotations(annotations)
}

/// Builds a schema that every validator understands: without references, own formats and dialect.
fn schema<T: JsonSchema>() -> Arc<Map<String, Value>> {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut value = settings.into_generator().into_root_schema_for::<T>().to_value();
    remove_formats(&mut value);
    let Value::Object(mut map) = value else { return Arc::default() };
    map.remove("title");
    map.entry("properties").or_insert_with(|| Value::Object(Map::new()));
    Arc::new(map)
}

fn remove_formats(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("format");
            map.values_mut().for_each(remove_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_formats),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline;

    /// A bridge lists `tools.json` while no server runs.
    #[test]
    fn tools_json_equals_the_tools() {
        let expect = serde_json::to_string_pretty(&tools()).unwrap() + "\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools.json");
        if offline::TOOLS != expect {
            let path_of_expected = std::env::temp_dir().join("hob-tools.json");
            std::fs::write(&path_of_expected, &expect).unwrap();
            panic!(
                "{path} differs from the tools; its expected content is in {}",
                path_of_expected.display()
            );
        }
    }

    #[test]
    fn schemas_are_self_contained_and_descriptions_short() {
        let tools = tools();
        assert_eq!(tools.iter().map(|tool| tool.name.as_ref()).collect::<Vec<_>>(), TOOL_NAMES);
        for tool in tools {
            let text = serde_json::to_string(&tool).unwrap();
            assert!(!text.contains("$ref") && !text.contains("$schema"), "{text}");
            assert!(tool.description.as_ref().is_some_and(|text| text.len() < 120));
            for schema in [Some(&tool.input_schema), tool.output_schema.as_ref()] {
                assert_eq!(schema.unwrap()["type"], "object", "{text}");
            }
        }
    }
}
