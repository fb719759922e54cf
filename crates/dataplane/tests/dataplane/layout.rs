//! Every structure of the ABI has the same layout in the compiled object (by its BTF) and in Rust.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use libbpf_rs::btf::types::{Array, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize, types};
use segue_abi as abi;

/// Offset and size of each field.
type Fields = BTreeMap<String, (usize, usize)>;

macro_rules! rust_layout {
    ($name:ident { $($field:ident),* $(,)? }) => {{
        // A pattern without `..` does not compile when a field is missing here.
        let abi::$name { $($field: _),* } = <abi::$name as abi::zerocopy::FromZeros>::new_zeroed();
        fn size_of_field<T, F>(_: impl Fn(&T) -> &F) -> usize { size_of::<F>() }
        let fields = BTreeMap::from([
            $((
                // Bindgen writes `loop_` where C has Rust's keyword.
                stringify!($field).trim_end_matches('_').to_owned(),
                (std::mem::offset_of!(abi::$name, $field), size_of_field(|value: &abi::$name| &value.$field)),
            )),*
        ]);
        (stringify!($name), size_of::<abi::$name>(), fields)
    }};
}

fn rust() -> Vec<(&'static str, usize, Fields)> {
    vec![
        rust_layout!(Port {
            ifindex,
            index,
            role,
            flags,
            mtu,
            policy,
            proxy,
            ipv4,
            ipv6,
            mac,
            next,
            config_flags,
            flow_buckets_mask,
            domain,
            firewall,
            sid_block_hints
        }),
        rust_layout!(InstanceKey { function, sum, rest }),
        rust_layout!(InstanceFlow { instance, used, ended }),
        rust_layout!(Sid {
            behaviour,
            kind,
            inner,
            flags,
            counter,
            table,
            oif,
            policy,
            counter_return,
            next_hop,
            next_hop_ipv4,
            mac,
            memory,
            failure,
            flow_timeout,
            scope,
            hop_limit_margin,
            argument_length,
            permission,
            proxy_flags,
            prefix_length,
            rewrite,
            flavours,
            backup,
            firewall,
            source_mac,
            function_mtu,
            out_label
        }),
        rust_layout!(SidCached { address, epoch, sid }),
        rust_layout!(Forgotten { entry, cpu }),
        rust_layout!(SidKey { prefixlen, generation, address }),
        rust_layout!(Policy { lists, list, bucket }),
        rust_layout!(Udp { source, mtu, hop_limit, flags }),
        rust_layout!(SegmentList {
            header_length,
            mode,
            flags,
            traffic_class,
            segments,
            kind,
            ttl,
            counter,
            oif,
            first,
            header,
            policy,
            clamp,
            pseudowire,
            reserved,
            mtu,
            reserved2,
            way
        }),
        rust_layout!(LabelKey { generation, label, instance }),
        rust_layout!(Return { ports }),
        rust_layout!(PathMtu { count, mtu, ifindex, srh_length, last, srh, reserved }),
        rust_layout!(Unresolved { count, ifindex, address }),
        rust_layout!(Prefix { address, mask }),
        rust_layout!(Config {
            cache_lifetime,
            icmp_per_second,
            icmp_burst,
            address_ipv4,
            address,
            sid_blocks_count,
            source_prefixes_count,
            steering,
            infrastructure_prefixes_count,
            echo_per_second,
            echo_burst,
            resets_per_second,
            resets_burst,
            label_classes,
            cut,
            sid_blocks,
            source_prefixes,
            infrastructure_prefixes
        }),
        rust_layout!(Control {
            abi_version,
            captures,
            generation,
            cache_generation,
            stash_bits,
            loop_,
            metadata_magic,
            stash_series,
            narrow_changes,
            signature,
            reserved,
            neighbours
        }),
        rust_layout!(Stash { id, scope, length, next_header, flags, hop_limit, kind, reserved0, header, reserved }),
        rust_layout!(Memory { current, changes, reserved }),
        rust_layout!(MemoryCounters { renewed, created, removed, unknown, conflicts, overwritten }),
        rust_layout!(ProxyFlowKey { key, scope, since }),
        rust_layout!(ProxyFlow { stash, used, word, hop_limit, reserved }),
        rust_layout!(FunctionMetadata { magic, stash, mark, oif, flags }),
        rust_layout!(AnswerMetadata { magic, oif, family, next_hop }),
        rust_layout!(Counter { packets, bytes }),
        rust_layout!(Outcomes { outcome }),
        rust_layout!(LastDropKey { port, outcome }),
        rust_layout!(LastDrop { time, ifindex, length, captured, reserved, bytes }),
        rust_layout!(Capture { time, ifindex, length, captured, direction, outcome }),
    ]
}

/// BTF has the types of maps, globals and functions, not those of local variables. Bindgen's assertions compare the others
/// with libclang's layout when the ABI crate is built.
const NOT_IN_BTF: [&str; 5] =
    ["segue_forgotten", "segue_capture", "segue_function_metadata", "segue_answer_metadata", "segue_udp"];

/// `SidKey` is `segue_sid_key`.
fn c_name(rust: &str) -> String {
    let mut name = "segue".to_owned();
    for letter in rust.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

fn btf_size(of: BtfType<'_>) -> usize {
    let of = of.skip_mods_and_typedefs();
    if let Ok(array) = Array::try_from(of) {
        return array.capacity() * btf_size(array.contained_type());
    }
    if let Ok(int) = types::Int::try_from(of) {
        return int.size();
    }
    if let Ok(structure) = Struct::try_from(of) {
        return structure.size();
    }
    panic!("the ABI has only integers, arrays and structures, not {of:?}");
}

#[test]
fn layouts_agree_with_btf() {
    let btf = Btf::from_raw("segue", segue_dataplane::OBJECT).expect("the object parses").expect("the object has BTF");
    let rust = rust();
    for (name, size, fields) in &rust {
        let name = c_name(name);
        let Some(c) = btf.type_by_name::<Struct<'_>>(&name) else {
            assert!(NOT_IN_BTF.contains(&name.as_str()), "struct {name} is not in the object's BTF");
            continue;
        };
        assert_eq!(c.size(), *size, "size of {name}");
        let mut c_fields = Fields::new();
        for member in c.iter() {
            let types::MemberAttr::Normal { offset } = member.attr else { panic!("{name} has a bit field") };
            let of: BtfType<'_> = btf.type_by_id(member.ty).expect("the member's type");
            let field = member.name.and_then(OsStr::to_str).expect("a named member").to_owned();
            c_fields.insert(field, (offset as usize / 8, btf_size(of)));
        }
        assert_eq!(c_fields, *fields, "fields of {name}");
    }
    // A structure that is new in the header must be added above.
    let known: Vec<String> = rust.iter().map(|(name, ..)| c_name(name)).collect();
    let header = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/include/abi/segue.h"))
        .expect("segue.h");
    let declared = header.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"));
    let missing: Vec<&str> = declared.filter(|name| !known.iter().any(|known| known == name)).collect();
    assert_eq!(missing, Vec::<&str>::new(), "structures of segue.h that this test does not compare");
}
