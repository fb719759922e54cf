//! What operators are told of virtual functions of network cards: before a state is applied, of what is there, and by `segue doctor`. And what
//! becomes of settings that somebody else changes.

use std::collections::HashMap;
use std::sync::PoisonError;

use segue_api::doctor::Check;
use segue_api::function::{FunctionReport, VirtualFunctionReport, VirtualFunctionsReport};
use segue_host::link::LinkSocket;
use segue_host::sriov::{Card, CardSocket};
use segue_model::node::{NodeFunction, NodeState, VirtualFunctions};
use segue_model::service_label::sid_or_label;
use segue_model::wiring::Wiring;

use super::card::{CHANGED, Given, Seen, Side, at, begins, changed_by_another, sides};
use crate::kernel::KernelError;
use crate::problem::Problem;

/// The functions that have virtual functions of a card.
fn all(state: &NodeState) -> impl Iterator<Item = (Wiring, &NodeFunction, &VirtualFunctions)> {
    state.attached().filter_map(|(wiring, function)| Some((wiring, function, function.vf.as_ref()?)))
}

/// What the cards cannot give to a state, with its keys.
///
/// # Errors
/// A kernel that does not tell what is there.
pub fn problems(state: &NodeState) -> Result<Vec<Problem>, KernelError> {
    let mut problems = Vec::new();
    if all(state).next().is_none() {
        return Ok(problems);
    }
    let (mut links, mut cards) = (LinkSocket::open()?, CardSocket::open()?);
    for (wiring, function, vf) in all(state) {
        let key = format!("functions.{}.vf", wiring.namespace);
        let mut wrong = |at: &str, message: String, remedy: &str| {
            let message = format!("step `interfaces`: {message}");
            problems.push(Problem::new(format!("{key}.{at}"), message, remedy));
        };
        let Some(card) = cards.find(&vf.device)? else {
            wrong(
                "device",
                format!("there is no interface `{}` here", vf.device),
                "correct the name: `ip link` shows all",
            );
            continue;
        };
        if links.find(vf.carrier())?.is_none() {
            wrong(
                "by",
                format!("there is no interface `{}` here", vf.carrier()),
                "correct the name: `ip link` shows all",
            );
            continue;
        }
        let before = wrong_numbers(&card, vf);
        let is_well = before.is_empty();
        before.into_iter().for_each(|(at, message, remedy)| wrong(at, message, &remedy));
        // What a card is to make is free.
        if !is_well || card.count() == 0 {
            continue;
        }
        let Some(seen) = Seen::look(&mut links, &mut cards, function, vf)? else { continue };
        let begins = begins(&wiring, function);
        for (at, side) in ["west", "east"].into_iter().zip(sides(&wiring, vf)) {
            // Those that come with the driver are waited for: it is not known yet which ones are free.
            let has_come = (0..card.count()).any(|number| card.address(number).is_some_and(|at| in_sight(&seen, &at)));
            let goes = has_come && seen.is_left_over(state);
            if has_come && !goes && seen.given(&side, &begins).is_none() && seen.choose(&side, state).is_none() {
                let message = format!("all {} virtual functions of {} are in use", card.count(), card.name);
                wrong(
                    at,
                    message,
                    "take one from something else, such as one whose interface is up; or name its `number:`",
                );
            }
        }
    }
    Ok(problems)
}

fn in_sight(seen: &Seen, address: &str) -> bool {
    at(&seen.here, address).is_some()
}

/// What a card has too few of: key, message and remedy.
fn wrong_numbers(card: &Card, vf: &VirtualFunctions) -> Vec<(&'static str, String, String)> {
    let Some(room) = card.room() else {
        let message =
            format!("`{}` has no virtual functions: no network card with SR-IOV, or its driver has none", card.name);
        let remedy = "name the interface of such a card, or let the function have links of the agent's: remove `vf`";
        return vec![("device", message, remedy.to_owned())];
    };
    let mut wrong = Vec::new();
    let count = match (card.count(), vf.make) {
        (0, None) => {
            let message = format!("`{}` has no virtual functions yet", card.name);
            let remedy = format!(
                "write `make:` with a number up to {room}, or write one into /sys/class/net/{}/device/sriov_numvfs",
                card.name
            );
            return vec![("device", message, remedy)];
        }
        (0, Some(make)) if make > room => {
            let message = format!("`{}` can make {room} virtual functions", card.name);
            return vec![("make", message, format!("write a number up to {room}"))];
        }
        (0, Some(make)) => make,
        (count, _) => count,
    };
    for (at, one) in [("west.number", &vf.west), ("east.number", &vf.east)] {
        if let Some(number) = one.number.filter(|number| *number >= count) {
            let message = format!("`{}` has {count} virtual functions, and none with number {number}", card.name);
            wrong.push((at, message, format!("choose one from 0 to {}, or remove the key", count.saturating_sub(1))));
        }
    }
    wrong
}

/// Adds to reports on SIDs which virtual functions lead to their functions. What cannot be seen is in the agent's log.
pub fn tell(made: &NodeState, reports: &mut [FunctionReport]) {
    let mut known: HashMap<String, VirtualFunctionsReport> = HashMap::new();
    for (wiring, function, vf) in all(made) {
        match look(&wiring, function, vf) {
            Ok((report, _)) => drop(known.insert(wiring.namespace.clone(), report)),
            Err(error) => tracing::warn!("virtual functions: {error}"),
        }
    }
    if known.is_empty() {
        return;
    }
    let services = made.services();
    let of_sid: HashMap<String, &str> = (made.sids.iter().chain(&services))
        .filter_map(|sid| Some((sid_or_label(&sid.sid.trunc()), sid.function()?)))
        .collect();
    for report in reports {
        report.vf = of_sid.get(&report.sid).and_then(|function| known.get(*function)).cloned();
    }
}

/// What is wrong with virtual functions.
pub fn checks(state: &NodeState) -> Vec<Check> {
    let mut checks = Vec::new();
    for (wiring, function, vf) in all(state) {
        let about = format!("functions.{}.vf", wiring.namespace);
        match look(&wiring, function, vf) {
            Ok((report, wrong)) if wrong.is_empty() => {
                let number =
                    |one: &VirtualFunctionReport| one.number.map_or_else(|| "?".to_owned(), |one| one.to_string());
                let reason = format!(
                    "virtual functions {} and {} of {}, in VLANs {} and {}",
                    number(&report.west),
                    number(&report.east),
                    report.device,
                    report.west.vlan,
                    report.east.vlan
                );
                checks.push(Check::ok("function", about, reason));
            }
            Ok((_, wrong)) => checks.extend(
                wrong.into_iter().map(|(reason, remedy)| Check::wrong("function", about.clone(), reason, remedy)),
            ),
            Err(error) => checks.push(Check::note("function", about, format!("cannot be seen: {error}"), error.remedy)),
        }
    }
    let changed = CHANGED.lock().unwrap_or_else(PoisonError::into_inner);
    for (address, (times, last)) in changed.iter() {
        let reason = format!("its settings were changed under it {times} times, and set again; the last time: {last}");
        let remedy = "look who else sets them, such as `ip link set ... vf`, libvirt or a container engine's plug-in";
        checks.push(Check::note("function", format!("virtual function {address}"), reason, remedy));
    }
    checks
}

/// What was looked at, and what is wrong with it: reason and remedy.
type Looked = (VirtualFunctionsReport, Vec<(String, String)>);

fn look(wiring: &Wiring, function: &NodeFunction, vf: &VirtualFunctions) -> Result<Looked, KernelError> {
    let (mut links, mut cards) = (LinkSocket::open()?, CardSocket::open()?);
    let mut wrong: Vec<(String, String)> = Vec::new();
    let seen = Seen::look(&mut links, &mut cards, function, vf)?;
    let begins = begins(wiring, function);
    let mut one = |side: Side<'_>| -> VirtualFunctionReport {
        let given = seen.as_ref().and_then(|seen| seen.given(&side, &begins));
        let mut report = VirtualFunctionReport {
            number: None,
            vlan: side.wanted.vlan,
            mac: segue_model::value::MacAddress(side.mac).to_string(),
            attached: false,
        };
        let (Some(seen), Some(given)) = (&seen, given) else { return report };
        report.number = seen.card.number(&given.address);
        let there = at(&seen.there, &given.address);
        report.attached = there.is_some_and(|link| link.name == side.far && link.mac() == Some(side.mac));
        wrong.extend(wrong_side(seen, &side, &given, report.number));
        report
    };
    let [west, east] = sides(wiring, vf).map(&mut one);
    let report = VirtualFunctionsReport { device: vf.device.clone(), by: vf.by.clone(), west, east };
    let Some(seen) = &seen else {
        let reason = format!("{} is not here, or {}", vf.device, vf.carrier());
        wrong.push((
            reason,
            "look for the card (`ip link`, `lspci`); its functions are made again when it comes".to_owned(),
        ));
        return Ok((report, wrong));
    };
    if [&report.west, &report.east].iter().any(|one| one.number.is_none()) {
        let reason = format!("no virtual function of {} is free for it", vf.device);
        wrong.push((reason, "free one, or have the card make more; it is taken by itself".to_owned()));
    }
    let down = seen.here.iter().filter(|link| [vf.device.as_str(), vf.carrier()].contains(&link.name.as_str()));
    for link in down.filter(|link| !link.carrier) {
        let remedy = format!("ip link set {} up, and look for its cable", link.name);
        wrong.push((format!("{} is down", link.name), remedy));
    }
    Ok((report, wrong))
}

/// What is wrong with one side that has its virtual function.
fn wrong_side(seen: &Seen, side: &Side<'_>, given: &Given, number: Option<u32>) -> Vec<(String, String)> {
    let mut wrong = Vec::new();
    let Some(number) = number else { return wrong };
    let about = format!("virtual function {number} of {} ({})", seen.card.name, side.far);
    let now = seen.card.settings.get(number as usize).copied().unwrap_or_default();
    let differences = side.settings(&now).differences(&now);
    if !differences.is_empty() {
        let remedy = "the agent sets it again within a second; if it does not stay so, look who else sets it";
        wrong.push((format!("{about}: {}", differences.join(", ")), remedy.to_owned()));
    }
    let (here, there) = (at(&seen.here, &given.address), at(&seen.there, &given.address));
    if here.is_none() && there.is_none() {
        let reason = format!("{about} has no interface, neither here nor at the function");
        let remedy = format!(
            "load its driver (`lspci -k -s {}`), or take it from the machine or namespace that has it",
            given.address
        );
        wrong.push((reason, remedy));
    }
    if let Some(link) = there.filter(|link| link.mac() != Some(side.mac)) {
        let has = link.mac().map(|mac| segue_model::value::MacAddress(mac).to_string()).unwrap_or_default();
        let reason = format!("{about} has kept the address {has}");
        let remedy = format!(
            "write {} to `unbind` and `bind` of its driver in /sys/bus/pci/drivers, so that it takes the card's",
            given.address
        );
        wrong.push((reason, remedy));
    }
    wrong
}

/// Sets again what somebody else has changed at a card.
#[derive(Debug, Default)]
pub struct Keeper {
    /// What was said last: once, not every second.
    said: String,
}

impl Keeper {
    /// Looks once.
    pub fn keep(&mut self, state: &NodeState) {
        let said = match all(state).try_for_each(|(wiring, function, vf)| keep(&wiring, function, vf)) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        };
        if !said.is_empty() && said != self.said {
            tracing::warn!("settings of virtual functions: {said}; tried again every second");
        }
        self.said = said;
    }
}

fn keep(wiring: &Wiring, function: &NodeFunction, vf: &VirtualFunctions) -> Result<(), KernelError> {
    let (mut links, mut cards) = (LinkSocket::open()?, CardSocket::open()?);
    let Some(card) = cards.find(&vf.device)? else { return Ok(()) };
    let begins = begins(wiring, function);
    for side in sides(wiring, vf) {
        let near = links.find(side.near)?.filter(|link| link.alias.starts_with(&begins));
        let Some(given) = near.and_then(|link| Given::read(&link.alias)) else { continue };
        let Some(number) = card.number(&given.address) else { continue };
        let Some(now) = card.settings.get(number as usize) else { continue };
        let wanted = side.settings(now);
        let differences = wanted.differences(now).join(", ");
        if differences.is_empty() {
            continue;
        }
        tracing::warn!(
            function = wiring.namespace,
            card = card.name,
            number,
            "somebody changed its settings: {differences}"
        );
        changed_by_another(&given.address, differences);
        cards.set(&card, number, &wanted, false)?;
    }
    Ok(())
}
