use super::*;

fn errors(source: &str) -> String {
    load_topology(source, "lab.yaml").expect_err("wrong on purpose").to_string()
}

#[test]
fn unknown_keys_name_the_closest_known_one() {
    assert_eq!(
        errors("name: x\nnodes:\n  a:\n    idd: 3\n"),
        "lab.yaml:4:5: nodes.a.idd: the key \"idd\" is not known here; did you mean \"id\"? (known: id, locator, loopback, dataplane)"
    );
}
