//! The revision of the desired state, so that who changes a part of it does not undo what somebody else changed meanwhile
//! (RFC 9110 section 13).
//!
//! A revision is a hash of what the state says: equal states have equal revisions, also after the agent started again.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use segue_model::node::NodeState;
use sha2::{Digest, Sha256};

use super::Context;
use crate::{
    background,
    problem::{Failure, Fault, Problem},
};

/// The entity tag of a state, quoted (RFC 9110 section 8.8.3).
pub fn of(state: &NodeState) -> Result<String, Failure> {
    with_text(state).map(|(revision, _)| revision)
}

/// The same with the state's JSON text, which it is the hash of.
pub fn with_text(state: &NodeState) -> Result<(String, Vec<u8>), Failure> {
    let text = serde_json::to_vec(state).map_err(|error| {
        Failure::one(Fault::Agent, Problem::new("state", error.to_string(), "report this: it is a fault of Segue"))
    })?;
    let octets = Sha256::digest(&text);
    let hash: String = octets.iter().take(16).map(|octet| format!("{octet:02x}")).collect();
    Ok((format!("\"{hash}\""), text))
}

/// What a request asks of the state that is there.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Condition {
    /// If-Match: the state must be one of these; `*`: any.
    matches: Option<Vec<String>>,
    /// If-None-Match: it must be none of these; `*`: nothing was applied yet.
    matches_none: Option<Vec<String>>,
}

impl Condition {
    /// What the headers say.
    ///
    /// # Errors
    /// Entity tags that are none.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, Failure> {
        Ok(Self { matches: tags(headers, header::IF_MATCH)?, matches_none: tags(headers, header::IF_NONE_MATCH)? })
    }

    fn is_met_by(&self, revision: Option<&str>) -> bool {
        let Some(revision) = revision else { return self.matches.is_none() };
        // If-Match compares strongly: a weak tag is never equal. If-None-Match compares weakly (RFC 9110 section 8.8.3.2).
        let strongly = |tag: &String| tag == "*" || tag == revision;
        let weakly = |tag: &String| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == revision;
        self.matches.as_ref().is_none_or(|tags| tags.iter().any(strongly))
            && !self.matches_none.as_ref().is_some_and(|tags| tags.iter().any(weakly))
    }

    /// Holds the condition against what is applied now. The caller keeps others from applying meanwhile.
    ///
    /// # Errors
    /// [`Fault::Precondition`] if it is not met.
    pub async fn check(&self, context: &Context) -> Result<(), Failure> {
        if *self == Self::default() {
            return Ok(());
        }
        let state = context.node.call(|node| Ok(node.shared_state())).await?;
        let revision = match state {
            Some(state) => Some(background::aside(move || of(&state)).await??),
            None => None,
        };
        if self.is_met_by(revision.as_deref()) {
            return Ok(());
        }
        let now = revision.map_or("nothing was applied yet".to_owned(), |revision| format!("it is {revision}"));
        let problem = Problem::new(
            "state",
            format!(
                "the state that is applied is not the one that this change is made for ({now}); nothing was changed"
            ),
            "get the state again, change that one, and put it with its ETag in If-Match",
        );
        Err(Failure::one(Fault::Precondition, problem))
    }
}

/// Entity tags of all fields of one name; none if there is no such field.
fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<Vec<String>>, Failure> {
    let mut all = None::<Vec<String>>;
    for value in headers.get_all(&name) {
        let text = value.to_str().unwrap_or_default();
        for tag in text.split(',').map(str::trim) {
            let opaque = tag.strip_prefix("W/").unwrap_or(tag);
            let quoted = opaque.len() >= 2 && opaque.starts_with('"') && opaque.ends_with('"');
            if !(quoted || tag == "*") {
                let message = format!("{value:?} is no list of entity tags");
                let remedy = "give the ETag of GET /v1/state with its quotes, or *";
                return Err(Failure::one(Fault::Request, Problem::new(name.as_str(), message, remedy)));
            }
            all.get_or_insert_default().push(tag.to_owned());
        }
    }
    Ok(all)
}

/// As the value of the field ETag.
pub fn header(revision: &str) -> HeaderValue {
    HeaderValue::from_str(revision).expect("hexadecimal digits in quotes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(fields: &[(HeaderName, &'static str)]) -> Result<Condition, Failure> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, HeaderValue::from_static(value));
        }
        Condition::from_headers(&headers)
    }

    #[test]
    fn conditions_are_those_of_rfc_9110() {
        let none = condition(&[]).unwrap();
        assert!(none.is_met_by(None) && none.is_met_by(Some("\"a\"")));
        let one = condition(&[(header::IF_MATCH, "\"a\", \"b\""), (header::IF_MATCH, "\"c\"")]).unwrap();
        for (revision, met) in [(Some("\"a\""), true), (Some("\"c\""), true), (Some("\"d\""), false), (None, false)] {
            assert_eq!(one.is_met_by(revision), met, "{revision:?}");
        }
        let any = condition(&[(header::IF_MATCH, "*")]).unwrap();
        assert!(any.is_met_by(Some("\"a\"")) && !any.is_met_by(None));
        let weak = condition(&[(header::IF_MATCH, "W/\"a\"")]).unwrap();
        assert!(!weak.is_met_by(Some("\"a\"")));
        let not = condition(&[(header::IF_NONE_MATCH, "W/\"a\"")]).unwrap();
        assert!(not.is_met_by(Some("\"b\"")) && not.is_met_by(None) && !not.is_met_by(Some("\"a\"")));
        let first = condition(&[(header::IF_NONE_MATCH, "*")]).unwrap();
        assert!(first.is_met_by(None) && !first.is_met_by(Some("\"a\"")));
    }

    #[test]
    fn what_is_no_entity_tag_is_refused() {
        for value in ["a", "W/a", "\"", "", "\"a\",b"] {
            let failure = condition(&[(header::IF_MATCH, value)]).unwrap_err();
            assert!(failure.to_string().contains("if-match"), "{failure}");
        }
    }

    #[test]
    fn equal_states_have_equal_revisions() {
        let load = |text: &str| segue_model::load::load_node_state(text, "test").unwrap();
        let text = |node: &str| {
            format!("node: {node}\nsource_address: fc00:5ea::1\ndomain: {{sid_blocks: [\"fc00:5e9::/32\"]}}\n")
        };
        let (one, other) = (&text("a"), &text("b"));
        let same = "domain: {sid_blocks: ['fc00:5e9:0::/32']}\nsource_address: \"fc00:5ea:0::1\"\nnode: 'a'\n";
        assert_eq!(of(&load(one)).unwrap(), of(&load(same)).unwrap());
        assert_ne!(of(&load(one)).unwrap(), of(&load(other)).unwrap());
        let _ = super::header(&of(&load(one)).unwrap());
    }
}
