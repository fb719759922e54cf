//! Congestion marks on labels (RFC 5129): values of TC that are set aside in pairs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::KeyPath;

/// The highest value of TC: three bits.
pub const CLASS_MAX: u8 = 7;

/// Two values of TC: packets that met no congestion have the one, and the other once they have. Labels are ECN capable where they have
/// either of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EcnPair {
    /// TC of packets that are not marked, 0 to 7.
    pub class: u8,
    /// TC in its place once a router has marked the packet, 1 to 7. Nothing else has it.
    pub marked: u8,
}

/// What is wrong with the pairs under a key: where, what, and the remedy.
pub(crate) fn problems(pairs: &[EcnPair], key: &KeyPath) -> Vec<(KeyPath, String, String)> {
    let mut found = Vec::new();
    let mut taken: [Option<usize>; CLASS_MAX as usize + 1] = [None; CLASS_MAX as usize + 1];
    for (position, pair) in pairs.iter().enumerate() {
        for (name, value, least) in [("class", pair.class, 0), ("marked", pair.marked, 1)] {
            let key = key.at(position).at(name);
            let Some(slot) = taken.get_mut(usize::from(value)) else {
                let message = format!("{value} is no value of TC, which has three bits");
                found.push((key, message, format!("choose {least} to {CLASS_MAX}")));
                continue;
            };
            if value < least {
                let message = format!("TC {value} as a mark would tell of congestion all that nobody classifies");
                found.push((key, message, format!("choose {least} to {CLASS_MAX}")));
                continue;
            }
            if let Some(other) = slot.replace(position) {
                let remedy = match other == position {
                    true => "choose another value than `class` has".to_owned(),
                    false => format!("choose one that the pair [{other}] does not have (RFC 5129 section 2)"),
                };
                found.push((key, format!("TC {value} would say two things"), remedy));
            }
        }
    }
    found
}
