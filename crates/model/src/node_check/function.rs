//! Functions as objects of a node.

use std::collections::HashMap;

use crate::check;
use crate::error::KeyPath;
use crate::wiring::Wiring;

use super::Check;

impl Check<'_> {
    pub(super) fn functions(&mut self) {
        let functions = KeyPath::root().at("functions");
        let mut links: HashMap<String, &str> = HashMap::new();
        for (name, function) in &self.state.functions {
            let key = functions.at(name);
            if !check::is_namespace_name(name) {
                let remedy = "use 1 to 63 letters, digits, dots, hyphens and underscores, not beginning with a dot";
                self.error(&key, format!("{name:?} cannot be the name of a function"), remedy);
            }
            match (&function.netns, &function.container) {
                (None, None) => {
                    let message = "it is not said where the function runs";
                    self.error(&key, message, "add `netns:` with the name of a namespace, or `container:`");
                }
                (Some(_), Some(_)) => {
                    let message = "a function runs in a namespace or in a container, not in both";
                    self.error(&key.at("container"), message, "keep one of `netns` and `container`");
                }
                _ => {}
            }
            for (place, named) in [("netns", &function.netns), ("container", &function.container)] {
                // Both go into commands and paths.
                if let Some(named) = named.as_ref().filter(|named| !check::is_namespace_name(named)) {
                    let remedy = "use letters, digits, dots, hyphens and underscores, not beginning with a dot";
                    self.error(&key.at(place), format!("{named:?} cannot be its name"), remedy);
                }
            }
            self.watch(None, &function.watch, &key.at("watch"));
            let wiring = Wiring::of_function(name);
            for link in [wiring.node_west, wiring.node_east] {
                if self.ports.contains_key(link.as_str()) {
                    let message = format!("the agent makes {link:?} for this function, but it is among `ports`");
                    self.error(&key, message, "remove the port: it needs no entry");
                }
                if let Some(other) = links.insert(link.clone(), name) {
                    let message = format!("{other:?} gets the link {link:?} too");
                    self.error(&key, message, "rename one of the two functions");
                }
            }
        }
    }
}
