//! Rules divided among a few trees, so that those which leave a word open are not copied into every child of those which do not.

use std::num::NonZero;

use super::items::Items;
use super::tree::{Builder, Thrift, Tree};
use crate::image::ENTRIES;
use crate::key::word;
use crate::normal::Normal;
use crate::random::Random;

/// Rules by which divisions into trees are compared.
const SAMPLE: usize = 1500;
/// Of the divisions that are best for the part, so many are built in full and compared again ...
const FINALISTS: usize = 4;
/// ... if there are no more rules than this.
const FINALISTS_RULES: usize = 20_000;
/// Fewer rules are not worth threads.
const ALONE: usize = 1000;
/// Walks by which they are compared.
const WALKS: usize = 512;
/// Entries and children for each rule, above which a tree is built again with fewer copies.
const COPIES: usize = 24;
/// As many may be made beyond that: they do not make an image large.
const COPIES_SMALL: usize = 1 << 13;
/// How dear copies are, tried one after the other until a tree fits its bounds.
const THRIFTS: [f32; 8] = [0.2, 0.3, 0.45, 0.7, 1.0, 1.5, 2.5, 4.0];
/// What a step, the begin of a tree and a rule that is compared cost, in cycles.
const STEP: f32 = 14.0;
const BEGIN: f32 = 12.0;
const COMPARE: f32 = 10.0;
/// What a leaf of more rules than one group costs beyond, and each group of it.
const LONG: f32 = 40.0;
const LONG_GROUP: f32 = 12.0;

/// The trees of one chain and family, over positions in its list of rules.
///
/// `rules`: with each, whether it ends the chain for every packet that matches its conditions.
pub(crate) fn grow(rules: &[(&Normal, bool)]) -> Vec<Tree> {
    if rules.is_empty() {
        return Vec::new();
    }
    let items = Items::new(rules);
    let kinds = rules.iter().map(|(rule, _)| kind(rule)).collect::<Vec<_>>();
    let divisions = divisions(&kinds);
    if divisions.len() == 1 || rules.len() <= SAMPLE {
        let planted = plant_each(&items, &kinds, divisions.iter().map(|division| (&division[..], &[][..])));
        return least(&items, planted);
    }
    // Compared by a part of the rules; the best are built and compared again, as a part may mislead.
    let stride = rules.len().div_ceil(SAMPLE);
    let part = rules.iter().copied().step_by(stride).collect::<Vec<_>>();
    let part_kinds = kinds.iter().copied().step_by(stride).collect::<Vec<_>>();
    let part_items = Items::new(&part);
    let mut sampled = plant_each(&part_items, &part_kinds, divisions.iter().map(|division| (&division[..], &[][..])));
    sampled.sort_by(|one, other| one.cost.total_cmp(&other.cost));
    sampled.truncate(if rules.len() <= FINALISTS_RULES { FINALISTS } else { 1 });
    let finalists = sampled.iter().map(|planted| (planted.division, &planted.thrifts[..]));
    least(&items, plant_each(&items, &kinds, finalists))
}

/// A division with its trees.
struct Planted<'a> {
    division: &'a [u8],
    trees: Vec<Tree>,
    /// What each tree needed, as a place in [`THRIFTS`].
    thrifts: Vec<usize>,
    cost: f32,
}

/// The trees of each division, and their cost, in their order. With each, the thrifts to begin with. Of many rules each division
/// has a thread of its own.
fn plant_each<'a, 'b>(
    items: &Items,
    kinds: &[u8],
    divisions: impl Iterator<Item = (&'a [u8], &'b [usize])>,
) -> Vec<Planted<'a>> {
    let plant = |(division, thrifts): (&'a [u8], &[usize])| {
        let (trees, thrifts) = plant_all(items, kinds, division, thrifts);
        let cost = cost(items, &trees);
        Planted { division, trees, thrifts, cost }
    };
    if kinds.len() < ALONE {
        return divisions.map(plant).collect();
    }
    std::thread::scope(|scope| {
        let begun = divisions.map(|one| (one, std::thread::Builder::new().spawn_scoped(scope, move || plant(one))));
        // All of them begin before the first one is waited for.
        let begun = begun.collect::<Vec<_>>();
        let planted = begun.into_iter().map(|(one, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            // No more threads are allowed.
            Err(_) => plant(one),
        });
        planted.collect()
    })
}

/// The trees of the cheapest, complete.
fn least(items: &Items, planted: Vec<Planted>) -> Vec<Tree> {
    let least = planted.into_iter().min_by(|one, other| one.cost.total_cmp(&other.cost));
    let mut trees = least.map(|planted| planted.trees).unwrap_or_default();
    let threads = if items.count < ALONE { 1 } else { std::thread::available_parallelism().map_or(1, NonZero::get) };
    trees.iter_mut().for_each(|tree| Builder::complete(items, tree, threads));
    trees
}

/// Bit 0: the rule narrows the source, bit 1: the destination.
fn kind(rule: &Normal) -> u8 {
    let narrow = |first: usize| {
        (first..first + 4).any(|word| {
            let ranges = rule.projection.get(&word);
            ranges.is_some_and(|ranges| {
                ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum::<u64>() <= 1 << 20
            })
        })
    };
    u8::from(narrow(word::SOURCE)) | u8::from(narrow(word::DESTINATION)) << 1
}

/// Ways to divide the kinds that occur: each a list of trees, each tree a set of kinds (bit k: kind k).
fn divisions(kinds: &[u8]) -> Vec<Vec<u8>> {
    let there = kinds.iter().fold(0_u8, |there, kind| there | 1 << kind);
    // Kinds: 0 neither, 1 source, 2 destination, 3 both.
    let all: [&[u8]; 8] = [
        &[0b1111],
        &[0b1010, 0b0101],
        &[0b1100, 0b0011],
        &[0b1000, 0b0111],
        &[0b1110, 0b0001],
        &[0b1000, 0b0010, 0b0101],
        &[0b1010, 0b0100, 0b0001],
        &[0b1000, 0b0010, 0b0100, 0b0001],
    ];
    let mut found: Vec<Vec<u8>> = Vec::new();
    for division in all {
        let division = division.iter().map(|tree| tree & there).filter(|tree| *tree != 0).collect::<Vec<_>>();
        if !found.contains(&division) {
            found.push(division);
        }
    }
    found
}

/// The trees of a division, with the thrift of each. `thrifts`: those with which a part of the rules could do.
fn plant_all(items: &Items, kinds: &[u8], division: &[u8], thrifts: &[usize]) -> (Vec<Tree>, Vec<usize>) {
    let member = |set: u8| (0..items.count as u32).filter(|item| set >> kinds[*item as usize] & 1 != 0).collect();
    let place = |(place, set): (usize, &u8)| (member(*set), thrifts.get(place).copied().unwrap_or(0));
    let mut members: Vec<(Vec<u32>, usize, usize)> = division
        .iter()
        .enumerate()
        .map(place)
        .enumerate()
        .map(|(at, (members, thrift))| (members, thrift, at))
        .collect();
    // The tree with the earliest rules first: a match there spares the others.
    members.sort_by_key(|(members, ..)| members.get(members.len() / 2).copied());
    let mut needed = vec![0; division.len()];
    let plant = |(members, thrift, at): (Vec<u32>, usize, usize)| {
        let (tree, thrift) = plant(items, members, thrift);
        needed[at] = thrift;
        tree
    };
    let trees = members.into_iter().map(plant).collect();
    (trees, needed)
}

/// One tree, within bounds, and the place in [`THRIFTS`] of what it needed: `from` or a later one.
fn plant(items: &Items, members: Vec<u32>, from: usize) -> (Tree, usize) {
    let budget = COPIES * members.len() + COPIES_SMALL;
    for (place, thrift) in THRIFTS.iter().enumerate().skip(from) {
        if let Some(tree) = Builder::new(items, Thrift(*thrift), budget).build(members.clone()) {
            return (tree, place);
        }
    }
    (Tree::Leaf(members, Default::default()), THRIFTS.len())
}

/// Mean cost of finding a packet that matches some rule, in cycles. Only differences between trees of the same items matter.
fn cost(items: &Items, trees: &[Tree]) -> f32 {
    let mut random = Random::new(0x5e90_e5e9);
    let mut total = 0.0;
    for walk in 0..WALKS {
        let target = (walk * items.count / WALKS) as u32;
        let values = items.dimensions.iter().map(|dimension| {
            let (first, last) = *random.pick(dimension.of(target));
            random.between(first.into(), last.into()) as u32
        });
        let values = values.collect::<Vec<_>>();
        let value = |word: usize| {
            items.dimensions.iter().position(|dimension| dimension.word == word).map_or(0, |at| values[at])
        };
        let mut best = u32::MAX;
        for tree in trees {
            let (mut at, mut cycles) = (tree, BEGIN);
            let leaf = loop {
                match at {
                    _ if at.first() >= best => break &[][..],
                    Tree::Leaf(leaf, _) => break leaf,
                    Tree::Cut { word, shift, children, .. } => {
                        at = &children[(value(*word) >> shift) as usize & (children.len() - 1)];
                    }
                    Tree::Split { word, thresholds, children, .. } => {
                        let value = value(*word);
                        at = &children[thresholds.partition_point(|threshold| *threshold < value)];
                        cycles += STEP * 0.4;
                    }
                }
                cycles += STEP;
            };
            let tried = leaf.iter().filter(|item| **item <= target && **item < best).count();
            if leaf.contains(&target) {
                best = best.min(target);
            }
            total += cycles + if tried == 0 { 0.0 } else { COMPARE };
            if leaf.len() > ENTRIES {
                total += LONG + LONG_GROUP * (tried / ENTRIES) as f32;
            }
        }
    }
    total / WALKS as f32
}
