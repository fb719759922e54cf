//! The model's errors as the API's.

use segue_model::{error::ModelError, node::NodeState};

use crate::problem::Problem;

/// Everything that is wrong with a state, without asking the kernel.
pub fn problems(state: &NodeState) -> Vec<Problem> {
    match state.validate() {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(problem).collect(),
    }
}

/// A model error as the API has it.
pub fn problem(error: &ModelError) -> Problem {
    Problem {
        file: error.file.clone(),
        line: error.position.map(|position| position.line),
        key: error.key.to_string(),
        message: error.message.clone(),
        remedy: error.remedy.clone(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_packaged_example_is_valid() {
        let text = include_str!("../../../packaging/node.yaml");
        if let Err(errors) = segue_model::load::load_node_state(text, "packaging/node.yaml") {
            panic!("{errors}");
        }
    }
}
