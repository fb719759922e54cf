//! Every example is accepted, planned and explained; none of this needs root.

use segue_lab::{explain, up, wiring};

fn examples() -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(crate::common::repository("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_example_loads_and_plans() {
    let examples = examples();
    assert!(examples.len() >= 4, "examples are missing: {examples:?}");
    for file in examples {
        let loaded = up::load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(loaded.plan.name, file.file_stem().unwrap().to_str().unwrap(), "named like its file");
        let text = explain::text(&loaded.plan);
        for (chain, definition) in &loaded.topology.chains {
            assert!(text.contains(&format!("chain {chain}, forward")), "{}: {text}", file.display());
            assert_eq!(
                text.contains(&format!("chain {chain}, reverse")),
                definition.reverse,
                "{}: {text}",
                file.display()
            );
        }
        assert!(loaded.text.starts_with('#'), "{}: a comment says what it is", file.display());
    }
}

#[test]
fn the_main_job_is_wired_as_its_picture_shows() {
    let loaded = up::load(&crate::common::repository("examples/main-job.yaml")).unwrap();
    let spaces = wiring::spaces(&loaded.plan);
    let names: Vec<&str> = spaces.iter().map(|space| space.name).collect();
    assert_eq!(names, ["edge1", "nfv1", "edge2", "client", "server", "firewall"]);
    for space in &spaces {
        let ports = space.interfaces.iter().filter(|interface| interface.port).count();
        let of_node = !matches!(space.name, "client" | "server" | "firewall");
        assert_eq!(ports, if of_node { space.interfaces.len() } else { 0 }, "{}", space.name);
    }
    assert_eq!(loaded.plan.hosts["client"].interface.mtu, 1500);
    assert_eq!(loaded.plan.links().len(), 6, "two core, two access, two to the firewall");
}
