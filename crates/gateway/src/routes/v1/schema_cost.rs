//! Bounds the work of a client's JSON schema before it is compiled. References can make a small schema as large as an
//! exponential tree, and a pattern can compile into megabytes.

use std::collections::HashMap;

use regex::RegexBuilder;
use serde_json::Value;

/// The largest schema, in bytes of JSON.
const MAX_SCHEMA_BYTES: usize = 64 << 10;
const MAX_SUBSCHEMAS: usize = 2000;
/// The longest way from the schema to a subschema, each reference followed.
const MAX_DEPTH: usize = 128;
/// The most subschemas that one value is checked against, each reference followed.
const MAX_COST: u64 = 2000;
/// The most patterns, and the most memory that one of them may take, in bytes.
const MAX_PATTERNS: usize = 100;
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// Keywords whose value is one subschema of a part of the value. Those of one group never apply to the same part.
const CHILDREN: [(&str, Group); 10] = [
    ("additionalProperties", Group::Parts),
    ("items", Group::Parts),
    ("additionalItems", Group::Parts),
    ("contains", Group::Other(1)),
    ("propertyNames", Group::Other(2)),
    ("unevaluatedItems", Group::Other(3)),
    ("unevaluatedProperties", Group::Other(4)),
    ("not", Group::Other(5)),
    ("if", Group::Other(6)),
    ("contentSchema", Group::Other(7)),
];
/// References that cannot be followed without evaluating the schema.
const UNSUPPORTED: [&str; 6] =
    ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor", "$id", "id"];

/// Subschemas that may apply to the same part of a value belong to different groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    /// Properties and items, of which each part of a value has at most one.
    Parts,
    Other(usize),
}

/// Fails if a schema can cost too much. The error is for the client.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    if schema.to_string().len() > MAX_SCHEMA_BYTES {
        return Err(format!("is larger than {MAX_SCHEMA_BYTES} bytes"));
    }
    let mut graph = Graph { root: schema, nodes: HashMap::new(), edges: Vec::new(), patterns: 0 };
    graph.add(schema, 0)?;
    graph.check_cost()
}

/// The subschemas and what leads from one to the next.
struct Graph<'a> {
    root: &'a Value,
    /// The number of each subschema, by its address.
    nodes: HashMap<*const Value, usize>,
    edges: Vec<Vec<(Group, usize)>>,
    patterns: usize,
}

impl<'a> Graph<'a> {
    /// Adds a subschema and everything that it leads to, and returns its number. `depth` counts the way to it.
    fn add(&mut self, schema: &'a Value, depth: usize) -> Result<usize, String> {
        if let Some(known) = self.nodes.get(&std::ptr::from_ref(schema)) {
            return Ok(*known);
        }
        let number = self.edges.len();
        if depth > MAX_DEPTH || number >= MAX_SUBSCHEMAS {
            return Err(format!(
                "has more than {MAX_SUBSCHEMAS} subschemas, or nests them more than {MAX_DEPTH} levels deep"
            ));
        }
        self.nodes.insert(std::ptr::from_ref(schema), number);
        self.edges.push(Vec::new());
        let Some(object) = schema.as_object() else { return Ok(number) };
        if let Some(word) =
            UNSUPPORTED.iter().find(|word| object.get(**word).is_some_and(Value::is_string))
        {
            return Err(format!("{word} is not supported"));
        }
        let mut children: Vec<(Group, &'a Value)> = Vec::new();
        let mut branches = CHILDREN.len();
        let mut branch = |schema: &'a Value| {
            branches += 1;
            (Group::Other(branches), schema)
        };
        if let Some(reference) = object.get("$ref") {
            let target = reference.as_str().and_then(|reference| self.resolve(reference));
            let text = || format!("the reference {reference} is not supported or leads nowhere");
            children.push(branch(target.ok_or_else(text)?));
        }
        for word in ["allOf", "anyOf", "oneOf"] {
            children.extend(
                object.get(word).and_then(Value::as_array).into_iter().flatten().map(&mut branch),
            );
        }
        for word in ["then", "else"] {
            children.extend(object.get(word).map(&mut branch));
        }
        for word in ["dependentSchemas", "dependencies", "patternProperties"] {
            let of_word = object.get(word).and_then(Value::as_object);
            children.extend(of_word.into_iter().flatten().map(|(_, schema)| branch(schema)));
        }
        let properties = object.get("properties").and_then(Value::as_object);
        children.extend(properties.into_iter().flatten().map(|(_, schema)| (Group::Parts, schema)));
        for word in ["prefixItems", "items"] {
            let items = object.get(word).and_then(Value::as_array);
            children.extend(items.into_iter().flatten().map(|schema| (Group::Parts, schema)));
        }
        for (word, group) in CHILDREN {
            children.extend(
                object.get(word).filter(|value| !value.is_array()).map(|schema| (group, schema)),
            );
        }
        let named = object.get("patternProperties").and_then(Value::as_object);
        let patterns = named.into_iter().flatten().map(|(pattern, _)| pattern.as_str());
        for pattern in patterns.chain(object.get("pattern").and_then(Value::as_str)) {
            self.check_pattern(pattern)?;
        }
        for (group, child) in children {
            let child = self.add(child, depth + 1)?;
            self.edges[number].push((group, child));
        }
        Ok(number)
    }

    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn check_pattern(&mut self, pattern: &str) -> Result<(), String> {
        self.patterns += 1;
        if self.patterns > MAX_PATTERNS {
            return Err(format!("has more than {MAX_PATTERNS} patterns"));
        }
        match RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build() {
            Err(regex::Error::CompiledTooBig(_)) => {
                Err(format!("the pattern {pattern:?} is too large"))
            }
            // A pattern that is wrong is reported when the schema is compiled.
            _ => Ok(()),
        }
    }

    fn check_cost(&self) -> Result<(), String> {
        let reached = self.reached();
        let mut costs: Vec<Option<u64>> = vec![None; self.edges.len()];
        for (number, edges) in self.edges.iter().enumerate() {
            let mut groups: Vec<Group> = Vec::new();
            for (group, child) in edges {
                let is_cycle = reached[*child][number];
                if is_cycle && !groups.contains(group) {
                    groups.push(*group);
                }
            }
            if groups.len() > 1 {
                return Err(
                    "refers to itself in several ways for the same part of a value".to_owned()
                );
            }
        }
        match self.cost(0, &reached, &mut costs) {
            cost if cost > MAX_COST => Err(format!(
                "has more than {MAX_COST} subschemas after all references are expanded"
            )),
            _ => Ok(()),
        }
    }

    /// Returns, for every pair, whether the second subschema can be reached from the first.
    fn reached(&self) -> Vec<Vec<bool>> {
        let from = |start: usize| {
            let mut seen = vec![false; self.edges.len()];
            let mut next = vec![start];
            while let Some(number) = next.pop() {
                for (_, child) in &self.edges[number] {
                    if !std::mem::replace(&mut seen[*child], true) {
                        next.push(*child);
                    }
                }
            }
            seen
        };
        (0..self.edges.len()).map(from).collect()
    }

    /// Returns how many subschemas one value is checked against. A step back into a cycle goes to a part of the value, and
    /// is counted there.
    fn cost(&self, number: usize, reached: &[Vec<bool>], costs: &mut Vec<Option<u64>>) -> u64 {
        if let Some(known) = costs[number] {
            return known;
        }
        let mut cost = 1u64;
        for (_, child) in &self.edges[number] {
            if !reached[*child][number] {
                cost = cost.saturating_add(self.cost(*child, reached, costs));
            }
        }
        costs[number] = Some(cost);
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn usual_schemas_are_cheap() {
        for schema in [
            json!(true),
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}}, "required": ["a"]}),
            json!({"$defs": {"node": {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}},
                "$ref": "#/$defs/node"}),
            json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "id": {"type": "string"}}}),
            json!({"items": {"$ref": "#"}}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn schemas_that_can_cost_too_much_are_refused() {
        let doubling = |word: &str| {
            let mut definitions = serde_json::Map::new();
            for number in 0..40 {
                let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
                definitions.insert(format!("a{number}"), json!({word: [next, next]}));
            }
            definitions.insert("a40".to_owned(), json!(true));
            json!({"$defs": definitions, "$ref": "#/$defs/a0"})
        };
        let patterns: serde_json::Map<String, Value> =
            (0..101).map(|n| (format!("p{n}"), json!({"pattern": format!("a{n}")}))).collect();
        for (schema, word) in [
            (doubling("allOf"), "subschemas"),
            (doubling("anyOf"), "subschemas"),
            (
                json!({"allOf": [{"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}]}),
                "itself",
            ),
            (
                json!({"properties": {"a": {"$ref": "#"}}, "patternProperties": {"a": {"$ref": "#"}}}),
                "itself",
            ),
            (json!({"pattern": "\\p{L}{150}"}), "pattern"),
            (json!({"properties": patterns}), "patterns"),
            (json!({"$dynamicRef": "#x"}), "$dynamicRef"),
            (json!({"$ref": "http://x/y"}), "not supported"),
            (json!({"$ref": "#/$defs/none"}), "nowhere"),
            (json!({"description": "x".repeat(70_000)}), "larger"),
        ] {
            let error = check(&schema).unwrap_err();
            assert!(error.contains(word), "{error}: {schema}");
        }
    }
}
