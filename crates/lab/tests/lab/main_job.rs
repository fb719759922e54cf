//! The main job, as `./x demo` runs it.

use crate::common::{assert_nothing_left, need_root, repository, unique};
use segue_lab::cli::Output;
use segue_lab::demo;
use segue_lab::names::Roots;

#[test]
#[ignore = "needs root"]
fn every_check_of_the_demo_passes() {
    need_root();
    let name = unique("job");
    let directory = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(repository("examples/main-job.yaml")).unwrap();
    let file = directory.path().join("main-job.yaml");
    std::fs::write(&file, text.replace("name: main-job", &format!("name: {name}"))).unwrap();
    std::fs::copy(repository("examples/main-job.nft"), directory.path().join("main-job.nft")).unwrap();
    let status = demo::demo(&Roots::default(), &file, false, Output::Table).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(status, 0, "the report above says what differed");
    assert_nothing_left(&Roots::default(), &name);
}
