//! Where things are in a picture, so that distances in it are those in the graph: stress majorization (E. Gansner, Y. Koren, S. North, "Graph
//! drawing by stress majorization", 2004). A layered layout, which the crates at hand have, is for graphs with a direction; a network has none.

use std::collections::VecDeque;

use super::picture::{Kind, Picture};
use crate::random::Random;

/// A place; one link between nodes is one long.
pub(super) type Point = [f64; 2];

/// Rounds of improvement of one attempt.
const ROUNDS: usize = 150;
/// Vertices times attempts, so that large pictures do not take long.
const WORK: usize = 400;

/// Width and height that a box takes, with some room around it.
const ROOM: Point = [0.78, 0.36];
/// Rounds of pulling boxes apart at most.
const PULLS: usize = 2000;

/// Places of all vertices, in their order; hosts lie left and right.
pub(super) fn places(picture: &Picture) -> Vec<Point> {
    let count = picture.vertices.len();
    let distances = distances(picture);
    let mut random = Random::new(1);
    let attempts = (WORK / count.max(1)).clamp(1, 20);
    let mut best: (f64, Vec<Point>) = (f64::INFINITY, Vec::new());
    for _ in 0..attempts {
        let mut places: Vec<Point> = (0..count).map(|_| [random.fraction() * 3.0, random.fraction() * 3.0]).collect();
        for _ in 0..ROUNDS {
            majorize(&mut places, &distances);
        }
        let stress = stress(&places, &distances);
        if stress < best.0 {
            best = (stress, places);
        }
    }
    let mut places = turned(picture, best.1);
    pull_apart(&mut places);
    places
}

/// Moves boxes that would cover each other apart, the shorter way.
fn pull_apart(places: &mut [Point]) {
    for _ in 0..PULLS {
        let mut moved = false;
        for here in 0..places.len() {
            for there in 0..here {
                let apart = [places[here][0] - places[there][0], places[here][1] - places[there][1]];
                let missing = [ROOM[0] - apart[0].abs(), ROOM[1] - apart[1].abs()];
                if missing.iter().any(|missing| *missing <= 1e-6) {
                    continue;
                }
                let axis = usize::from(missing[1] < missing[0]);
                let step = missing[axis] / 2.0 * if apart[axis] < 0.0 { -1.0 } else { 1.0 };
                places[here][axis] += step;
                places[there][axis] -= step;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// Lengths of shortest paths. What is not connected is a little farther than the farthest.
fn distances(picture: &Picture) -> Vec<Vec<f64>> {
    let count = picture.vertices.len();
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); count];
    for edge in &picture.edges {
        let [a, b] = edge.ends;
        near[a].push(b);
        near[b].push(a);
    }
    let of = |start: usize| {
        let mut hops = vec![None; count];
        hops[start] = Some(0u32);
        let mut queue = VecDeque::from([start]);
        while let Some(here) = queue.pop_front() {
            for next in &near[here] {
                if hops[*next].is_none() {
                    hops[*next] = hops[here].map(|hops| hops + 1);
                    queue.push_back(*next);
                }
            }
        }
        hops
    };
    let hops: Vec<Vec<Option<u32>>> = (0..count).map(of).collect();
    let farthest = hops.iter().flatten().flatten().max().copied().unwrap_or_default();
    // Functions are close to their nodes.
    let shorter = |vertex: usize| if picture.vertices[vertex].kind == Kind::Function { 0.25 } else { 0.0 };
    let length = |a: usize, b: usize| {
        let hops = f64::from(hops[a][b].unwrap_or(farthest + 1));
        if a == b { 0.0 } else { (hops - shorter(a) - shorter(b)).max(0.5) }
    };
    (0..count).map(|a| (0..count).map(|b| length(a, b)).collect()).collect()
}

/// Moves each vertex to where the others want it.
fn majorize(places: &mut [Point], distances: &[Vec<f64>]) {
    for here in 0..places.len() {
        let (mut sum, mut weights) = ([0.0; 2], 0.0);
        for there in (0..places.len()).filter(|there| *there != here) {
            let wanted = distances[here][there];
            let weight = wanted.powi(-2);
            let apart = [places[here][0] - places[there][0], places[here][1] - places[there][1]];
            let length = apart[0].hypot(apart[1]).max(1e-9);
            for axis in 0..2 {
                sum[axis] += weight * (places[there][axis] + wanted * apart[axis] / length);
            }
            weights += weight;
        }
        if weights > 0.0 {
            places[here] = [sum[0] / weights, sum[1] / weights];
        }
    }
}

fn stress(places: &[Point], distances: &[Vec<f64>]) -> f64 {
    let mut stress = 0.0;
    for here in 0..places.len() {
        for there in 0..here {
            let wanted = distances[here][there];
            let length = (places[here][0] - places[there][0]).hypot(places[here][1] - places[there][1]);
            stress += ((length - wanted) / wanted).powi(2);
        }
    }
    stress
}

/// The first host is left of the last one; without two of them the longer side lies.
fn turned(picture: &Picture, mut places: Vec<Point>) -> Vec<Point> {
    let hosts: Vec<usize> = (0..places.len()).filter(|at| picture.vertices[*at].kind == Kind::Host).collect();
    let pair = match hosts.as_slice() {
        [first, .., last] => Some((*first, *last)),
        _ => farthest(&places),
    };
    let Some((left, right)) = pair else { return places };
    let direction = [places[right][0] - places[left][0], places[right][1] - places[left][1]];
    let length = direction[0].hypot(direction[1]).max(1e-9);
    let [cosine, sine] = [direction[0] / length, direction[1] / length];
    for place in &mut places {
        *place = [place[0] * cosine + place[1] * sine, place[1] * cosine - place[0] * sine];
    }
    // Functions hang below rather than above, as far as there is a choice.
    let middle = places.iter().map(|place| place[1]).sum::<f64>() / places.len().max(1) as f64;
    let functions = || (0..places.len()).filter(|at| picture.vertices[*at].kind == Kind::Function);
    let below: f64 = functions().map(|at| places[at][1] - middle).sum();
    if below < 0.0 {
        places.iter_mut().for_each(|place| place[1] = -place[1]);
    }
    places
}

fn farthest(places: &[Point]) -> Option<(usize, usize)> {
    let pairs = (0..places.len()).flat_map(|a| (a + 1..places.len()).map(move |b| (a, b)));
    let length = |(a, b): (usize, usize)| (places[a][0] - places[b][0]).hypot(places[a][1] - places[b][1]);
    pairs.max_by(|one, other| length(*one).total_cmp(&length(*other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::generate::{Shape, generate};

    #[test]
    fn no_box_covers_another() {
        for (shape, nodes) in
            [(Shape::Line, 30), (Shape::Ring, 12), (Shape::Tree, 31), (Shape::FatTree, 45), (Shape::Random, 40)]
        {
            let text = generate(shape, nodes, 1, "x").unwrap();
            let (topology, plan) = segue_wiring::load_plan(&text, "x").unwrap_or_else(|errors| panic!("{errors}"));
            let places = places(&Picture::of(&topology, &plan));
            for (here, a) in places.iter().enumerate() {
                for b in &places[..here] {
                    let apart = (a[0] - b[0]).abs() >= ROOM[0] - 1e-3 || (a[1] - b[1]).abs() >= ROOM[1] - 1e-3;
                    assert!(apart, "{shape:?}: {a:?} {b:?}");
                }
            }
        }
    }
}
