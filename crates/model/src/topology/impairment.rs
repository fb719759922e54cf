//! What a link of a topology does to packets beside carrying them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest delay, milliseconds.
pub const DELAY_MAX_MS: f64 = 10_000.0;

/// What a link does to packets beside carrying them, in both directions. The same seed does the same to the same packets. What a link needs for
/// itself (ARP, neighbour discovery, multicast listeners) is delayed only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Impairment {
    /// How long a packet is on the way, milliseconds, 0 to 10,000.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_ms: f64,
    /// How much longer or shorter at most, milliseconds; not more than `delay_ms`. Packets stay in order.
    #[serde(skip_serializing_if = "is_zero")]
    pub jitter_ms: f64,
    /// How many of a hundred packets are lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub loss_percent: f64,
    /// How many of a hundred packets arrive twice.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_percent: f64,
    /// How many of a hundred packets arrive behind the next one, or 20 ms later if none follows.
    #[serde(skip_serializing_if = "is_zero")]
    pub reorder_percent: f64,
    /// What decides which packets.
    pub seed: u64,
}

impl Default for Impairment {
    fn default() -> Self {
        Self { delay_ms: 0.0, jitter_ms: 0.0, loss_percent: 0.0, duplicate_percent: 0.0, reorder_percent: 0.0, seed: 1 }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde gives a reference
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}
