//! Configurations of services in Python: keys and kinds of values are those of the class's defaults, `CONFIGURATION`.

use pyo3::prelude::*;
use segue_model::error::{KeyPath, Report as Errors};
use serde_json::{Map, Value, json};

/// What is wrong with a configuration; a service's `check()` says it here.
#[pyclass(module = "segue_service")]
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) errors: Vec<(String, String, String)>,
}

#[pymethods]
impl Report {
    fn error(&mut self, key: String, message: String, remedy: String) {
        self.errors.push((key, message, remedy));
    }
}

/// What kind of value a default is, as JSON Schema calls it; none for null, which stands for any.
fn kind(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some("boolean"),
        Value::Number(number) if number.is_f64() => Some("number"),
        Value::Number(_) => Some("integer"),
        Value::String(_) => Some("string"),
        Value::Array(_) => Some("array"),
        Value::Object(_) => Some("object"),
    }
}

fn fits(value: &Value, kind: &str) -> bool {
    match kind {
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    }
}

/// The configuration with all defaults. What is wrong is reported; keys count from those of the report.
pub(crate) fn complete(defaults: &Map<String, Value>, written: &Value, report: &mut Errors) -> Map<String, Value> {
    let mut all = defaults.clone();
    let root = KeyPath::root();
    let written = match written {
        Value::Null => return all,
        Value::Object(written) => written,
        _ => {
            report.error(&root, "a configuration is a mapping", "write `key: value`");
            return all;
        }
    };
    for (key, value) in written {
        let Some(default) = defaults.get(key) else {
            let known: Vec<_> = defaults.keys().map(String::as_str).collect();
            let remedy = match known.as_slice() {
                [] => "remove it: the service has no options".to_owned(),
                known => format!("write one of them: {}", known.join(", ")),
            };
            report.error(&root.at(key), format!("the key {key:?} is not known here"), remedy);
            continue;
        };
        match kind(default) {
            Some(kind) if !fits(value, kind) => {
                let remedy = format!("write one such as {default}, which is what it is if nothing is written");
                report.error(&root.at(key), format!("{value} is of another kind than {kind}"), remedy);
            }
            _ => drop(all.insert(key.clone(), value.clone())),
        }
    }
    all
}

/// JSON Schema of it.
pub(crate) fn schema(name: &str, defaults: &Map<String, Value>) -> Value {
    let property = |(key, default): (&String, &Value)| {
        let mut property = json!({ "default": default });
        if let Some(kind) = kind(default) {
            property["type"] = kind.into();
        }
        (key.clone(), property)
    };
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("Configuration of the service {name}"),
        "type": "object",
        "additionalProperties": false,
        "properties": defaults.iter().map(property).collect::<Map<_, _>>(),
    })
}
