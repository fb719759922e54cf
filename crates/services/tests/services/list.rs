//! What holds for every service of the list.

use segue_services::{ALL, find};

#[test]
fn names_are_unique_and_sorted() {
    let names: Vec<_> = ALL.iter().map(|service| service.name()).collect();
    assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert!(names.iter().all(|name| find(name).is_some()) && find("nothing").is_none());
}

#[test]
fn an_empty_configuration_is_all_defaults_and_unknown_keys_are_refused_with_their_line() {
    for service in ALL {
        let name = service.name();
        let schema = service.schema();
        assert_eq!(schema["additionalProperties"], false, "{name}: deny_unknown_fields");
        assert!(service.prepare("# nothing\n", "x").is_ok(), "{name}");
        let error = service.prepare("# first\nnonesuch: 1\n", "file.yaml").err().map(|errors| errors.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with("file.yaml:2:") && error.contains("\"nonesuch\" is not known"), "{name}: {error}");
    }
}
