//! A topology as a picture (SVG), with the ways of its chains.

use std::fmt::Write;

use segue_model::topology::{Dataplane, Topology};
use segue_wiring::LabPlan;

use super::layout::{self, Point};
use super::picture::{Kind, Picture, Vertex};

/// One link between nodes, in pixels.
const LINK: f64 = 165.0;
const MARGIN: f64 = 90.0;
const BOX_HEIGHT: f64 = 40.0;
/// Between the ways of chains that share a link.
const WAY: f64 = 5.0;
/// A line of the legend.
const LEGEND: f64 = 20.0;

/// Colours that stay apart for most eyes (M. Okabe, K. Ito, "Color universal design", 2008), without those of boxes.
const COLOURS: [&str; 6] = ["#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#0072b2"];

/// The colour of a chain by its number.
pub(super) fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// The picture.
#[must_use]
pub fn export(topology: &Topology, plan: &LabPlan) -> String {
    let picture = Picture::of(topology, plan);
    let places = layout::places(&picture);
    let lowest = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::INFINITY, f64::min);
    let highest = |axis: usize| places.iter().map(|place| place[axis]).fold(f64::NEG_INFINITY, f64::max);
    let title = 40.0;
    let (left, top) = (lowest(0), lowest(1));
    let places: Vec<Point> =
        places.iter().map(|[x, y]| [(x - left) * LINK + MARGIN, (y - top) * LINK + MARGIN + title]).collect();
    let legend = picture.ways.len() as f64 * LEGEND;
    let longest =
        picture.ways.iter().map(|way| text_width(&legend_line(&way.chain, &way.segments), 12.0)).fold(0.0, f64::max);
    let width = ((highest(0) - left) * LINK + 2.0 * MARGIN).max(longest + 100.0);
    let height = (highest(1) - top) * LINK + 2.0 * MARGIN + title + legend;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"24\" y=\"34\" font-size=\"20\" fill=\"#333\">{}</text>\n",
        picture.name
    );
    links(&mut svg, &picture, &places);
    ways(&mut svg, &picture, &places);
    for (vertex, place) in picture.vertices.iter().zip(&places) {
        draw(&mut svg, vertex, *place);
    }
    for (number, way) in picture.ways.iter().enumerate() {
        let y = height - legend - 14.0 + number as f64 * LEGEND;
        let _ = writeln!(
            svg,
            "<line x1=\"24\" y1=\"{:.1}\" x2=\"54\" y2=\"{:.1}\" stroke=\"{}\" stroke-width=\"3.5\"/><text x=\"64\" y=\"{y:.1}\" font-size=\"12\" fill=\"#333\">{}</text>",
            y - 4.0,
            y - 4.0,
            colour(number),
            legend_line(&way.chain, &way.segments)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend_line(chain: &str, segments: &str) -> String {
    format!("{chain}: &lt;{segments}&gt;")
}

fn links(svg: &mut String, picture: &Picture, places: &[Point]) {
    for edge in &picture.edges {
        let [a, b] = edge.ends.map(|end| places[end]);
        let to_function = edge.ends.iter().any(|end| picture.vertices[*end].kind == Kind::Function);
        let dashes = if to_function { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = writeln!(
            svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#8c8c8c\" stroke-width=\"2\"{dashes}/>",
            a[0], a[1], b[0], b[1]
        );
        if !edge.about.is_empty() {
            let normal = normal(a, b);
            let at = [(a[0] + b[0]) / 2.0 - 14.0 * normal[0], (a[1] + b[1]) / 2.0 - 14.0 * normal[1]];
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"11\" fill=\"#595959\" text-anchor=\"middle\" stroke=\"white\" stroke-width=\"3\" paint-order=\"stroke\">{}</text>",
                at[0],
                at[1] + 4.0,
                edge.about
            );
        }
    }
}

/// To the left of the direction from one place to the other, one long.
fn normal(from: Point, to: Point) -> Point {
    let [x, y] = [to[0] - from[0], to[1] - from[1]];
    let length = x.hypot(y).max(1e-9);
    [-y / length, x / length]
}

/// Each chain keeps its own distance from the links, on its right-hand side, so that the two directions to and from a function stay apart too.
fn ways(svg: &mut String, picture: &Picture, places: &[Point]) {
    for (number, way) in picture.ways.iter().enumerate() {
        let offset = WAY * (1.0 + (number % COLOURS.len()) as f64);
        let mut path = String::new();
        for pair in way.stops.windows(2) {
            let [a, b] = [places[pair[0]], places[pair[1]]];
            let normal = normal(a, b);
            for place in [a, b] {
                let command = if path.is_empty() { 'M' } else { 'L' };
                let _ =
                    write!(path, "{command}{:.1} {:.1} ", place[0] + offset * normal[0], place[1] + offset * normal[1]);
            }
        }
        let _ = writeln!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"3.5\" stroke-linejoin=\"round\" stroke-linecap=\"round\"><title>{}</title></path>",
            path.trim_end(),
            colour(number),
            way.chain
        );
    }
}

fn draw(svg: &mut String, vertex: &Vertex, [x, y]: Point) {
    let width = (text_width(&vertex.name, 14.0)).max(text_width(&vertex.about, 9.5)) + 20.0;
    let (fill, stroke, text, round) = match vertex.kind {
        Kind::Node(Dataplane::Segue) => ("#1f4e79", "#1f4e79", "white", 8),
        Kind::Node(_) => ("#d9d9d9", "#7f7f7f", "#222", 8),
        Kind::Host => ("white", "#404040", "#222", 1),
        Kind::Function => ("#fbe5d6", "#c55a11", "#222", 18),
    };
    let _ = writeln!(
        svg,
        "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{BOX_HEIGHT}\" rx=\"{round}\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"14\" fill=\"{text}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"9.5\" fill=\"{text}\" text-anchor=\"middle\">{}</text>",
        x - width / 2.0,
        y - BOX_HEIGHT / 2.0,
        y - 2.0,
        vertex.name,
        y + 13.0,
        vertex.about
    );
}

/// As good as one can know it without the font.
fn text_width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.56
}
