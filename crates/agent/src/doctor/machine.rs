//! The kernel: what it can do, and how it is set.

use std::{fs, io};

use segue_api::doctor::Check;
use segue_host::sysctl;
use segue_model::node::NodeState;

use crate::kernel::plan;

/// Linux versions, major and minor.
type Version = (u32, u32);

/// The oldest that the data plane loads on.
const OLDEST: Version = (6, 1);
/// The first with tcx.
const TCX: Version = (6, 6);

/// What the kernel has.
pub fn kernel() -> Vec<Check> {
    let mut checks = vec![version()];
    checks.push(there(
        "BTF",
        "/sys/kernel/btf/vmlinux",
        "types of the kernel are known",
        Check::note,
        (
            "the kernel has no types of its own (CONFIG_DEBUG_INFO_BTF)",
            "nothing of Segue needs them; bpftool shows less",
        ),
    ));
    checks.push(there(
        "seg6",
        "/proc/sys/net/ipv6/conf/all/seg6_enabled",
        "the kernel knows IPv6 segment routing",
        Check::wrong,
        ("the kernel has no IPv6 segment routing", "use a kernel with CONFIG_IPV6_SEG6_LWTUNNEL"),
    ));
    checks.push(there(
        "seg6 HMAC",
        "/proc/sys/net/ipv6/conf/all/seg6_require_hmac",
        "the kernel verifies HMACs of SRHs",
        Check::note,
        ("the kernel verifies no HMAC", "`accept_hmac` needs CONFIG_IPV6_SEG6_HMAC"),
    ));
    checks.push(option("macvlan", "CONFIG_MACVLAN", "End.AN.NF takes a veth instead, which costs one more queue"));
    checks
}

fn there(
    about: &str,
    file: &str,
    good: &str,
    bad: impl Fn(&str, String, String, String) -> Check,
    (reason, remedy): (&str, &str),
) -> Check {
    match fs::exists(file) {
        Ok(true) => Check::ok("kernel", about, good),
        _ => bad("kernel", about.to_owned(), reason.to_owned(), remedy.to_owned()),
    }
}

fn version() -> Check {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let text = text.trim();
    let Some(version) = parse(text) else {
        return Check::note("kernel", "version", format!("{text:?} does not say which Linux this is"), "");
    };
    if version < OLDEST {
        let reason = format!("Linux {text} is older than {}.{}", OLDEST.0, OLDEST.1);
        return Check::wrong("kernel", "version", reason, "use Linux 6.1 or newer (Debian 12)");
    }
    let tcx = if version >= TCX { "tcx" } else { "no tcx: programs on socket buffers go by clsact" };
    Check::ok("kernel", "version", format!("Linux {text}; {tcx}"))
}

fn parse(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// What the kernel was built with, where its configuration lies beside it.
fn option(about: &str, name: &str, without: &str) -> Check {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let Ok(config) = fs::read_to_string(format!("/boot/config-{}", release.trim())) else {
        let reason = format!("whether the kernel has it cannot be seen; if not: {without}");
        return Check::note("kernel", about, reason, "");
    };
    let built = config.lines().any(|line| line == format!("{name}=y") || line == format!("{name}=m"));
    if built {
        Check::ok("kernel", about, format!("the kernel has it ({name})"))
    } else {
        Check::note("kernel", about, format!("the kernel has none: {without}"), format!("use a kernel with {name}"))
    }
}

/// Sysctls that forwarding needs; applying sets them, and somebody may have set them back.
pub fn sysctls(state: &NodeState) -> Vec<Check> {
    let mut checks = Vec::new();
    for (name, wanted) in plan::sysctls(state) {
        checks.push(match sysctl::get(&name) {
            Ok(Some(value)) if value == wanted => Check::ok("sysctl", name, format!("is {value}")),
            Ok(Some(value)) => {
                let remedy = format!("`sysctl -w {}={wanted}`, and look for who sets it back", name.replace('/', "."));
                Check::wrong("sysctl", name, format!("is {value}, and forwarding needs {wanted}"), remedy)
            }
            Ok(None) => Check::wrong("sysctl", name, "this kernel does not have it", "use a kernel with IPv6"),
            Err(error) => Check::note("sysctl", name, format!("cannot be read: {error}"), "give segued /proc/sys"),
        });
    }
    checks
}

/// The kernel's tables of neighbours, which all network namespaces of the machine share. Not to be seen but from its first one.
pub fn neighbour_tables() -> Vec<Check> {
    let table = |(about, file, family): (&str, &str, &str)| {
        let text = fs::read_to_string(format!("/proc/net/stat/{file}")).ok()?;
        let name = format!("net/{family}/neigh/default/gc_thresh3");
        let room = sysctl::get(&name).ok().flatten()?.parse().ok()?;
        neighbour_table(about, &text, room, &name.replace('/', "."))
    };
    [("IPv4 neighbours", "arp_cache", "ipv4"), ("IPv6 neighbours", "ndisc_cache", "ipv6")]
        .into_iter()
        .filter_map(table)
        .collect()
}

/// `text`: a line of names, then one of hexadecimal numbers for each processor. `room`: neighbours that the table takes.
fn neighbour_table(about: &str, text: &str, room: u64, sysctl: &str) -> Option<Check> {
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let names = lines.next()?;
    let place = |wanted: &str| names.iter().position(|name| *name == wanted);
    let (entries, full) = (place("entries")?, place("table_fulls")?);
    let rows: Vec<_> = lines.collect();
    let number = |row: &[&str], at: usize| row.get(at).and_then(|word| u64::from_str_radix(word, 16).ok());
    // That of the whole table in each line.
    let entries = number(rows.first()?, entries)?;
    let refused: u64 = rows.iter().filter_map(|row| number(row, full)).sum();
    let remedy = || format!("`sysctl -w {sysctl}={}`, and look with `ip neigh` for who asks for so many", room * 8);
    let says = format!("{entries} of {room} places are taken");
    Some(if entries * 10 >= room * 9 {
        let reason = format!("{says}: packets to new neighbours are lost, in all network namespaces");
        Check::wrong("kernel", about, reason, remedy())
    } else if refused > 0 {
        let reason =
            format!("{says}; since the machine was started it was full {refused} times, and packets were lost");
        Check::note("kernel", about, reason, remedy())
    } else {
        Check::ok("kernel", about, says)
    })
}

/// The table that keeps interfaces which are no ports out of the domain.
pub fn boundary(there: io::Result<bool>, is_applied: bool) -> Check {
    let about = "table ip6 segue of nf_tables";
    match there {
        Ok(true) => Check::ok("boundary", about, "interfaces that are no ports are outside of the domain"),
        Ok(false) if !is_applied => Check::note("boundary", about, "is made by the first apply", ""),
        Ok(false) => {
            let reason = "is gone: whoever reaches another interface of this node reaches its SIDs";
            Check::wrong("boundary", about, reason, "apply again; look for who removes tables (`nft monitor`)")
        }
        Err(error) => {
            let remedy = "use a kernel with CONFIG_NF_TABLES, and give segued CAP_NET_ADMIN";
            Check::wrong("boundary", about, format!("cannot be read: {error}"), remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use segue_api::doctor::Finding;

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(parse("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(parse("6.18"), Some((6, 18)));
        assert!(parse("6.18").unwrap() > TCX && parse("5.10.0").unwrap() < OLDEST);
        assert_eq!(parse("next"), None);
    }

    #[test]
    fn a_table_of_neighbours_that_is_full_is_wrong() {
        let text = |entries: &str, full: &str| {
            format!("entries  allocs   table_fulls\n{entries} 00000010 {full}\n{entries} 00000020 00000001\n")
        };
        let check = |text: &str| neighbour_table("IPv6 neighbours", text, 1024, "net.ipv6.neigh.default.gc_thresh3");
        assert_eq!(check(&text("00000100", "00000000").replace("00000001", "00000000")).unwrap().result, Finding::Ok);
        let note = check(&text("00000100", "0000000f")).unwrap();
        assert_eq!(note.result, Finding::Note);
        assert!(format!("{note:?}").contains("it was full 16 times"), "{note:?}");
        let wrong = check(&text("000003a0", "00000000")).unwrap();
        assert_eq!(wrong.result, Finding::Wrong);
        assert!(format!("{wrong:?}").contains("928 of 1024"), "{wrong:?}");
        assert!(check("").is_none() && check("entries\n00000001\n").is_none());
    }

    #[test]
    fn a_boundary_that_is_gone_is_wrong() {
        assert_eq!(boundary(Ok(true), true).result, Finding::Ok);
        assert_eq!(boundary(Ok(false), true).result, Finding::Wrong);
        assert_eq!(boundary(Ok(false), false).result, Finding::Note);
        assert_eq!(boundary(Err(io::ErrorKind::Unsupported.into()), false).result, Finding::Wrong);
    }
}
