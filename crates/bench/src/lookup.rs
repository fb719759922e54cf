//! The classifier's walk in BPF by itself, bpf/test/classifier.bpf.c: what it finds, for tests, and what it costs.

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramInput};
use segue_classifier::image::{Image, LINE};
use segue_classifier::{Key, Program};

use crate::cpu::RealTime;
use crate::error::{Error, Result};
use crate::object::{map, program};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/classifier.bpf.o"));

/// Questions that may be asked at once, `QUERIES` of bpf/test/classifier.bpf.c.
pub const QUERIES: usize = 4096;
/// Octets of its `struct query`: key, chain, after, line, number.
const QUERY: usize = 256 + 16;
/// Lookups of one measured run.
pub const ROUNDS: u32 = 1 << 18;
/// Where the image lies, in lines: not at the beginning.
pub const BASE: u32 = 3;

/// What a chain is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question {
    /// The packet.
    pub key: Key,
    /// The chain's line.
    pub chain: u32,
    /// Line of the rule behind which is looked; 0: from the first one on.
    pub after: u32,
}

/// A rule that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Its line; 0: none.
    pub line: u32,
    /// Its number in the image, if there is one.
    pub number: u32,
}

/// The walk with an image in its map.
#[derive(Debug)]
pub struct Classifier {
    object: Object,
    image: Image,
}

impl Classifier {
    /// Loads the walk and gives it the image of `program`.
    ///
    /// # Errors
    /// If the program is not valid, or the kernel refuses the walk.
    pub fn load(program: &Program) -> Result<Self> {
        let image =
            segue_classifier::compile::compile(program).map_err(|error| Error::Usage(format!("rules: {error}")))?;
        Self::with(image)
    }

    /// As [`Classifier::load`], of a program that is compiled already.
    ///
    /// # Errors
    /// If the kernel refuses the walk.
    pub fn with(image: Image) -> Result<Self> {
        let mut octets = vec![0; BASE as usize * LINE];
        octets.extend(image.emit(BASE).into_iter().flatten());
        octets.resize(octets.len().next_power_of_two().max(4096), 0);
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(Error::bpf("open classifier.bpf.o"))?;
        set_size(&mut open, octets.len() as u32)?;
        let object = open.load().map_err(Error::bpf("load classifier.bpf.o"))?;
        let classifier = Self { object, image };
        classifier.update("classifier", 0, &octets)?;
        Ok(classifier)
    }

    /// The structure.
    #[must_use]
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Asks at most [`QUERIES`] questions.
    ///
    /// # Errors
    /// If a map cannot be written or read, or the program does not run.
    pub fn ask(&self, questions: &[Question]) -> Result<Vec<Answer>> {
        for (index, question) in questions.iter().enumerate() {
            let mut query = Vec::with_capacity(QUERY);
            query.extend(question.key.words.iter().flat_map(|word| word.to_ne_bytes()));
            for word in [question.chain, question.after, u32::MAX, 0] {
                query.extend(word.to_ne_bytes());
            }
            self.update("queries", index as u32, &query)?;
        }
        self.order(questions.len() as u32, 0, 0)?;
        self.run("ask")?;
        (0..questions.len() as u32)
            .map(|index| {
                let query = self.lookup("queries", index)?;
                let [line, number] = [264, 268].map(|at| word(&query, at));
                Ok(Answer { line, number })
            })
            .collect()
    }

    /// Nanoseconds for each lookup of these keys in turn, in chain 0, without the loop around it. The keys must be alike
    /// behind their first 64 octets, and as many as a power of two.
    ///
    /// # Errors
    /// As [`Classifier::ask`].
    pub fn nanoseconds(&self, keys: &[Key]) -> Result<f64> {
        let first = keys.first().ok_or_else(|| Error::Usage("no packet to look up".into()))?;
        for (index, key) in keys.iter().enumerate() {
            let hot: Vec<u8> = key.words[..8].iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.update("hots", index as u32, &hot)?;
        }
        let whole: Vec<u8> = first.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let processors = libbpf_rs::num_possible_cpus().map_err(Error::bpf("count the CPUs"))?;
        map(&self.object, "keys")?
            .update_percpu(&0_u32.to_ne_bytes(), &vec![whole; processors], MapFlags::ANY)
            .map_err(Error::bpf("write the map keys"))?;
        let time = |name: &str| {
            self.order(keys.len() as u32, ROUNDS, self.image.chain_line(0, BASE))?;
            self.run(name)?;
            let order = self.lookup("orders", 0)?;
            Ok::<f64, Error>((u64::from(word(&order, 16)) | u64::from(word(&order, 20)) << 32) as f64)
        };
        Ok((time("measure")? - time("measure_nothing")?) / f64::from(ROUNDS))
    }

    fn order(&self, queries: u32, rounds: u32, chain: u32) -> Result<()> {
        let order: Vec<u8> = [queries, rounds, 0, chain, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.update("orders", 0, &order)
    }

    fn run(&self, name: &str) -> Result<()> {
        const PASS: u32 = 2;
        let input = ProgramInput { data_in: Some(&[0; 64]), ..ProgramInput::default() };
        let _undisturbed = RealTime::if_allowed();
        let output = program(&self.object, name)?.test_run(input).map_err(Error::bpf(format!("run {name}")))?;
        if output.return_value == PASS {
            return Ok(());
        }
        Err(Error::NotDone { what: name.into(), reason: format!("XDP verdict {}", output.return_value) })
    }

    fn update(&self, name: &str, index: u32, value: &[u8]) -> Result<()> {
        let written = map(&self.object, name)?.update(&index.to_ne_bytes(), value, MapFlags::ANY);
        written.map_err(Error::bpf(format!("write the map {name}")))
    }

    fn lookup(&self, name: &str, index: u32) -> Result<Vec<u8>> {
        let value = map(&self.object, name)?.lookup(&index.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(Error::bpf(format!("read the map {name}")))?;
        value.ok_or_else(|| Error::Usage(format!("the map {name} has no entry {index}")))
    }
}

fn word(octets: &[u8], at: usize) -> u32 {
    octets.get(at..at + 4).and_then(|octets| octets.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

/// Map and constant; the constant is the only one of the object.
fn set_size(open: &mut OpenObject, octets: u32) -> Result<()> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == "classifier" {
            map.set_value_size(octets).map_err(Error::bpf("set the size of the map classifier"))?;
        } else if name.ends_with(".rodata") {
            map.set_initial_value(&octets.to_ne_bytes()).map_err(Error::bpf("set classifier_size"))?;
        }
    }
    Ok(())
}
