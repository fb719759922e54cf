//! The same rules in YAML: keys instead of options, with the same meaning and the same checks.

mod form;
mod scalar;
mod words;

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use serde_saphyr::Error as YamlError;

use self::form::{ChainForm, Document, PolicyForm};
use self::scalar::position;
use self::words::Words;
use super::error::{ErrorKind, Position, RuleError, RuleErrors};
use super::lexer::Word;
use super::lower::Warning;
use super::parse::{Parser, Reading};
use super::syntax::RuleSet;

/// Reads the YAML form. `file` is only for the errors.
///
/// # Errors
///
/// The first thing that is no such document (a key that is not known, for example); else all that is wrong with rules and chains,
/// in the words of the iptables form.
pub fn parse_yaml(source: &str, file: &str) -> Result<RuleSet, RuleErrors> {
    parse_yaml_for(source, file, Reading::default()).map(|(rules, _)| rules)
}

/// As [`parse_yaml`], for one hook and with what may be skipped: see [`super::parse_rules_for`].
///
/// # Errors
///
/// As [`parse_yaml`].
pub fn parse_yaml_for(source: &str, file: &str, reading: Reading<'_>) -> Result<(RuleSet, Vec<Warning>), RuleErrors> {
    let document = serde_saphyr::from_str::<Document>(source).map_err(|error| describe(&error, file))?;
    let family = document.family;
    let mut parser = Parser::of_filter(family, reading);
    for (name, chain) in &document.chains {
        parser.declare_chain(&name_word(name, position(chain.referenced)), policy(&chain.value));
    }
    for (name, chain) in &document.chains {
        let name = name_word(name, position(chain.referenced));
        for rule in &chain.value.rules {
            let place = position(rule.referenced);
            let start = Word { text: Cow::Borrowed(&name.text), position: place, quoted: true };
            parser.add_rule(&start, &Words::of(&rule.value, place, family));
        }
    }
    parser.finish(file)
}

/// JSON Schema (draft 2020-12) of the YAML form.
pub fn schema() -> serde_json::Value {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Document>();
    schema.insert("title".to_owned(), "Segue firewall rules".into());
    schema.to_value()
}

fn name_word(name: &str, place: Position) -> Word<'_> {
    Word { text: Cow::Borrowed(name), position: place, quoted: true }
}

fn policy(chain: &ChainForm) -> Option<&'static str> {
    chain.policy.map(|policy| match policy {
        PolicyForm::Accept => "ACCEPT",
        PolicyForm::Drop => "DROP",
    })
}

fn describe(error: &YamlError, file: &str) -> RuleErrors {
    let error = error.without_snippet();
    let place = error.location().map(position).filter(|place| place.line > 0);
    let (word, reason, remedy) = match error {
        YamlError::SerdeUnknownField { field, expected, .. } => {
            (field.clone(), "this key is not known here".to_owned(), format!("use one of {}", expected.join(", ")))
        }
        YamlError::SerdeMissingField { field, .. } => {
            ((*field).to_string(), "this key is missing".to_owned(), format!("add `{field}:`"))
        }
        YamlError::SerdeUnknownVariant { variant, expected, .. } => {
            (variant.clone(), "not a value of this key".to_owned(), format!("use one of {}", expected.join(", ")))
        }
        YamlError::DuplicateMappingKey { key, .. } => {
            (key.clone().unwrap_or_default(), "this key is there twice".to_owned(), "remove one of the two".to_owned())
        }
        other => (String::new(), first_line(&other.to_string()), "correct the YAML here or just above".to_owned()),
    };
    let place = place.unwrap_or(Position { line: 1, column: 1 });
    let error = RuleError::about(place, word, ErrorKind::Syntax, reason, remedy);
    RuleErrors { file: file.to_owned(), errors: vec![error] }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
