//! Rules, and the structures that they are compiled to.

mod analysis;
mod classbench;
mod edges;
mod random;
