//! Decision trees: at each node the cut or split of one word that leaves the fewest rules to a packet.

use std::sync::{Mutex, PoisonError};

use super::items::{FULL, Items};

/// Rules with which a node is no longer divided.
const LEAF: usize = 4;
/// Items looked at to choose a division.
const SAMPLE: usize = 1024;
/// Ways from a root to a leaf; `SEGUE_CLASSIFIER_DEPTH_MAX`.
pub(crate) const DEPTH_MAX: usize = 16;
/// Thresholds of a split; `SEGUE_CLASSIFIER_THRESHOLDS`.
pub(crate) const THRESHOLDS: usize = 15;
/// What a cut and a split cost, relative to each other.
const CUT_COST: f32 = 1.0;
const SPLIT_COST: f32 = 2.0;
/// The size of a tree is foretold once this part of it is made ...
const FORECAST_PART: f32 = 0.125;
/// ... and may be wrong by so much.
const FORECAST_SLACK: f32 = 1.25;
/// Bits of a leaf's windows.
pub(crate) const WINDOW_BITS: u32 = 7;
/// The second window lies at a multiple of this in its word; `SEGUE_CLASSIFIER_WINDOW_STEP`.
pub(crate) const WINDOW_STEP: u32 = 9;
/// Where in a word the first window is tried.
const WINDOW_SHIFTS: [u32; 9] = [0, 3, 7, 9, 12, 16, 18, 21, 25];
/// Words that the second window may be in.
const SECOND_WORDS: usize = 32;
/// Rules of a long leaf by which its window is chosen.
const WINDOW_RULES: usize = 16;
/// What one rule less in a leaf is worth.
const COMPARE_COST: f32 = 9.0;

#[derive(Debug)]
pub(crate) enum Tree {
    /// Items in order, and once [`Builder::complete`] was there, what tells them apart.
    Leaf(Vec<u32>, [Window; 2]),
    /// Child `word >> shift & children - 1`.
    Cut { word: usize, shift: u32, children: Vec<Tree>, first: u32 },
    /// Child: how many thresholds are less than the word. One child more than thresholds.
    Split { word: usize, thresholds: Vec<u32>, children: Vec<Tree>, first: u32 },
}

/// 7 bits of a word of the key, and between which values they are for each rule of a leaf; none: all pass.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub word: usize,
    pub shift: u32,
    pub ranges: Vec<(u8, u8)>,
}

impl Tree {
    /// The least item in it; all ones if there is none.
    pub fn first(&self) -> u32 {
        match self {
            Self::Leaf(items, _) => items.first().copied().unwrap_or(u32::MAX),
            Self::Cut { first, .. } | Self::Split { first, .. } => *first,
        }
    }
}

/// How dear copies of rules are: the higher, the smaller the tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thrift(pub f32);

pub(super) struct Builder<'a> {
    items: &'a Items,
    thrift: Thrift,
    /// Entries in leaves and children that may be made.
    budget: usize,
    /// Those that are made.
    spent: usize,
    /// Which part of the tree is made, by members.
    progress: f32,
    /// For each dimension the bits that cuts above have taken without narrowing its region: the same for all members.
    taken: Vec<u32>,
    /// While a division is looked at: from one child to the next, how many items more, and which share of the packets.
    differences: Vec<[f32; 2]>,
}

/// A range of an item, and which share of its packets it has.
struct Span {
    range: (u32, u32),
    share: f32,
}

/// A division of one dimension.
#[derive(Debug, Clone)]
enum Division {
    Cut { shift: u32, bits: u32 },
    Split(Vec<u32>),
}

impl Division {
    fn children(&self) -> usize {
        match self {
            Self::Cut { bits, .. } => 1 << bits,
            Self::Split(thresholds) => thresholds.len() + 1,
        }
    }

    /// Bits of the word that a cut takes.
    fn bits(&self) -> u32 {
        match self {
            Self::Cut { shift, bits } => ((1 << bits) - 1) << shift,
            Self::Split(_) => 0,
        }
    }

    fn cost(&self) -> f32 {
        match self {
            Self::Cut { .. } => CUT_COST,
            Self::Split(_) => SPLIT_COST,
        }
    }

    /// Children that a range reaches: first and last; the last may be beyond the number of children, then it goes round.
    fn reach(&self, (first, last): (u32, u32)) -> (usize, usize) {
        match self {
            Self::Cut { shift, bits } => {
                let (from, to) = (first >> shift, last >> shift);
                let mask = (1_u32 << bits) - 1;
                if to - from >= mask {
                    (0, mask as usize)
                } else {
                    ((from & mask) as usize, (from & mask) as usize + (to - from) as usize)
                }
            }
            Self::Split(thresholds) => {
                let child = |value: u32| thresholds.partition_point(|threshold| *threshold < value);
                (child(first), child(last))
            }
        }
    }
}

impl<'a> Builder<'a> {
    pub fn new(items: &'a Items, thrift: Thrift, budget: usize) -> Self {
        let taken = vec![0; items.dimensions.len()];
        Self { items, thrift, budget, spent: 0, progress: 0.0, taken, differences: Vec::new() }
    }

    /// The tree of these items; None: it would be larger than the budget.
    pub fn build(mut self, members: Vec<u32>) -> Option<Tree> {
        let mut region = vec![FULL; self.items.dimensions.len()];
        self.node(members, &mut region, 0, 1.0)
    }

    /// None: the budget is not enough, or cannot be by what the tree so far has taken. To find that out by spending all of it
    /// would take most of the time of compiling, as it is tried for each thrift.
    fn spend(&mut self, entries: usize) -> Option<()> {
        self.spent += entries;
        let forecast = self.spent as f32 / self.progress.max(FORECAST_PART);
        (self.spent <= self.budget && forecast <= self.budget as f32 * FORECAST_SLACK).then_some(())
    }

    /// Cuts off the members behind one that every packet of the region matches, and that ends the chain.
    fn truncate(&self, members: &mut Vec<u32>, region: &[(u32, u32)]) {
        let covers = |item: &u32| {
            self.items.decisive[*item as usize]
                && region
                    .iter()
                    .enumerate()
                    .all(|(at, region)| self.clipped(at, *item, *region).next() == Some(*region))
        };
        if let Some(last) = members.iter().position(covers) {
            members.truncate(last + 1);
        }
    }

    /// `weight`: which part of the tree it is, by members.
    fn node(&mut self, mut members: Vec<u32>, region: &mut [(u32, u32)], depth: usize, weight: f32) -> Option<Tree> {
        self.truncate(&mut members, region);
        let best = if members.len() > LEAF && depth < DEPTH_MAX { self.choose(&members, region) } else { None };
        let Some((at, division)) = best else {
            self.progress += weight;
            self.spend(members.len())?;
            return Some(Tree::Leaf(members, Default::default()));
        };
        let mut children = self.distribute(&members, region, at, &division);
        self.spend(children.len())?;
        drop(members);
        let word = self.items.dimensions[at].word;
        let (whole, taken) = (region[at], self.taken[at]);
        if part(whole, &division, 0) == whole {
            self.taken[at] |= division.bits();
        }
        let weight = weight / children.iter().map(Vec::len).sum::<usize>().max(1) as f32;
        let mut trees: Vec<Tree> = children.iter().map(|_| Tree::Leaf(Vec::new(), Default::default())).collect();
        for index in scattered(children.len()) {
            region[at] = part(whole, &division, index);
            let child = std::mem::take(&mut children[index]);
            let weight = weight * child.len() as f32;
            trees[index] = self.node(child, region, depth + 1, weight)?;
        }
        (region[at], self.taken[at]) = (whole, taken);
        let first = trees.iter().map(Tree::first).min().unwrap_or(u32::MAX);
        Some(match division {
            Division::Cut { shift, .. } => Tree::Cut { word, shift, children: trees, first },
            Division::Split(thresholds) => Tree::Split { word, thresholds, children: trees, first },
        })
    }

    /// Gives all leaves their windows, by so many threads at most.
    pub fn complete(items: &'a Items, tree: &mut Tree, threads: usize) {
        let builder = Self::new(items, Thrift(0.0), 0);
        let region = vec![FULL; items.dimensions.len()];
        let Some((at, division, children)) = builder.parts(tree) else {
            return builder.complete_below(tree, &mut region.clone());
        };
        let whole = region[at];
        let left = Mutex::new(children.iter_mut().enumerate());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut region = region.clone();
            while let Some((index, child)) = next() {
                region[at] = part(whole, &division, index);
                builder.complete_below(child, &mut region);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // Where no more are allowed, those that are there do it all.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    }

    fn complete_below(&self, tree: &mut Tree, region: &mut [(u32, u32)]) {
        if let Tree::Leaf(members, windows) = tree {
            *windows = self.windows(members, region);
        }
        let Some((at, division, children)) = self.parts(tree) else { return };
        let whole = region[at];
        for (index, child) in children.iter_mut().enumerate() {
            region[at] = part(whole, &division, index);
            self.complete_below(child, region);
        }
        region[at] = whole;
    }

    /// How a node is divided: in which dimension, by what, and its children. None: it is a leaf.
    fn parts<'t>(&self, tree: &'t mut Tree) -> Option<(usize, Division, &'t mut [Tree])> {
        let (word, division, children) = match tree {
            Tree::Leaf(..) => return None,
            Tree::Cut { word, shift, children, .. } => {
                (*word, Division::Cut { shift: *shift, bits: children.len().ilog2() }, children)
            }
            Tree::Split { word, thresholds, children, .. } => (*word, Division::Split(thresholds.clone()), children),
        };
        let at = self.items.dimensions.iter().take_while(|dimension| dimension.word != word).count();
        Some((at, division, children))
    }

    /// The windows in which a packet seldom passes for a rule that it does not match.
    fn windows(&self, members: &[u32], region: &[(u32, u32)]) -> [Window; 2] {
        let hull = |at: usize, item: u32| {
            let ranges = self.clipped(at, item, region[at]);
            ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1))).unwrap_or(FULL)
        };
        let few = &members[..members.len().min(WINDOW_RULES)];
        let mut passing = vec![1.0; few.len() * (few.len() + 1) / 2];
        [false, true].map(|second| {
            let mut best: Option<(f32, usize, u32)> = None;
            let (mut hulls, mut own) = (Vec::with_capacity(few.len()), Vec::with_capacity(few.len()));
            for (at, dimension) in self.items.dimensions.iter().enumerate() {
                hulls.clear();
                hulls.extend(few.iter().map(|item| hull(at, *item)));
                if second && dimension.word >= SECOND_WORDS || hulls.iter().all(|hull| *hull == region[at]) {
                    continue;
                }
                let shifts = WINDOW_SHIFTS.into_iter().filter(|shift| !second || shift % WINDOW_STEP == 0);
                for shift in shifts {
                    own.clear();
                    own.extend(hulls.iter().map(|hull| seen(*hull, shift)));
                    let mistakes: f32 = mistakes(&own, seen(region[at], shift))
                        .zip(&passing)
                        .map(|(share, before)| share * before)
                        .sum();
                    if best.is_none_or(|(least, ..)| mistakes < least) {
                        best = Some((mistakes, at, shift));
                    }
                }
            }
            let Some((_, at, shift)) = best else { return Window::default() };
            let ranges = members.iter().map(|item| seen(hull(at, *item), shift)).collect::<Vec<_>>();
            let shares = mistakes(&ranges[..few.len()], seen(region[at], shift));
            passing.iter_mut().zip(shares).for_each(|(before, share)| *before *= share);
            Window { word: self.items.dimensions[at].word, shift, ranges }
        })
    }

    /// Each child's members, in order.
    fn distribute(&self, members: &[u32], region: &[(u32, u32)], at: usize, division: &Division) -> Vec<Vec<u32>> {
        let mut children = vec![Vec::new(); division.children()];
        for item in members {
            for range in self.clipped(at, *item, region[at]) {
                let (first, last) = division.reach(range);
                for child in first..=last {
                    let child = &mut children[child % division.children()];
                    if child.last() != Some(item) {
                        child.push(*item);
                    }
                }
            }
        }
        children
    }

    /// An item's ranges within a region.
    fn clipped(&self, at: usize, item: u32, region: (u32, u32)) -> impl Iterator<Item = (u32, u32)> {
        let ranges = self.items.dimensions[at].of(item).iter();
        ranges
            .map(move |(first, last)| (*first.max(&region.0), *last.min(&region.1)))
            .filter(|(first, last)| first <= last)
    }

    /// The best division of the best dimension, if any is worth its step.
    fn choose(&mut self, members: &[u32], region: &[(u32, u32)]) -> Option<(usize, Division)> {
        let stride = members.len().div_ceil(SAMPLE);
        let count = members.len() as f32;
        let mut best: Option<(f32, usize, Division)> = None;
        let mut spans = Vec::with_capacity(SAMPLE + 8);
        for (at, region) in region.iter().copied().enumerate() {
            spans.clear();
            for item in members.iter().step_by(stride) {
                let before = spans.len();
                spans.extend(self.clipped(at, *item, region).map(|range| Span { range, share: 1.0 }));
                let share = 1.0 / (spans.len() - before).max(1) as f32;
                spans[before..].iter_mut().for_each(|span| span.share = share);
            }
            // All alike here: nothing to tell them apart by.
            if spans.iter().all(|span| span.range == spans[0].range) {
                continue;
            }
            for division in self.divisions(&spans, region, members.len()) {
                if division.bits() & self.taken[at] != 0 {
                    continue;
                }
                let score = self.score(&spans, &division, count);
                if score > best.as_ref().map_or(0.0, |(score, ..)| *score) {
                    best = Some((score, at, division));
                }
            }
        }
        best.map(|(_, at, division)| (at, division))
    }

    fn divisions(&self, spans: &[Span], region: (u32, u32), count: usize) -> Vec<Division> {
        let mut found = Vec::new();
        // Ends of ranges, and what lies just before their beginnings: where a split makes a difference.
        let mut ends = Vec::with_capacity(2 * spans.len());
        for Span { range: (first, last), .. } in spans {
            ends.extend((*first > region.0).then(|| first - 1));
            ends.extend((*last < region.1).then_some(*last));
        }
        ends.sort_unstable();
        if ends.is_empty() {
            return found;
        }
        let mut values = ends.clone();
        values.dedup();
        let pick = |from: &[u32], parts: usize| {
            let mut thresholds =
                (1..=parts).map(|part| from[(from.len() * part / (parts + 1)).min(from.len() - 1)]).collect::<Vec<_>>();
            thresholds.dedup();
            Division::Split(thresholds)
        };
        if values.len() <= THRESHOLDS {
            found.push(Division::Split(values));
        } else {
            found.push(pick(&ends, THRESHOLDS));
            found.push(pick(&values, THRESHOLDS));
        }
        // Cuts: as many children as there are items, or fewer, at every place in the word that differs between items.
        let (least, most) = (ends[0], ends[ends.len() - 1].max(ends[0]));
        let top = 32 - (least ^ most).leading_zeros().min(31);
        let fitting = (count as f32).log2().ceil() as u32;
        for bits in [2, 4, 6, 8, 10, 12].into_iter().filter(|bits| *bits <= fitting.max(2)) {
            let mut shift = 0;
            while shift + bits <= 32 && shift <= top {
                found.push(Division::Cut { shift, bits });
                shift += if bits == 2 { 4 } else { 2 };
            }
            if top >= bits {
                found.push(Division::Cut { shift: top - bits, bits });
            }
        }
        found
    }

    /// How much a division narrows what a packet has left, for its cost and copies. Not above 0: not worth it.
    ///
    /// `count`: members that the spans are a sample of.
    fn score(&mut self, spans: &[Span], division: &Division, count: f32) -> f32 {
        let children = division.children();
        let differences = &mut self.differences;
        differences.clear();
        differences.resize(children + 1, [0.0; 2]);
        for span in spans {
            let (first, last) = division.reach(span.range);
            add(differences, first, last, [1.0, span.share / (last - first + 1) as f32]);
        }
        let (mut size, mut share, mut left, mut copies, mut total) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for [items, part] in &differences[..children] {
            size += items;
            share += part;
            left += size * share;
            copies += size;
            total += share;
        }
        let scale = count / total;
        left = (left / total * scale).max(1.0);
        copies = (copies / total).max(1.0);
        // A packet is compared with about half of what is left before it matches.
        if (count - left) * COMPARE_COST < division.cost() || left > 0.95 * count {
            return 0.0;
        }
        let empty_children = (children as f32 / (count * 4.0)).max(1.0).ln();
        (((count / left).ln() - self.thrift.0 * (copies.ln() + empty_children)) / division.cost()).max(0.0)
    }
}

/// All of `0..count`; those that come first are from everywhere, so that they tell how large all will be.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    let all = count.next_power_of_two();
    let unused = usize::BITS - all.trailing_zeros();
    (0..all).map(move |index| index.reverse_bits().checked_shr(unused).unwrap_or(0)).filter(move |index| *index < count)
}

/// What is seen of a range through a window.
fn seen((first, last): (u32, u32), shift: u32) -> (u8, u8) {
    const ALL: u32 = (1 << WINDOW_BITS) - 1;
    let (first, last) = (first >> shift, last >> shift);
    if first >> WINDOW_BITS == last >> WINDOW_BITS { ((first & ALL) as u8, (last & ALL) as u8) } else { (0, ALL as u8) }
}

/// How often each rule passes for a packet that does not match it: for one of each later rule, and for any.
fn mistakes(ranges: &[(u8, u8)], region: (u8, u8)) -> impl Iterator<Item = f32> {
    let size = |(first, last): (u8, u8)| f32::from(last - first) + 1.0;
    let share = move |one: (u8, u8), other: (u8, u8)| {
        let (first, last) = (one.0.max(other.0), one.1.min(other.1));
        if first > last { 0.0 } else { size((first, last)) / size(other) }
    };
    ranges.iter().enumerate().flat_map(move |(place, rule)| {
        let later = ranges[place + 1..].iter().map(move |later| share(*rule, *later));
        later.chain([share(*rule, region)])
    })
}

/// Adds to the differences of children `first..=last`, of which the last may be beyond the number of children, and the first is not: what is
/// beyond goes round. This is where compiling spends its time.
fn add(differences: &mut [[f32; 2]], first: usize, last: usize, [one, two]: [f32; 2]) {
    let children = differences.len() - 1;
    let mut change = |at: usize, sign: f32| {
        let [of_one, of_two] = &mut differences[at];
        *of_one += sign * one;
        *of_two += sign * two;
    };
    change(first, 1.0);
    if last < children {
        change(last + 1, -1.0);
    } else {
        change(children, -1.0);
        change(0, 1.0);
        change(last - children + 1, -1.0);
    }
}

/// The part of a region that a child is for.
fn part(region: (u32, u32), division: &Division, child: usize) -> (u32, u32) {
    match division {
        Division::Split(thresholds) => {
            let first = if child == 0 { region.0 } else { region.0.max(thresholds[child - 1] + 1) };
            let last = thresholds.get(child).map_or(region.1, |threshold| region.1.min(*threshold));
            (first, last)
        }
        Division::Cut { shift, bits } => {
            let above = shift + bits;
            let block = |value: u32| if above == 32 { 0 } else { value >> above << above };
            if block(region.0) != block(region.1) {
                return region; // bits below others that still differ
            }
            let first = block(region.0) | (child as u32) << shift;
            let last = first | ((1 << shift) - 1);
            (first.max(region.0), last.min(region.1))
        }
    }
}
