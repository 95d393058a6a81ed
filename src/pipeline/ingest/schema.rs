//! What a table's records have to be like: JSON Schema, from files that are read at the start.
//!
//! The draft is the one that `$schema` names, 2020-12 where it names none. Nothing is fetched: a `$ref` that leads out of
//! the file is refused with the file.

use std::path::Path;
use std::sync::Arc;

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;

use super::tables::Tables;

/// Of what is told of one record.
const DETAIL_BYTES_MAX: usize = 300;

/// Of a table.
#[derive(Debug, Clone)]
pub struct Schema(Arc<Validator>);

/// Where a record does not fit, and why; no value of it is repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// A JSON Pointer into the record.
    pub path: Box<str>,
    pub why: Box<str>,
}

impl Misfit {
    pub fn bytes(&self) -> usize {
        size_of::<Misfit>() + self.path.len() + self.why.len()
    }
}

impl Schema {
    pub fn read(path: &Path) -> Result<Schema, String> {
        let told = |why: String| format!("{}: {why}", path.display());
        let text = std::fs::read(path).map_err(|error| told(format!("it cannot be read: {error}")))?;
        let schema = serde_json::from_slice(&text).map_err(|error| told(format!("it is no JSON: {error}")))?;
        Schema::of(&schema).map_err(told)
    }

    pub fn of(schema: &Value) -> Result<Schema, String> {
        let built = jsonschema::options().with_retriever(Nowhere).build(schema);
        let told = |error: jsonschema::ValidationError<'_>| {
            let (at, text) = (error.instance_path().to_string(), error.to_string());
            let why = short(&text);
            format!("it is no schema: {}{why}", if at.is_empty() { String::new() } else { format!("at {at}: ") })
        };
        built.map(|validator| Schema(Arc::new(validator))).map_err(told)
    }

    /// The first place where the record does not fit. `record`: JSON.
    pub fn misfit(&self, record: &[u8]) -> Option<Misfit> {
        let record: Value = match serde_json::from_slice(record) {
            Ok(record) => record,
            Err(_) => return Some(Misfit { path: "".into(), why: "it cannot be looked at".into() }),
        };
        let error = self.0.validate(&record).err()?;
        let (path, why) = (error.instance_path().to_string(), error.masked().to_string());
        Some(Misfit { path: short(&path).into(), why: short(&why).into() })
    }
}

/// By table.
pub type Schemas = Tables<Schema>;

impl Schemas {
    /// Reads the files.
    pub fn of(text: &str) -> Result<Schemas, String> {
        Tables::parse(text, |path| match path {
            "" => Err("a schema's file has no name".to_owned()),
            _ => Schema::read(Path::new(path)),
        })
    }
}

fn short(text: &str) -> &str {
    let end = (0..=text.len().min(DETAIL_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Nothing outside the file is part of a schema.
struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("nothing is fetched: have it in the file itself, under `$defs`".into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn misfit(schema: &Value, record: &Value) -> Option<(String, String)> {
        let schema = Schema::of(schema).unwrap_or_else(|why| panic!("{schema}: {why}"));
        schema.misfit(record.to_string().as_bytes()).map(|Misfit { path, why }| (path.into(), why.into()))
    }

    #[test]
    fn where_and_why() {
        let schema = json!({
            "type": "object",
            "required": ["id"],
            "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
            "$defs": {"line": {"properties": {"count": {"type": "integer", "minimum": 1}}}},
        });
        let cases = [
            (json!({"id": 1, "lines": [{"count": 2}]}), None),
            (json!({"lines": []}), Some(("", "\"id\" is a required property"))),
            (
                json!({"id": 1, "lines": [{"count": 1}, {"count": "secret"}]}),
                Some(("/lines/1/count", "value is not of type \"integer\"")),
            ),
            (
                json!({"id": 1, "lines": [{"count": 0}]}),
                Some(("/lines/0/count", "value is less than the minimum of 1")),
            ),
        ];
        for (record, right) in cases {
            let right = right.map(|(path, why): (&str, &str)| (path.to_owned(), why.to_owned()));
            assert_eq!(misfit(&schema, &record), right, "{record}");
        }
        let long = json!({"properties": {"a": {"enum": ["x".repeat(1_000)]}}});
        let (_, why) = misfit(&long, &json!({"a": "é".repeat(500)})).expect("it does not fit");
        assert!(why.len() <= DETAIL_BYTES_MAX, "{}", why.len());
    }

    /// As the draft has it that the schema names.
    #[test]
    fn drafts() {
        let items = |draft: &str| json!({"$schema": draft, "properties": {"a": {"items": [{"type": "string"}], "additionalItems": false}}});
        let record = json!({"a": ["x", "y"]});
        assert!(misfit(&items("http://json-schema.org/draft-07/schema#"), &record).is_some());
        let latest = json!({"properties": {"a": {"prefixItems": [{"type": "string"}], "items": false}}});
        assert!(misfit(&latest, &record).is_some());
        assert!(Schema::of(&items("https://json-schema.org/draft/2020-12/schema")).is_err(), "it has no list of items");
    }

    #[test]
    fn what_is_no_schema_and_what_leads_out_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let beside = folder.path().join("beside.json");
        std::fs::write(&beside, "{}").expect("a file");
        let cases = [
            (json!({"type": "strin"}), "it is no schema"),
            (json!({"properties": 5}), "it is no schema"),
            (json!({"$ref": "http://127.0.0.1:9/other.json"}), "nothing is fetched"),
            (json!({"$ref": format!("file://{}", beside.display())}), "nothing is fetched"),
            (json!({"properties": {"a": {"$ref": "#/$defs/absent"}}}), "it is no schema"),
        ];
        for (schema, right) in cases {
            let why = Schema::of(&schema).err().unwrap_or_default();
            assert!(why.contains(right), "{schema}: {why:?}");
        }
        let path = folder.path().join("broken.json");
        std::fs::write(&path, "{\"type\":").expect("a file");
        for (text, right) in [
            (format!("acme/orders={}", path.display()), "it is no JSON"),
            (format!("acme/orders={}", folder.path().join("absent").display()), "it cannot be read"),
            ("acme/orders=".to_owned(), "has no name"),
            ("acme/orders".to_owned(), "is not TENANT/TABLE=VALUE"),
        ] {
            let why = Schemas::of(&text).err().unwrap_or_default();
            assert!(why.contains(right), "{text}: {why:?}");
        }
        assert!(Schemas::of(&format!("acme/orders={}", beside.display())).is_ok());
    }
}
