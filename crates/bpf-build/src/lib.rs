//! The one call of clang by which eBPF is compiled: its flags, its include paths, what a build depends on, and what is said when
//! clang is missing or refuses a program.
//!
//! A build script calls [`objects`] with files below `bpf/`; a test that compiles at run time makes a [`Clang`] itself. Both get the
//! same object, octet for octet, wherever the repository lies: the identity of a build is a digest of it.
//!
//! It does not load objects and does not generate Rust from headers (crates/abi does, with bindgen; it asks here only what its build depends
//! on, by [`watch`]). No dependencies, because everything that embeds an object waits for it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::{env, fmt, fs, io, thread};

/// What every eBPF program is compiled with.
const FLAGS: [&str; 7] = ["-target", "bpf", "-O2", "-g", "-Wall", "-Werror", "-mcpu=v3"];

/// Why there is no object.
#[derive(Debug)]
pub enum Error {
    /// A variable is missing that cargo or the build of libbpf sets.
    Variable(&'static str),
    /// A file of the build could not be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// clang could not be started.
    Start {
        /// Its name or path.
        clang: OsString,
        /// Why.
        cause: io::Error,
    },
    /// clang does not take a program.
    Refused {
        /// The program.
        source: PathBuf,
        /// How clang ended.
        status: ExitStatus,
        /// What it said.
        said: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => {
                write!(
                    formatter,
                    "{name} is not set; cargo sets it for a build script whose crate depends on libbpf-sys"
                )
            }
            Self::File { path, cause } => {
                write!(formatter, "{}: {cause}; build in a checkout of the whole repository", path.display())
            }
            Self::Start { clang, cause } => write!(
                formatter,
                "{} compiles the eBPF programs and cannot be started: {cause}; install it (apt-get install clang), or set CLANG to its \
                 path",
                clang.display()
            ),
            Self::Refused { source, status, said } => {
                write!(formatter, "clang does not compile {} ({status}):\n{said}", source.display())
            }
        }
    }
}

impl std::error::Error for Error {}

/// clang with all that it has to be told but the program.
#[derive(Debug, Clone)]
pub struct Clang {
    program: OsString,
    repository: PathBuf,
    libbpf: PathBuf,
    architecture: String,
}

impl Clang {
    /// For programs of this repository, with the headers of libbpf below `libbpf`, for machines like this one. `CLANG` in the environment
    /// names another clang.
    ///
    /// # Errors
    /// If there is no such repository.
    pub fn new(repository: &Path, libbpf: &Path) -> Result<Self, Error> {
        Ok(Self {
            program: env::var_os("CLANG").unwrap_or_else(|| "clang".into()),
            repository: fs::canonicalize(repository)
                .map_err(|cause| Error::File { path: repository.to_owned(), cause })?,
            libbpf: libbpf.to_owned(),
            architecture: env::consts::ARCH.to_owned(),
        })
    }

    /// For the build script that calls it.
    fn of_build_script() -> Result<Self, Error> {
        let repository = Path::new(&variable("CARGO_MANIFEST_DIR")?).join(UP);
        // libbpf's headers for eBPF programs, from the libbpf that is linked.
        let libbpf = variable("DEP_BPF_INCLUDE")?;
        Ok(Self { architecture: variable("CARGO_CFG_TARGET_ARCH")?, ..Self::new(&repository, Path::new(&libbpf))? })
    }

    /// Compiles a program, and returns the files that it was made from.
    ///
    /// # Errors
    /// If clang is missing or refuses the program; with what it says.
    pub fn compile(&self, source: &Path, object: &Path) -> Result<Vec<PathBuf>, Error> {
        let bpf = self.repository.join("bpf");
        let list = object.with_extension("d");
        let output = Command::new(&self.program)
            .args(FLAGS)
            // An object and its identity must not depend on where the repository lies.
            .arg(format!("-ffile-prefix-map={}=.", self.repository.display()))
            .arg("-I")
            .arg(bpf.join("include"))
            .arg("-I")
            .arg(&bpf)
            .arg("-I")
            .arg(&self.libbpf)
            // asm/types.h of Debian's multiarch directory, which clang does not search for the target bpf.
            .arg(format!("-I/usr/include/{}-linux-gnu", self.architecture))
            .args(["-MD", "-MF"])
            .arg(&list)
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(object)
            .output()
            .map_err(|cause| Error::Start { clang: self.program.clone(), cause })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Refused { source: source.to_owned(), status: output.status, said });
        }
        let rule = fs::read_to_string(&list).map_err(|cause| Error::File { path: list, cause })?;
        Ok(prerequisites(&rule))
    }
}

/// From a crate of the repository to the repository.
const UP: &str = "../..";

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::Variable(name))
}

/// Whether Clippy runs the build script: for it cargo runs those of the workspace once more, apart from those of a build, and nobody runs what
/// comes of it.
fn is_clippy() -> bool {
    env::var_os("RUSTC_WORKSPACE_WRAPPER").is_some_and(|wrapper| Path::new(&wrapper).ends_with("clippy-driver"))
}

/// Objects that are only there to be included.
fn empty(out: &Path, sources: &[&str]) -> Result<(), Error> {
    sources.iter().try_for_each(|source| {
        let object = out.join(Path::new(source).file_name().unwrap_or_default()).with_extension("o");
        fs::write(&object, []).map_err(|cause| Error::File { path: object, cause })
    })
}

/// For a build script: compiles programs, named by their paths below `bpf/`, to `NAME.o` in `OUT_DIR`, and tells cargo what they were
/// made from.
///
/// # Errors
/// As [`Clang::compile`].
pub fn objects(sources: &[&str]) -> Result<(), Error> {
    let clang = Clang::of_build_script()?;
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rerun-if-changed=build.rs");
    if is_clippy() {
        return empty(&out, sources);
    }
    // Side by side: clang takes most of a minute for one of the data plane's, on one processor, and nearly all crates wait for them.
    let compiled = thread::scope(|scope| {
        let compile = |source: &&str| {
            let source = clang.repository.join("bpf").join(source);
            let object = out.join(source.file_name().unwrap_or_default()).with_extension("o");
            let clang = &clang;
            scope.spawn(move || clang.compile(&source, &object))
        };
        let running: Vec<_> = sources.iter().map(compile).collect();
        running.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect::<Vec<_>>()
    });
    for made_from in compiled {
        for made_from in made_from? {
            // Relative to the crate, so that a target directory that serves two checkouts does not mix them up. What is outside of
            // the repository comes with the system's packages.
            if let Ok(inside) = made_from.strip_prefix(&clang.repository)
                && !inside.starts_with("target")
            {
                println!("cargo:rerun-if-changed={UP}/{}", inside.display());
            }
        }
    }
    Ok(())
}

/// For a build script: tells cargo that it depends on these files or directories below `bpf/`. Returns their paths.
///
/// # Errors
/// If cargo does not run it.
pub fn watch<const N: usize>(paths: [&str; N]) -> Result<[PathBuf; N], Error> {
    let bpf = Path::new(&variable("CARGO_MANIFEST_DIR")?).join(UP).join("bpf");
    println!("cargo:rerun-if-changed=build.rs");
    Ok(paths.map(|path| {
        println!("cargo:rerun-if-changed={UP}/bpf/{path}");
        bpf.join(path)
    }))
}

/// The files behind the colon of a make rule.
fn prerequisites(rule: &str) -> Vec<PathBuf> {
    let list = rule.split_once(": ").map_or("", |(_, list)| list);
    let mut files = vec![String::new()];
    let mut letters = list.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some('\n') | None => files.push(String::new()),
                Some(escaped) => files.last_mut().into_iter().for_each(|file| file.push(escaped)),
            },
            blank if blank.is_whitespace() => files.push(String::new()),
            other => files.last_mut().into_iter().for_each(|file| file.push(other)),
        }
    }
    files.into_iter().filter(|file| !file.is_empty()).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_what_an_object_is_made_from() {
        let rule = "/t/x.o: /r/bpf/x.bpf.c /r/bpf/lib/a\\ b.h \\\n  /r/bpf/include/c.h\n";
        let expected = ["/r/bpf/x.bpf.c", "/r/bpf/lib/a b.h", "/r/bpf/include/c.h"].map(PathBuf::from);
        assert_eq!(prerequisites(rule), expected);
        assert!(prerequisites("").is_empty());
    }

    #[test]
    fn a_missing_clang_is_told_with_its_package() {
        let clang =
            Clang { program: "clang-that-is-not".into(), ..Clang::new(Path::new(UP), Path::new("/x")).unwrap() };
        let error = clang.compile(Path::new("x.c"), Path::new("x.o")).unwrap_err().to_string();
        assert!(error.contains("clang-that-is-not") && error.contains("apt-get install clang"), "{error}");
    }
}
