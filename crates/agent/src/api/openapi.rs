//! The OpenAPI document: paths and answers from the handlers, the desired state's schema from the model.

use serde_json::{Value, json};
use utoipa::OpenApi;

use super::{capture, handlers, simulate};

#[derive(OpenApi)]
#[openapi(
    info(title = "segued", description = "The agent of one Segue node. All paths are served on its Unix socket."),
    paths(
        handlers::openapi,
        handlers::get_state,
        handlers::put_state,
        handlers::post_diff,
        handlers::sids,
        handlers::policies,
        handlers::chains,
        handlers::functions,
        handlers::examine,
        handlers::ports,
        handlers::steering,
        handlers::firewalls,
        handlers::drops,
        handlers::outcomes,
        handlers::path_mtus,
        handlers::counters,
        handlers::version,
        handlers::metrics,
        capture::capture,
        simulate::simulate,
        simulate::inject,
    )
)]
struct Document;

/// The document. Bodies that hold a desired state refer to its JSON Schema, which the model makes.
pub fn document() -> Value {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    let mut schema = schemars::schema_for!(segue_model::node::NodeState).to_value();
    let definitions = schema.as_object_mut().and_then(|schema| {
        schema.remove("$schema");
        schema.remove("$defs")
    });
    if let Some(schemas) = document.pointer_mut("/components/schemas").and_then(Value::as_object_mut) {
        schemas.insert("NodeState".to_owned(), schema);
        schemas.extend(definitions.and_then(|all| all.as_object().cloned()).unwrap_or_default());
    }
    let reference = json!({"$ref": "#/components/schemas/NodeState"});
    for place in [
        "/paths/~1v1~1state/get/responses/200/content/application~1json/schema",
        "/paths/~1v1~1state/put/requestBody/content/application~1json/schema",
        "/paths/~1v1~1diff/post/requestBody/content/application~1json/schema",
    ] {
        if let Some(schema) = document.pointer_mut(place) {
            *schema = reference.clone();
        }
    }
    rename_references(&mut document);
    document
}

/// `#/$defs/X`, as JSON Schema has it, to where OpenAPI keeps schemas.
fn rename_references(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(target) if key == "$ref" => {
                        *target = target.replace("#/$defs/", "#/components/schemas/");
                    }
                    value => rename_references(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(rename_references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE=1 cargo test -p segue-agent openapi` writes the file anew.
    #[test]
    fn the_committed_document_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let text = format!("{}\n", serde_json::to_string_pretty(&document()).unwrap());
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(committed == text, "docs/openapi.json is not current: run UPDATE=1 cargo test -p segue-agent openapi");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
            match value {
                Value::Object(object) => {
                    found.extend(object.get("$ref").and_then(Value::as_str));
                    object.values().for_each(|value| references(value, found));
                }
                Value::Array(list) => list.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.contains(&"#/components/schemas/NodeState"));
        for reference in found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
        }
    }
}
