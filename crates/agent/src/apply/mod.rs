//! Applying a desired state: all of it or nothing.
//!
//! Every step that changes something first writes down how to undo it. When a later step fails, the notes are worked off
//! backwards, so that kernel routes, sysctls, keys and data plane are what they were before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
};

use ipnet::Ipv6Net;
use segue_api::state::{ApplyReport, Change};
use segue_dataplane::{Interfaces, MissingInterface};
use segue_model::node::{HmacAlgorithm, HmacKey, NodeState};

pub use self::instances::{Draining, Learnt};
pub use self::links::LinksFollowed;
use crate::{
    diff::diff,
    fitness,
    kernel::{Boundary, Kernel, KernelError, KernelHmacKey, LocalAction, SidRoute, boundary::outside, plan},
    learned::Learned,
    netfilter,
    plane::{Activated, DataPlane},
    problem::{Failure, Fault, Problem},
    store::{Applied, Leaving, Store},
    vlan,
};

/// Octets of an HMAC secret that the kernel takes at most.
const SECRET_MAX: usize = 64;

/// How to undo one step.
#[derive(Debug)]
enum Undo {
    Sysctl(String, String),
    PutKey(KernelHmacKey),
    DeleteKey(u32),
    /// Put back the route that was replaced or removed.
    AddRoute(SidRoute),
    ReplaceRoute(SidRoute),
    DeleteRoute(Ipv6Net),
    DataPlane(Interfaces),
    /// Remove what was made for functions that the state before does not have.
    Functions,
    /// Remove VLANs that were made and that the state before does not have.
    Vlans,
    /// Put back the boundary; if there was none, it goes.
    Boundary(Option<Boundary>),
}

/// Is told what is applied, and on which interfaces.
pub type Observer = Box<dyn FnMut(&NodeState, &Interfaces)>;

/// What the operator wants, beside what is made of it.
struct Stated<'a> {
    state: &'a NodeState,
    leaving: Leaving,
}

/// What an apply has made.
struct Made {
    applied: Applied,
    /// The interfaces that there are now, those of functions among them.
    links: Interfaces,
}

/// One node: its data plane, its kernel, and what was applied last.
pub struct Agent<P, K, S> {
    /// The data plane.
    pub plane: P,
    /// The kernel.
    pub kernel: K,
    store: S,
    applied: Option<Applied>,
    /// What is made of the applied state where that is more than it says: see [`Agent::made`].
    written: Option<Arc<NodeState>>,
    /// Link-layer addresses of virtual machines, by the node's ends of their links.
    learnt: Learnt,
    /// Labels that are learned, if the state says so.
    learned: Option<Learned>,
    /// seg6local routes that this kernel refused, so that each is tried once only.
    refused: BTreeMap<Ipv6Net, LocalAction>,
    activated: Activated,
    observer: Option<Observer>,
    /// The interfaces for which all is as it should be; none if that is not known.
    links: Option<Interfaces>,
    /// Number of the interface that SID routes name.
    device: Option<u32>,
}

impl<P: DataPlane, K: Kernel, S: Store> Agent<P, K, S> {
    /// Takes up what was applied before a restart; nothing is changed yet.
    pub fn new(plane: P, kernel: K, mut store: S) -> Result<Self, Failure> {
        let applied = store.load().map_err(|error| {
            let remedy = "remove the file and apply the configuration again; forwarding goes on meanwhile";
            Failure::one(Fault::Agent, Problem::new(store.place(), error.to_string(), remedy))
        })?;
        let mut agent = Self {
            plane,
            kernel,
            store,
            applied,
            written: None,
            learnt: Learnt::new(),
            learned: None,
            refused: BTreeMap::new(),
            activated: Activated::default(),
            observer: None,
            links: None,
            device: None,
        };
        agent.take_up();
        Ok(agent)
    }

    /// The state that was applied last.
    pub fn state(&self) -> Option<&NodeState> {
        self.applied.as_ref().map(|applied| &*applied.state)
    }

    /// The same for whoever goes on with it elsewhere.
    pub fn shared_state(&self) -> Option<Arc<NodeState>> {
        self.applied.as_ref().map(|applied| Arc::clone(&applied.state))
    }

    /// Has the observer told of what is applied now, and whenever that or its interfaces change.
    pub fn observe(&mut self, observer: Observer) -> Result<(), Failure> {
        self.observer = Some(observer);
        let links = match self.made() {
            Some(state) => self.links_for(&state)?,
            None => return Ok(()),
        };
        self.tell(&links);
        Ok(())
    }

    fn tell(&mut self, links: &Interfaces) {
        let made = self.made();
        if let (Some(observer), Some(made)) = (&mut self.observer, made) {
            observer(&made, links);
        }
    }

    /// Takes over the state that a pinned data plane was found with, unless there is a record.
    pub fn adopt(&mut self, mut state: NodeState) {
        state.labels.retain(|label| !label.learned);
        self.applied.get_or_insert_with(|| Applied::new(state, BTreeMap::new(), BTreeSet::new()));
        self.take_up();
    }

    /// What is made of a state that was there before this agent.
    fn take_up(&mut self) {
        self.learned = self.shared_state().and_then(|state| self.learned_for(&state));
        self.write_out();
    }

    /// Number and warnings of the configuration that is active.
    pub fn activated(&self) -> &Activated {
        &self.activated
    }

    /// What would change.
    pub fn diff(&self, wanted: &NodeState) -> Result<Vec<Change>, Failure> {
        changes(self.state(), wanted)
    }

    /// Checks a state, which is valid, as far as that goes without changing anything. `changes` is what [`Agent::diff`] says of it.
    pub fn check(&mut self, wanted: &NodeState, changes: Vec<Change>) -> Result<ApplyReport, Failure> {
        let learned = self.learned_for(wanted);
        let written = self.written_for(wanted, &self.leaving_for(wanted), learned.as_ref());
        let wanted = written.as_deref().unwrap_or(wanted);
        let (links, _) = self.prepare(wanted)?;
        let mut links = netfilter::pretend(wanted, &links);
        vlan::pretend(wanted, &mut links);
        self.plane.check(wanted, &links).map_err(|problems| wrong(wanted, problems))?;
        let generation = self.activated.generation;
        let outside = outside(wanted, &links);
        let mut warnings = self.doubts(wanted, &links);
        warnings.extend(Self::doubts_of_labels(learned.as_ref()));
        Ok(ApplyReport { dry_run: true, changes, generation, warnings, outside })
    }

    /// Makes the node what the state says, or leaves it as it is.
    pub fn apply(&mut self, wanted: &NodeState) -> Result<ApplyReport, Failure> {
        let problems = crate::validate::problems(wanted);
        if !problems.is_empty() {
            return Err(Failure { fault: Fault::Request, problems });
        }
        let changes = self.diff(wanted)?;
        self.apply_changes(wanted, changes)
    }

    /// As [`Agent::apply`] for a state that is valid; `changes` is what [`Agent::diff`] says of it. Both take long where there is much.
    pub fn apply_changes(&mut self, stated: &NodeState, changes: Vec<Change>) -> Result<ApplyReport, Failure> {
        let leaving = self.leaving_for(stated);
        let learned = self.learned_for(stated);
        let written = self.written_for(stated, &leaving, learned.as_ref());
        let wanted = written.as_deref().unwrap_or(stated);
        let (links, secrets) = self.prepare(wanted)?;
        let mut notes = Vec::new();
        match self.change(wanted, Stated { state: stated, leaving }, &links, &secrets, &mut notes) {
            Ok((Made { applied, links }, outcome, mut warnings)) => {
                self.applied = Some(applied);
                self.written.clone_from(&written);
                self.learned = learned;
                warnings.extend(outcome.warnings.iter().cloned());
                warnings.extend(self.doubts(wanted, &links));
                warnings.extend(Self::doubts_of_labels(self.learned.as_ref()));
                self.activated = outcome;
                self.tell(&links);
                self.settled(wanted, links.clone());
                let outside = outside(wanted, &links);
                Ok(ApplyReport { dry_run: false, changes, generation: self.activated.generation, warnings, outside })
            }
            Err(mut failure) => {
                self.links = None;
                failure.problems.extend(self.undo(notes));
                Err(failure)
            }
        }
    }

    /// What is accepted, and is probably not meant.
    fn doubts(&mut self, wanted: &NodeState, links: &Interfaces) -> Vec<String> {
        let named = fitness::named_tables(wanted);
        // What cannot be seen is nobody's fault.
        let tables = self.kernel.known_tables(&named).unwrap_or(named);
        fitness::warnings(wanted, links, &tables)
    }

    /// The steps that only read: interfaces, secrets.
    fn prepare(&mut self, wanted: &NodeState) -> Result<(Interfaces, Vec<KernelHmacKey>), Failure> {
        let links = self.links_for(wanted)?;
        let mut problems = missing_interfaces(wanted, &links);
        let cards = self.kernel.function_problems(wanted);
        problems.extend(cards.map_err(|error| kernel_failure("interfaces", &error))?);
        if !problems.is_empty() {
            return Err(Failure { fault: Fault::Kernel, problems });
        }
        let secrets = wanted.hmac_keys.iter().map(read_secret).collect::<Result<_, _>>()?;
        Ok((links, secrets))
    }

    /// The steps that change something, each noted in `notes` so that it can be undone.
    fn change(
        &mut self,
        wanted: &NodeState,
        stated: Stated<'_>,
        links: &Interfaces,
        secrets: &[KernelHmacKey],
        notes: &mut Vec<Undo>,
    ) -> Result<(Made, Activated, Vec<String>), Failure> {
        notes.push(Undo::Vlans);
        // Sysctls of ports are there with their interfaces.
        let with_vlans = self.make_vlans(wanted)?;
        let links = with_vlans.as_ref().unwrap_or(links);
        self.shut_boundary(wanted, links, notes)?;
        let sysctls = self.set_sysctls(wanted, notes).map_err(|error| kernel_failure("sysctls", &error))?;
        let keys = self.set_keys(secrets, notes).map_err(|error| kernel_failure("HMAC keys", &error))?;
        notes.push(Undo::Functions);
        let made =
            self.kernel.make_functions(wanted, links, None).map_err(|error| kernel_failure("functions", &error))?;
        let remade;
        let links = if made {
            remade = self.links_for(wanted)?;
            &remade
        } else {
            links
        };
        let routes = plan::routes_while_down(wanted, links, &self.plane.down());
        let (stale, mut warnings) =
            self.put_routes(&routes, notes).map_err(|error| kernel_failure("kernel routes", &error))?;
        let outcome =
            self.plane.apply(wanted, links, MissingInterface::Refuse).map_err(|problems| wrong(wanted, problems))?;
        notes.push(Undo::DataPlane(links.clone()));
        // Routes of SIDs that go stay until the data plane no longer has them.
        self.delete_routes(stale, notes).map_err(|error| kernel_failure("kernel routes", &error))?;
        self.open_boundary(wanted, links, notes).map_err(|error| kernel_failure("boundary", &error))?;
        let mut applied = Applied::new(stated.state.clone(), sysctls, keys);
        applied.leaving = stated.leaving;
        self.store.save(Some(&applied)).map_err(|error| {
            let message = format!("step `save`: {error}");
            let remedy = "make room, or give segued another --state-dir; nothing was changed";
            Failure::one(Fault::Agent, Problem::new(self.store.place(), message, remedy))
        })?;
        if let Err(error) = self.kernel.remove_functions(Some(wanted)) {
            warnings.push(format!("what functions that are gone needed will be removed later: {error}"));
        }
        if let Err(error) = self.kernel.remove_vlans(Some(wanted)) {
            warnings.push(format!("VLANs of ports that are gone will be removed later: {error}"));
        }
        Ok((Made { applied, links: links.clone() }, outcome, warnings))
    }

    /// The interfaces, if there are others now.
    fn make_vlans(&mut self, state: &NodeState) -> Result<Option<Interfaces>, Failure> {
        let made = self.kernel.make_vlans(state).map_err(|error| kernel_failure("VLANs", &error))?;
        made.then(|| self.links_for(state)).transpose()
    }

    fn set_sysctls(
        &mut self,
        wanted: &NodeState,
        notes: &mut Vec<Undo>,
    ) -> Result<BTreeMap<String, String>, KernelError> {
        let mut before = self.applied.as_ref().map(|applied| applied.sysctls_before.clone()).unwrap_or_default();
        let plan = plan::sysctls(wanted);
        // What only an earlier state needed gets its old value back; a sysctl of an interface may have gone with it.
        let names: BTreeSet<_> = plan.iter().map(|(name, _)| name.as_str()).collect();
        for (name, value) in std::mem::take(&mut before) {
            if names.contains(name.as_str()) {
                before.insert(name, value);
            } else if self.kernel.sysctl(&name)?.is_some() {
                self.set_sysctl(&name, &value, notes)?;
            }
        }
        for (name, value) in plan {
            let now = self.set_sysctl(&name, value, notes)?;
            before.entry(name).or_insert(now);
        }
        Ok(before)
    }

    /// Sets a sysctl if it differs, and returns what it was.
    fn set_sysctl(&mut self, name: &str, value: &str, notes: &mut Vec<Undo>) -> Result<String, KernelError> {
        let now = self.kernel.sysctl(name)?.ok_or_else(|| KernelError {
            action: format!("set sysctl {name}"),
            errno: None,
            cause: "this kernel does not have it".to_owned(),
            remedy: "use a kernel with IPv6 (and CONFIG_IPV6_SEG6_HMAC for accept_hmac)".to_owned(),
        })?;
        if now != value {
            self.kernel.set_sysctl(name, value)?;
            notes.push(Undo::Sysctl(name.to_owned(), now.clone()));
        }
        Ok(now)
    }

    fn set_keys(&mut self, wanted: &[KernelHmacKey], notes: &mut Vec<Undo>) -> Result<BTreeSet<u32>, KernelError> {
        let ours = self.applied.as_ref().map(|applied| applied.hmac_keys.clone()).unwrap_or_default();
        let ids: BTreeSet<u32> = wanted.iter().map(|key| key.id).collect();
        if ids.is_empty() && ours.is_empty() {
            return Ok(ids);
        }
        let present = self.kernel.hmac_keys()?;
        let by_id: BTreeMap<u32, &KernelHmacKey> = present.iter().map(|key| (key.id, key)).collect();
        let find = |id| by_id.get(&id).copied();
        for old in ours.difference(&ids).filter_map(|id| find(*id)) {
            self.kernel.delete_hmac_key(old.id)?;
            notes.push(Undo::PutKey(old.clone()));
        }
        for key in wanted {
            match find(key.id) {
                Some(old) if old == key => {}
                Some(old) => {
                    // The kernel has no replacement: it refuses an ID that is taken.
                    self.kernel.delete_hmac_key(old.id)?;
                    notes.push(Undo::PutKey(old.clone()));
                    self.kernel.put_hmac_key(key)?;
                    notes.push(Undo::DeleteKey(key.id));
                }
                None => {
                    self.kernel.put_hmac_key(key)?;
                    notes.push(Undo::DeleteKey(key.id));
                }
            }
        }
        Ok(ids)
    }

    /// Works off the notes backwards; returns what could not be restored.
    fn undo(&mut self, notes: Vec<Undo>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for note in notes.into_iter().rev() {
            let result = match note {
                Undo::Sysctl(name, value) => self.kernel.set_sysctl(&name, &value),
                Undo::PutKey(key) => self.kernel.put_hmac_key(&key),
                Undo::DeleteKey(id) => self.kernel.delete_hmac_key(id),
                Undo::AddRoute(route) => self.kernel.add_route(&route),
                Undo::ReplaceRoute(route) => self.kernel.replace_route(&route),
                Undo::DeleteRoute(prefix) => self.kernel.delete_route(prefix),
                Undo::Functions => {
                    let state = self.made();
                    self.kernel.remove_functions(state.as_deref())
                }
                Undo::Vlans => {
                    let state = self.made();
                    self.kernel.remove_vlans(state.as_deref())
                }
                Undo::Boundary(boundary) => self.kernel.set_boundary(boundary.as_ref()),
                Undo::DataPlane(links) => {
                    let restored = match self.made() {
                        Some(made) => self.plane.apply(&made, &links, MissingInterface::LeaveOut).map(drop),
                        None => self.plane.remove(),
                    };
                    problems.extend(restored.err().into_iter().flatten());
                    Ok(())
                }
            };
            problems.extend(result.err().map(|error| kernel_problem("restore", &error)));
        }
        for problem in &mut problems {
            problem.message = format!("could not be restored to what it was: {}", problem.message);
            tracing::error!(%problem, "rollback");
        }
        problems
    }

    /// After links, addresses or routes changed: puts ports, kernel routes and caches right again. What cannot be done
    /// now is tried again at the next change.
    pub fn reconcile(&mut self) -> Result<(), Failure> {
        // Until all is done.
        self.links = None;
        let Some(made) = self.made() else { return Ok(()) };
        let mut links = match self.make_vlans(&made)? {
            Some(links) => links,
            None => self.links_for(&made)?,
        };
        let changed = self.kernel.make_functions(&made, &links, None);
        if changed.map_err(|error| kernel_failure("functions", &error))? {
            links = self.links_for(&made)?;
        }
        self.shut_boundary(&made, &links, &mut Vec::new())?;
        let outcome = self
            .plane
            .apply(&made, &links, MissingInterface::LeaveOut)
            .map_err(|problems| refused("data plane", problems))?;
        self.open_boundary(&made, &links, &mut Vec::new()).map_err(|error| kernel_failure("boundary", &error))?;
        for warning in outcome.warnings.iter().filter(|warning| !self.activated.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.activated = outcome;
        self.tell(&links);
        self.put_right_routes(&made, &links)?;
        // A link that came back has its sysctls at their defaults.
        let mut set = false;
        for (name, value) in plan::sysctls(&made) {
            if self.kernel.sysctl(&name).is_ok_and(|now| now.is_some_and(|now| now != value)) {
                self.kernel.set_sysctl(&name, value).map_err(|error| kernel_failure("sysctls", &error))?;
                set = true;
            }
        }
        // Of all else that ways depend on, the kernel's notifications tell.
        if set {
            self.plane.bump_caches().map_err(|problems| refused("data plane", problems))?;
        }
        self.settled(&made, links);
        Ok(())
    }

    /// Removes everything that Segue made on this node: links, pins, routes, keys, the record; sysctls get their old
    /// values back. Goes on after a failure, and returns all of them.
    pub fn clean(&mut self) -> Result<(), Failure> {
        let mut problems = self.plane.remove().err().unwrap_or_default();
        let mut note = |result: Result<(), KernelError>| {
            problems.extend(result.err().map(|error| kernel_problem("clean", &error)));
        };
        note(self.kernel.remove_functions(None));
        note(self.kernel.remove_vlans(None));
        match self.kernel.own_routes() {
            Ok(routes) => routes.iter().for_each(|route| note(self.kernel.delete_route(route.prefix))),
            Err(error) => note(Err(error)),
        }
        note(self.kernel.set_boundary(None));
        (self.written, self.learned) = (None, None);
        if let Some(applied) = self.applied.take() {
            applied.hmac_keys.iter().for_each(|id| note(self.kernel.delete_hmac_key(*id)));
            for (name, value) in &applied.sysctls_before {
                match self.kernel.sysctl(name) {
                    Ok(Some(now)) if now != *value => note(self.kernel.set_sysctl(name, value)),
                    Ok(_) => {}
                    Err(error) => note(Err(error)),
                }
            }
        }
        if let Err(error) = self.store.save(None) {
            problems.push(Problem::new(self.store.place(), error.to_string(), "remove the file by hand"));
        }
        if problems.is_empty() { Ok(()) } else { Err(Failure { fault: Fault::Kernel, problems }) }
    }
}

/// What would change from one state to another.
pub(crate) fn changes(before: Option<&NodeState>, wanted: &NodeState) -> Result<Vec<Change>, Failure> {
    diff(before, wanted).map_err(|error| {
        Failure::one(Fault::Agent, Problem::new("state", error.to_string(), "report this: it is a fault of Segue"))
    })
}

fn missing_interfaces(wanted: &NodeState, links: &Interfaces) -> Vec<Problem> {
    /// Names that one is told: there may be thousands of ports, and of interfaces.
    const TOLD: usize = 50;
    let known: Vec<_> = links.0.keys().map(String::as_str).filter(|name| *name != "lo").collect();
    let more = known.len().checked_sub(TOLD).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    let remedy =
        format!("create it or correct the name; there are: {}{more}", known[..known.len().min(TOLD)].join(", "));
    let missing = wanted.ports.iter().enumerate().filter(|(_, port)| links.get(&port.name).is_none());
    missing
        .filter_map(|(position, port)| {
            if let Some(vlan) = &port.vlan {
                return vlan::missing(position, vlan, links);
            }
            Some(Problem::new(
                format!("ports[{position}].name"),
                format!("step `interfaces`: there is no interface `{}` here", port.name),
                remedy.clone(),
            ))
        })
        .collect()
}

fn read_secret(key: &HmacKey) -> Result<KernelHmacKey, Failure> {
    let fail = |message: String, remedy: &str| {
        Failure::one(Fault::Request, Problem::new(format!("hmac_keys[id {}].secret_file", key.id), message, remedy))
    };
    let mut secret = fs::read(&key.secret_file).map_err(|error| {
        fail(format!("step `secrets`: {}: {error}", key.secret_file), "give a file that segued can read")
    })?;
    if secret.last() == Some(&b'\n') {
        secret.pop();
    }
    if secret.is_empty() || secret.len() > SECRET_MAX {
        let message = format!("step `secrets`: {} holds {} octets", key.secret_file, secret.len());
        return Err(fail(message, "a secret has 1 to 64 octets"));
    }
    let algorithm = match key.algorithm {
        HmacAlgorithm::Sha1 => 1,
        HmacAlgorithm::Sha256 => 2,
    };
    Ok(KernelHmacKey { id: key.id, algorithm, secret })
}

fn kernel_problem(step: &str, error: &KernelError) -> Problem {
    Problem::new(error.action.clone(), format!("step `{step}`: {}", error.cause), error.remedy.clone())
}

pub(crate) fn kernel_failure(step: &str, error: &KernelError) -> Failure {
    Failure::one(Fault::Kernel, kernel_problem(step, error))
}

/// Why the data plane did not take a state. Mistakes in rule files are those of who wrote them, and are told file by file.
fn wrong(wanted: &NodeState, problems: Vec<Problem>) -> Failure {
    let mistakes = crate::firewall::mistakes(wanted);
    if mistakes.is_empty() {
        return refused("data plane", problems);
    }
    Failure { fault: Fault::Request, problems: mistakes }
}

fn refused(step: &str, mut problems: Vec<Problem>) -> Failure {
    for problem in &mut problems {
        problem.message = format!("step `{step}`: {}", problem.message);
    }
    Failure { fault: Fault::Kernel, problems }
}

mod boundary;
#[cfg(test)]
pub(crate) mod fake;
mod instances;
mod labels;
mod links;
mod routes;
#[cfg(test)]
mod tests;
