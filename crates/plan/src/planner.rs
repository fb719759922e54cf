//! What the steps of planning share.

use indexmap::IndexMap;
use ipnet::Ipv6Net;

use segue_model::error::{KeyPath, Report};
use segue_model::topology::Dataplane;

use crate::approach::{self, Approach};
use crate::chain::Course;
use crate::inventory::{Inventory, Node};
use crate::leads;
use crate::plan::{Explanation, FunctionPlan, NodePlan, Plan};
use crate::reach::Reach;

/// Numbers of the SIDs of functions; decimal digits read as written.
const FIRST_FUNCTION: u16 = 100;
const LAST_FUNCTION: u16 = 9999;
/// Where in a node's block of labels those of functions begin; before it is that of its table.
const FIRST_FUNCTION_LABEL: u32 = 1;

/// A plan in the making. Nodes are called by their position in the inventory.
pub(crate) struct Planner<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) report: Report,
    pub(crate) reach: Reach,
    /// By labels.
    pub(crate) label_reach: Reach,
    pub(crate) nodes: Vec<NodePlan>,
    pub(crate) functions: IndexMap<String, FunctionPlan>,
    pub(crate) explanations: Vec<Explanation>,
    /// Per node: SIDs that functions and crossings have so far, and labels.
    numbers: Vec<[u16; 2]>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(inventory: &'a Inventory) -> Self {
        let chosen = |(name, (approach, why)): (&str, (Approach, String))| {
            let by_labels = inventory
                .functions
                .get(name)
                .is_some_and(|function| leads::is_by_labels(inventory, function, approach));
            let plan = FunctionPlan { approach, why, by_labels, sids: IndexMap::new(), labels: IndexMap::new() };
            (name.to_owned(), plan)
        };
        let functions = approach::all(inventory).into_iter().map(chosen);
        Self {
            inventory,
            report: Report::default(),
            reach: Reach::new(inventory),
            label_reach: Reach::of_labels(inventory),
            nodes: vec![NodePlan::default(); inventory.nodes.len()],
            functions: functions.collect(),
            explanations: Vec::new(),
            numbers: vec![[0; 2]; inventory.nodes.len()],
        }
    }

    pub(crate) fn finish(self) -> Result<Plan, segue_model::error::Errors> {
        self.report.finish()?;
        let nodes = self.inventory.nodes.keys().cloned().zip(self.nodes).collect();
        Ok(Plan { nodes, functions: self.functions, explanations: self.explanations })
    }

    fn node(&self, node: usize) -> &'a Node {
        &self.inventory.nodes[node]
    }

    pub(crate) fn node_name(&self, node: usize) -> &'a str {
        self.inventory.nodes.get_index(node).map_or("", |(name, _)| name)
    }

    /// How nodes reach each other, by labels or by SIDs.
    pub(crate) fn reach_by(&self, by_labels: bool) -> &Reach {
        if by_labels { &self.label_reach } else { &self.reach }
    }

    pub(crate) fn dataplane(&self, node: usize) -> Dataplane {
        self.node(node).dataplane
    }

    pub(crate) fn locator(&self, node: usize) -> Ipv6Net {
        self.node(node).locator
    }

    pub(crate) fn error(&mut self, key: &KeyPath, message: impl Into<String>, remedy: impl Into<String>) {
        self.report.error(key, message, remedy);
    }

    /// How packets get to a function and back.
    pub(crate) fn approach(&self, name: &str) -> Option<Approach> {
        self.functions.get(name).map(|plan| plan.approach)
    }

    /// The next number for the SID of a function of a node, or of a crossing there.
    pub(crate) fn function_number(&mut self, node: usize, course: &Course<'_>) -> u16 {
        let [count, _] = &mut self.numbers[node];
        let number = FIRST_FUNCTION.saturating_add(*count);
        *count = count.saturating_add(1);
        if number > LAST_FUNCTION {
            let message = format!("node {} has no SIDs left for functions", self.node_name(node));
            self.error(&course.key.at("via"), message, "spread the functions over more nodes");
        }
        number.min(LAST_FUNCTION)
    }

    /// The next label of a node's own block for a function, or for a crossing. None: it has no more.
    pub(crate) fn next_label(&mut self, node: usize, course: &Course<'_>) -> Option<u32> {
        let block = self.node(node).labels?.block;
        let [_, count] = &mut self.numbers[node];
        let number = FIRST_FUNCTION_LABEL + u32::from(*count);
        *count = count.saturating_add(1);
        let label = block.low().saturating_add(number);
        if !block.contains(label) {
            let message =
                format!("node {} has no labels left for functions: its block {block} is used up", self.node_name(node));
            self.error(
                &course.key.at("via"),
                message,
                "give the node a larger `srlb`, or spread the functions over more nodes",
            );
            return None;
        }
        Some(label)
    }
}
