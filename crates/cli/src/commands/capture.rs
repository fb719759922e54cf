//! `capture`: packets from the data plane.

use std::{
    fs::File,
    io::{self, BufRead, IsTerminal, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use segue_api::capture::{CaptureRequest, Format, Line, Packet};

use crate::{
    args::{CaptureArgs, Global, Output},
    output, target,
};

/// A capture may wait for its first packet as long as it takes.
const FOR_EVER: Duration = Duration::from_secs(30 * 24 * 3600);

/// Captures to the terminal or to a file.
pub fn capture(global: &Global, args: &CaptureArgs) -> Result<()> {
    let target = target::one(global)?;
    let to_stdout = args.write.as_deref() == Some(Path::new("-"));
    if to_stdout && io::stdout().is_terminal() {
        bail!("pcapng is not for a terminal: give -w a file, or pipe it: segue capture -w - | tshark -r -");
    }
    let format = if args.write.is_some() { Format::Pcapng } else { Format::Json };
    let request = CaptureRequest { ports: args.ports.clone(), count: args.count, seconds: args.seconds, format };
    let mut answer = target.client().with_patience(FOR_EVER).capture(&request)?;
    match &args.write {
        Some(_) if to_stdout => copy(&mut answer.body, &mut io::stdout().lock()),
        Some(path) => {
            let name = path.display();
            let mut file = File::create(path).with_context(|| format!("{name}: give a file that can be written"))?;
            copy(&mut answer.body, &mut file).with_context(|| name.to_string())
        }
        None => lines(answer.body, global.output),
    }
}

/// Passes on what comes as soon as it comes.
fn copy(from: &mut impl BufRead, to: &mut impl Write) -> Result<()> {
    loop {
        let bytes = from.fill_buf()?;
        if bytes.is_empty() {
            return Ok(());
        }
        to.write_all(bytes)?;
        to.flush()?;
        let count = bytes.len();
        from.consume(count);
    }
}

fn lines(from: impl BufRead, format: Output) -> Result<()> {
    for line in from.lines() {
        let line = line?;
        match format {
            Output::Table => match serde_json::from_str(&line)? {
                Line::Packet(packet) => output::print(&readable(&packet))?,
                Line::Lost { lost } => eprintln!("segue: {lost} packets were lost: more came than could be shown"),
            },
            Output::Json => output::print(&format!("{line}\n"))?,
            Output::Yaml => {
                output::print("---\n")?;
                output::structured(&serde_json::from_str::<serde_json::Value>(&line)?, format)?;
            }
        }
    }
    Ok(())
}

fn readable(packet: &Packet) -> String {
    let Packet { port, direction, length, headers, .. } = packet;
    let time = time_of_day(&packet.time);
    let outcome = packet.outcome.as_ref().map(|outcome| format!(" {outcome}")).unwrap_or_default();
    format!("{time} {port} {direction}{outcome} {length} {headers}\n")
}

/// Seconds since 1970 as the time of day in UTC, with microseconds.
fn time_of_day(time: &str) -> String {
    let (seconds, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let seconds = seconds.parse::<u64>().unwrap_or_default() % 86_400;
    let fraction: String = fraction.chars().chain(std::iter::repeat('0')).take(6).collect();
    format!("{:02}:{:02}:{:02}.{fraction}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_where_and_what() {
        let packet: Packet = serde_json::from_str(
            r#"{"time": "1795176044.614166430", "port": "eth0", "direction": "in", "length": 60, "headers": "IPv6 a > b"}"#,
        )
        .unwrap();
        assert_eq!(readable(&packet), "12:00:44.614166 eth0 in 60 IPv6 a > b\n");
    }

    #[test]
    fn everything_is_passed_on() {
        let bytes: Vec<u8> = (0..100_000u32).map(|value| value as u8).collect();
        let mut copied = Vec::new();
        copy(&mut io::BufReader::new(&bytes[..]), &mut copied).unwrap();
        assert_eq!(copied, bytes);
    }
}
