//! `segue bench` of scenarios whose results are figures.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::figure::Figure;
use crate::plot_figure;
use crate::services::chain::Chain;
use crate::services::{Extent, bulk, compress, forward, ordered, refragment, tun};

/// Length of one transfer: dozens of places.
const SECONDS: f64 = 0.3;
/// For windows to open.
const WARM_UP: Duration = Duration::from_millis(300);
/// Octets of each sort of payload.
const VOLUME: usize = 4 << 20;

/// What the command line says of it.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Only figures with this in their names.
    pub figures: &'a str,
    /// Whether that there is none of a subject is no error.
    pub may_be_none: bool,
    /// Rounds.
    pub rounds: usize,
    /// Length of one transfer, seconds.
    pub seconds: Option<f64>,
    /// Whether to print JSON.
    pub json: bool,
    /// Files to draw into: the figure's name is put into it.
    pub svg: Option<&'a Path>,
    /// Directory for a JSON file and a plot of each.
    pub output: Option<&'a Path>,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// TCP through `forward` and `counter`.
    ServiceTcp,
    /// `compress` and `decompress`.
    Compress,
    /// `bulk` and `debulk`.
    Bulk,
    /// `tcp-bulk`.
    TcpBulk,
    /// `refragment`.
    Refragment,
    /// `tun`.
    Tun,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::ServiceTcp, Self::Compress, Self::Bulk, Self::TcpBulk, Self::Refragment, Self::Tun];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServiceTcp => "service-tcp",
            Self::Compress => "compress",
            Self::Bulk => "bulk",
            Self::TcpBulk => "tcp-bulk",
            Self::Refragment => "refragment",
            Self::Tun => "tun",
        }
    }
}

/// Measures what is wanted, and prints, writes and draws figure after figure.
///
/// # Errors
/// If it cannot be measured; what was printed until then holds.
pub fn run(wanted: &Wanted<'_>, subject: Subject) -> Result<()> {
    let extent = Extent {
        figures: wanted.figures,
        places: usize::MAX,
        rounds: wanted.rounds,
        run: Duration::from_secs_f64(wanted.seconds.unwrap_or(SECONDS)),
        warm_up: WARM_UP,
        volume: VOLUME,
    };
    let mut told = 0;
    let mut tell = |figure: Figure| {
        told += 1;
        show(wanted, &figure)
    };
    match subject {
        Subject::ServiceTcp => forward::run(&Chain::open(1, false)?, &extent, &mut tell)?,
        Subject::Compress => {
            compress::run(&extent, &mut tell)?;
            if extent.wants("compress/goodput") {
                compress::goodput(&Chain::open(2, true)?, &extent, &mut tell)?;
            }
        }
        Subject::Bulk => bulk::bulk(&Chain::open(2, true)?, &extent, &mut tell)?,
        Subject::TcpBulk => {
            ordered::run(&extent, &mut tell)?;
            bulk::tcp_bulk(&Chain::open(1, false)?, &extent, &mut tell)?;
        }
        Subject::Refragment => refragment::run(&extent, &mut tell)?,
        Subject::Tun => tun::run(&Chain::open(1, false)?, &extent, &mut tell)?,
    }
    if told == 0 && !wanted.may_be_none {
        return Err(Error::Usage(format!("{} has no figure with {:?} in its name", subject.name(), wanted.figures)));
    }
    Ok(())
}

fn show(wanted: &Wanted<'_>, figure: &Figure) -> Result<()> {
    let json = || serde_json::to_string(figure).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}"));
    let text = if wanted.json { json() } else { figure.to_string() };
    let _ = writeln!(std::io::stdout(), "{text}");
    let name = figure.name.replace('/', "-");
    if let Some(file) = wanted.svg {
        plot_figure::figure(&of_figure(file, &name), figure)?;
    }
    if let Some(directory) = wanted.output {
        plot_figure::figure(&directory.join(format!("{name}.svg")), figure)?;
        let file = directory.join(format!("{name}.json"));
        std::fs::write(&file, json() + "\n").map_err(Error::file(&file.display().to_string()))?;
    }
    Ok(())
}

/// A file for each figure: `results.svg` becomes `results-bulk-delay-rate.svg`.
fn of_figure(file: &Path, name: &str) -> PathBuf {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    file.with_file_name(format!("{stem}-{name}.svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_files_of_their_own() {
        assert_eq!(of_figure(Path::new("/a/b.svg"), "tun-programs"), Path::new("/a/b-tun-programs.svg"));
    }
}
