//! `-m mpls` as conditions on fields.

use super::super::matches::Mpls;
use super::{Condition, Parts};
use segue_classifier::field::Field;
use segue_classifier::program::Test;

pub(super) fn conditions(mpls: &Mpls, parts: &mut Parts) {
    fn range<T: Into<u128> + Copy>((first, last): &(T, T)) -> Test {
        Test::range((*first).into(), (*last).into())
    }
    let present = |field: Field| Condition { field, negated: false, test: Test::range(0, field.max()) };
    let entry = mpls.entry();
    match &mpls.entries {
        Some(entries) => parts.push(entries.on(Field::LabelEntries, range(&entries.value))),
        None if !mpls.is_of_entry() => parts.push(present(Field::LabelEntries)),
        None => {}
    }
    let none = mpls.depth.is_some_and(|depth| depth.negated);
    let (label, class, bottom, ttl) =
        (Field::Label(entry), Field::LabelClass(entry), Field::LabelBottom(entry), Field::LabelTtl(entry));
    let tests = [
        mpls.label.as_ref().map(|test| test.on(label, range(&test.value))),
        mpls.class.as_ref().map(|test| test.on(class, Test::equal(class, test.value.into()))),
        mpls.bottom.as_ref().map(|test| test.on(bottom, Test::equal(bottom, test.value.into()))),
        mpls.ttl.as_ref().map(|test| test.on(ttl, range(&test.value))),
    ];
    if mpls.depth.is_some() && tests.iter().all(Option::is_none) {
        parts.push(present(label));
    }
    for condition in tests.into_iter().flatten() {
        parts.push(Condition { negated: condition.negated != none, ..condition });
    }
}
