//! Files with mistakes made at random: no input makes the readers panic, and what they take they can write and read again.

use std::path::PathBuf;

use segue_iptables::{Family, ListOptions, Mode, SetFile, Surroundings, parse_rules, parse_sets, parse_yaml};

/// A generator of numbers that needs no seed from outside: a failure is the same every time (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn seeds(names: &[&str]) -> Vec<String> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/iptables");
    names
        .iter()
        .map(|name| std::fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
        .collect()
}

/// A line or two of a file with something changed: characters, words and lines dropped, doubled, swapped or replaced.
fn mutate(lines: &[&str], numbers: &mut Numbers) -> String {
    const PIECES: [&str; 24] = [
        "!",
        "\"",
        "\\",
        ":",
        ",",
        "/",
        "-",
        "--",
        "-m",
        "-j",
        "-A",
        "COMMIT",
        "*filter",
        "0",
        "4294967296",
        "é",
        "\u{0}",
        "+",
        "[",
        "::",
        "=",
        "340282366920938463463374607431768211456",
        "-0",
        "\t",
    ];
    let count = 1 + numbers.below(6);
    let mut text = String::from("*filter\n:user - [0:0]\n");
    for _ in 0..count {
        let mut line = lines[numbers.below(lines.len())].to_owned();
        for _ in 0..numbers.below(4) {
            let boundaries = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect::<Vec<_>>();
            let at = boundaries[numbers.below(boundaries.len())];
            match numbers.below(5) {
                0 => line.insert_str(at, PIECES[numbers.below(PIECES.len())]),
                1 => line.truncate(at),
                2 => {
                    let mut words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
                    let (first, second) = (numbers.below(words.len()), numbers.below(words.len()));
                    words.swap(first, second);
                    line = words.join(" ");
                }
                3 => {
                    let mut words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
                    let place = numbers.below(words.len());
                    words[place] = PIECES[numbers.below(PIECES.len())].to_owned();
                    line = words.join(" ");
                }
                _ => {
                    let other = lines[numbers.below(lines.len())];
                    let from =
                        other.char_indices().map(|(at, _)| at).nth(numbers.below(other.chars().count())).unwrap_or(0);
                    line.truncate(at);
                    line.push_str(&other[from..]);
                }
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    if numbers.below(8) > 0 {
        text.push_str("COMMIT\n");
    }
    text
}

#[test]
fn rule_files() {
    let sources =
        seeds(&["options.v4", "options.v6", "chain.v6", "server.v4", "ufw.v4", "bad/rules.v4", "bad/rules.v6"]);
    let lines = sources.iter().flat_map(|source| source.lines()).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let mut numbers = Numbers(1);
    let mut taken = 0;
    for round in 0..60_000 {
        let text = mutate(&lines, &mut numbers);
        let family = if round % 2 == 0 { Family::Ipv4 } else { Family::Ipv6 };
        let Ok(rules) = parse_rules(&text, "mutated", family) else { continue };
        taken += 1;
        let saved = rules.save(true);
        let again = parse_rules(&saved, "saved", family).unwrap_or_else(|errors| panic!("{errors}\n{text}\n{saved}"));
        assert!(again == rules, "{text}\n{saved}");
        rules.list_saved(ListOptions { verbose: true, exact: round % 3 == 0, line_numbers: true });
        if let Ok(lowered) = rules.lower(&SetFile::default(), &Surroundings::default(), Mode::Advanced, "mutated") {
            assert_eq!(lowered.program.check(), Ok(()), "{text}");
        }
    }
    // Else the mutations would be too wild to test anything but errors.
    assert!(taken > 1_000, "{taken}");
}

#[test]
fn set_files() {
    let sources = seeds(&["bad/sets.ipset", "fail2ban.ipset"]);
    let more = "create n hash:net,port,net family inet6\nadd n 2001:db8::/32,udp:53,::/0 nomatch\ncreate i hash:ip\nadd i 10.0.0.1-10.0.0.77 comment \"x\"\n\
                create m bitmap:ip,mac range 10.0.0.0/24\nadd m 10.0.0.4,00:11:22:33:44:55\nadd i 0.0.0.0-255.255.255.255\n";
    let lines = sources.iter().flat_map(|source| source.lines()).chain(more.lines()).collect::<Vec<_>>();
    let mut numbers = Numbers(2);
    let mut taken = 0;
    for _ in 0..30_000 {
        // The first two lines are for rules; sets have no such lines.
        let text = mutate(&lines, &mut numbers).lines().skip(2).map(|line| format!("{line}\n")).collect::<String>();
        let Ok(sets) = parse_sets(&text, "mutated") else { continue };
        taken += 1;
        let saved = sets.save();
        let again = parse_sets(&saved, "saved").unwrap_or_else(|errors| panic!("{errors}\n{text}\n{saved}"));
        assert!(again == sets, "{text}\n{saved}");
        for set in &sets.sets {
            for family in [Family::Ipv4, Family::Ipv6] {
                let rule = format!("-A FORWARD -m set --match-set \"{}\" src,src,src -j DROP\n", set.name);
                let rules = parse_rules(&rule, "rule", family);
                if let Ok(Ok(lowered)) =
                    rules.map(|rules| rules.lower(&sets, &Surroundings::default(), Mode::Basic, "rule"))
                {
                    assert_eq!(lowered.program.check(), Ok(()), "{text}");
                }
            }
        }
    }
    assert!(taken > 300, "{taken}");
}

#[test]
fn yaml_files() {
    let sources = seeds(&["rules.yaml"]);
    let characters = sources[0].chars().collect::<Vec<_>>();
    let mut numbers = Numbers(3);
    let mut taken = 0;
    for _ in 0..3_000 {
        let mut text = characters.clone();
        for _ in 0..1 + numbers.below(3) {
            let at = numbers.below(text.len());
            match numbers.below(3) {
                0 => {
                    text.remove(at);
                }
                1 => text[at] = ['x', '9', ':', '-', '[', '}', '!', '"', '\n'][numbers.below(9)],
                _ => text.insert(at, ['x', '9', ' ', ',', ']', '{', '&', '*', '\t'][numbers.below(9)]),
            }
        }
        let text = text.into_iter().collect::<String>();
        if let Ok(rules) = parse_yaml(&text, "mutated") {
            taken += 1;
            let family = rules.family;
            let saved = rules.save(true);
            let again =
                parse_rules(&saved, "saved", family).unwrap_or_else(|errors| panic!("{errors}\n{text}\n{saved}"));
            assert!(again == rules, "{text}\n{saved}");
        }
    }
    assert!(taken > 100, "{taken}");
}
