//! JSON Schemas of what an operator writes.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::node::NodeState;
use crate::reach::Nodes;
use crate::topology::Topology;

/// JSON Schema (draft 2020-12) of [`NodeState`], the file that `segue apply` takes.
pub fn node_state() -> Value {
    of::<NodeState>("Desired state of a Segue node")
}

/// JSON Schema (draft 2020-12) of [`Topology`], the file that `segue lab` takes.
pub fn topology() -> Value {
    of::<Topology>("Segue lab topology")
}

/// JSON Schema (draft 2020-12) of [`Nodes`], the file that `segue trace --nodes` takes.
pub fn nodes() -> Value {
    of::<Nodes>("How Segue's agents are reached")
}

fn of<T: schemars::JsonSchema>(title: &str) -> Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>();
    schema.insert("title".to_owned(), title.into());
    schema.to_value()
}
