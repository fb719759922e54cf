//! Every error in a topology, the planner's too, with its line, its key and its remedy.
//!
//! `tests/bad/topologies.txt` holds one case after another: `=== name`, the document, `--- expected`, the errors. To write the expected
//! part anew after a change of wording: `SEGUE_UPDATE=1 cargo test -p segue-wiring --test errors`, then read the difference.

#[path = "../../model/tests/bad/cases.rs"]
mod cases;

#[test]
fn topologies() {
    cases::check(env!("CARGO_MANIFEST_DIR"), "topologies.txt", 60, |source| {
        segue_wiring::load_plan(source, cases::FILE).map(drop)
    });
}
