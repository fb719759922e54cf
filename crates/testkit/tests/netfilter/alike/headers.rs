//! Packets with more than an IP header in front of layer 4: options, extension headers, fragments, other packets.

use super::packets::{Class, Event, Family, Generator, Head, SYN, fold, sum};

const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Recomputes the checksum of an IPv4 header.
fn sum_header(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let header = usize::from(packet[0] & 15) * 4;
    let checksum = fold(sum(&packet[..header], 0));
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Extension headers in front of a protocol: their octets, and what the header before names.
fn chained(headers: &[(u8, Vec<u8>)], protocol: u8) -> (Vec<u8>, u8) {
    headers.iter().rev().fold((Vec::new(), protocol), |(behind, next), (kind, header)| {
        let mut octets = header.clone();
        octets[0] = next;
        octets.extend(behind);
        (octets, *kind)
    })
}

impl Generator {
    pub fn options(&mut self, side: usize, source: u128, destination: u128) -> Event {
        let head = Head { source, destination, protocol: 17 };
        let ports = (self.port(), self.port());
        let datagram = self.udp(head, ports, 8);
        let packet = match self.family {
            Family::Ipv4 => {
                // No operation; a stream identifier; an option that nobody knows.
                const OPTIONS: [&[u8]; 3] = [&[1, 1, 1, 0], &[136, 4, 0, 9], &[94, 4, 0, 0, 1, 1, 1, 0]];
                let options = *self.random.pick(&OPTIONS);
                self.ip(head, &datagram, options, None)
            }
            Family::Ipv6 => {
                let padding = |next| vec![next, 0, 1, 4, 0, 0, 0, 0];
                let routing = |kind, left, next| {
                    let mut header = vec![next, 2, kind, left, 0, 0, 0, 0];
                    header.extend(destination.to_be_bytes());
                    header
                };
                // Not of type 4: a port at the edge of the domain takes none (row `sr-from-outside`).
                let (first, headers) = match self.random.below(6) {
                    0 => (0, padding(17)),
                    1 => (60, padding(17)),
                    2 => (0, [padding(60), padding(17)].concat()),
                    3 => (43, routing(0, 0, 17)),
                    4 => (43, routing(2, 0, 17)),
                    _ => (0, [padding(43), routing(0, 0, 17)].concat()),
                };
                self.ip(head, &datagram, &headers, Some(first))
            }
        };
        Event { class: Class::Options, side, packets: vec![packet] }
    }

    /// Fragments of a datagram, most often in order.
    pub fn fragments(&mut self, class: Class, side: usize, source: u128, destination: u128) -> Event {
        let more = class == Class::FragmentHeaders;
        let protocols = [17, 17, 6, 6, self.family.icmp(), 4, 41];
        let protocol = *self.random.pick(&protocols[..if more { 7 } else { 5 }]);
        let head = Head { source, destination, protocol };
        let (mut first, mut whole) = (protocol, self.datagram_of(head));
        let mut front = Vec::new();
        if more && self.family == Family::Ipv6 {
            front = self.chain(3);
            let behind = if self.random.below(2) == 0 { vec![(60, self.options_header())] } else { Vec::new() };
            let (octets, kind) = chained(&behind, protocol);
            (first, whole) = (kind, [octets, whole].concat());
        }
        const OPTIONS: [&[u8]; 3] = [&[], &[1, 1, 1, 0], &[136, 4, 0, 9]];
        let options = if more { *self.random.pick(&OPTIONS) } else { &[] };
        let identification = self.random.number() as u32 | 1;
        let mut packets = Vec::new();
        let mut at = 0;
        while at < whole.len() {
            let length = if class == Class::FragmentCut && at == 0 { 8 } else { 8 * (6 + self.random.below(4)) };
            let length = length.min(whole.len() - at);
            let word = (at | usize::from(at + length < whole.len())) as u16;
            let part = &whole[at..at + length];
            packets.push(match self.family {
                Family::Ipv4 => self.fragment_ipv4(head, options, part, word, identification),
                Family::Ipv6 => self.fragment_ipv6(head, &front, (first, part), word, identification),
            });
            at += length;
        }
        for packet in packets.iter().take(2) {
            self.remember(side, head, packet);
        }
        match class {
            Class::FragmentsMixed => packets.reverse(),
            Class::FragmentAlone => {
                let kept = self.random.below(packets.len());
                packets = vec![packets.swap_remove(kept)];
            }
            _ => {}
        }
        Event { class, side, packets }
    }

    /// A datagram of some length, without its IP header.
    fn datagram_of(&mut self, head: Head) -> Vec<u8> {
        let ports = (self.port(), self.port());
        let request = if self.family == Family::Ipv4 { 8 } else { 128 };
        match head.protocol {
            17 => self.udp(head, ports, 100),
            6 => self.tcp(head, ports, (9, 0), SYN, &[2, 4, 5, 0xb4], 80),
            4 | 41 => {
                let mut inner = self.inner(head.protocol);
                inner.resize(inner.len().max(120), 0);
                inner
            }
            _ => self.icmp(head, request, 0, &[9; 100]),
        }
    }

    /// `word`: offset in octets, and 1 if more follow.
    fn fragment_ipv4(&mut self, head: Head, options: &[u8], part: &[u8], word: u16, identification: u32) -> Vec<u8> {
        let mut packet = self.ip(head, part, options, None);
        packet[4..6].copy_from_slice(&(identification as u16).to_be_bytes());
        packet[6..8].copy_from_slice(&(word >> 3 | (word & 1) << 13).to_be_bytes());
        // One hop limit and class for all of a datagram.
        (packet[1], packet[8]) = (0, 64);
        sum_header(&mut packet);
        packet
    }

    fn fragment_ipv6(
        &mut self,
        head: Head,
        front: &[(u8, Vec<u8>)],
        (first, part): (u8, &[u8]),
        word: u16,
        identification: u32,
    ) -> Vec<u8> {
        let header = [&[first, 0][..], &word.to_be_bytes(), &identification.to_be_bytes()].concat();
        let (octets, kind) = chained(&[front, &[(FRAGMENT, header)]].concat(), first);
        let mut packet = self.ip(head, part, &octets, Some(kind));
        packet[0..4].copy_from_slice(&[0x60, 0, 0, 0]);
        packet[7] = 64;
        packet
    }

    /// A whole packet with a Fragment header, or with two of which one or the other may have an offset.
    pub fn whole_fragment(&mut self, class: Class, side: usize, source: u128, destination: u128) -> Event {
        let protocol = *self.random.pick(&[17, 6, 58]);
        let head = Head { source, destination, protocol };
        let whole = self.datagram_of(head);
        let mut front = self.chain(2);
        for number in 0..if class == Class::FragmentTwice { 2 } else { 1 } {
            let word: u16 = if class == Class::FragmentTwice { *self.random.pick(&[0, 0, 1, 48, 49]) } else { 0 };
            let identification = self.random.number() as u32;
            let header = [&[0, 0][..], &word.to_be_bytes(), &identification.to_be_bytes()].concat();
            front.push((FRAGMENT, header));
            if number == 0 && self.random.below(3) == 0 {
                front.push((60, self.options_header()));
            }
        }
        let (octets, kind) = chained(&front, protocol);
        let packet = self.ip(head, &whole, &octets, Some(kind));
        self.remember(side, head, &packet);
        Event { class, side, packets: vec![packet] }
    }

    fn remember(&mut self, side: usize, head: Head, packet: &[u8]) {
        if self.others.len() > 30 {
            self.others.remove(0);
        }
        self.others.push((side, head, packet.to_vec()));
    }

    /// Hop-by-Hop or Destination Options that nobody has to know. Padding of more than seven octets is refused by routers.
    fn options_header(&mut self) -> Vec<u8> {
        const OPTIONS: [&[u8]; 4] = [
            &[0, 0, 1, 4, 0, 0, 0, 0],
            &[0, 0, 5, 2, 0, 0, 1, 0],
            &[0, 1, 0x1e, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
            &[0, 0, 0, 0, 0, 0, 0, 0],
        ];
        self.random.pick(&OPTIONS).to_vec()
    }

    /// Up to so many extension headers but Fragment, in any order.
    fn chain(&mut self, most: usize) -> Vec<(u8, Vec<u8>)> {
        let mut headers = Vec::new();
        for number in 0..self.random.below(most + 1) {
            let kind = *self.random.pick(&[0, 60, 60, 43, 43, AUTHENTICATION]);
            // Most often where it belongs.
            let kind = if kind == 0 && number > 0 && self.random.below(4) > 0 { 60 } else { kind };
            let header = match kind {
                43 => {
                    let (kind, left) = (*self.random.pick(&[0, 2, 3, 5, 253]), self.random.below(3) as u8);
                    let mut header = vec![0, 2, kind, left, 0, 0, 0, 0];
                    header.extend(self.addresses(1).0.to_be_bytes());
                    header
                }
                AUTHENTICATION => self.authentication(),
                _ => self.options_header(),
            };
            headers.push((kind, header));
        }
        headers
    }

    fn authentication(&mut self) -> Vec<u8> {
        let length: u8 = *self.random.pick(&[1, 2, 4]);
        let mut header = vec![0, length, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1];
        header.resize((usize::from(length) + 2) * 4, 0x77);
        header
    }

    pub fn headers(&mut self, side: usize, source: u128, destination: u128) -> Event {
        let mut protocol = *self.random.pick(&[6, 17, self.family.icmp(), 132, 136, 4, 41, 47, 59, 200]);
        let inner = Head { source, destination, protocol };
        let upper = match protocol {
            59 => Vec::new(),
            47 => vec![0; 24],
            200 => self.summed(inner),
            132 | 136 => {
                let ports = (self.port(), self.port());
                self.transport(inner, ports)
            }
            _ => self.datagram_of(inner),
        };
        let (head, packet);
        if self.family == Family::Ipv4 {
            let mut header = self.authentication();
            header[0] = protocol;
            protocol = AUTHENTICATION;
            head = Head { protocol, ..inner };
            packet = self.ip(head, &[header, upper].concat(), &[], None);
        } else {
            head = inner;
            let most = if self.random.below(10) == 0 { 9 } else { 5 };
            let headers = self.chain(most);
            let (octets, kind) = chained(&headers, protocol);
            packet = self.ip(head, &upper, &octets, Some(kind));
        }
        self.remember(side, head, &packet);
        Event { class: Class::Headers, side, packets: vec![packet] }
    }

    /// What a checksum over all of it and the addresses finds right: see row `reject-checksum`.
    fn summed(&self, head: Head) -> Vec<u8> {
        let mut octets = vec![0; 24];
        let checksum = self.checksum(head, &octets);
        octets[..2].copy_from_slice(&checksum.to_be_bytes());
        octets
    }

    pub fn headers_cut(&mut self, side: usize, source: u128, destination: u128) -> Event {
        let mut headers = self.chain(3);
        headers.push((60, self.options_header()));
        let head = Head { source, destination, protocol: 17 };
        let (octets, kind) = chained(&headers, 17);
        let mut packet;
        if self.random.below(2) == 0 {
            let kept = octets.len() - 1 - self.random.below(7);
            packet = self.ip(head, &[], &octets[..kept], Some(kind));
        } else {
            let upper = self.datagram_of(head);
            packet = self.ip(head, &upper, &octets, Some(kind));
            let last = 40 + octets.len() - headers.last().map_or(0, |(_, header)| header.len());
            packet[last + 1] = 200;
        }
        Event { class: Class::HeadersCut, side, packets: vec![packet] }
    }

    /// RFC 8200 section 4.2: to be dropped, with or without an answer.
    pub fn option_refused(&mut self, side: usize, head: Head) -> Event {
        let kind = *self.random.pick(&[0x5e, 0x9e, 0xde]);
        let upper = self.datagram_of(head);
        let packet = self.ip(head, &upper, &[head.protocol, 0, kind, 4, 0, 0, 0, 0], Some(0));
        Event { class: Class::OptionRefused, side, packets: vec![packet] }
    }

    /// One SRH or two, to the address that the packet has.
    pub fn segments(&mut self, side: usize, head: Head) -> Event {
        let mut headers = self.chain(2);
        for _ in 0..1 + self.random.below(2) {
            let (left, second) = (self.random.below(2) as u8, self.addresses(side).0);
            let mut header = vec![0, 4, 4, left, 1, 0, 0, 0];
            header.extend(head.destination.to_be_bytes());
            header.extend(second.to_be_bytes());
            headers.push((43, header));
        }
        let (octets, kind) = chained(&headers, head.protocol);
        let upper = self.datagram_of(head);
        let packet = self.ip(head, &upper, &octets, Some(kind));
        Event { class: Class::Segments, side, packets: vec![packet] }
    }

    /// A packet of this protocol's family, of any kind.
    fn inner(&mut self, protocol: u8) -> Vec<u8> {
        use Class::*;
        const KINDS: [Class; 15] = [
            Tcp, TcpWild, Udp, Echo, Icmp, ErrorWild, Transport, Sctp, Other, Options, Fragments, Cut, Headers, Tunnel,
            Checksum,
        ];
        let mut inside = self.clone();
        inside.random = segue_classifier::random::Random::new(self.random.number());
        inside.family = if protocol == 4 { Family::Ipv4 } else { Family::Ipv6 };
        if inside.family != self.family {
            let hosts = |side: u128| -> Vec<u128> {
                let net = match inside.family {
                    Family::Ipv4 => [0xc000_0200, 0xc633_6400][side as usize],
                    Family::Ipv6 => 0x2001_0db8_u128 << 96 | (side + 1) << 80,
                };
                (2..=5).map(|host| net + host).collect()
            };
            inside.addresses = [hosts(0), hosts(1)];
            inside.forget();
        }
        // Not too deep, and not longer than a link takes.
        let class = *inside.random.pick(&KINDS);
        let event = inside.event(class);
        let packet = inside.random.pick(&event.packets).clone();
        if packet.len() > 1000 { packet[..1000].to_vec() } else { packet }
    }

    /// A packet in a packet, or another one the other way.
    pub fn tunnel(&mut self, mut side: usize, source: u128, destination: u128) -> Event {
        let mut head = Head { source, destination, protocol: *self.random.pick(&[4, 41]) };
        let earlier: Vec<_> =
            self.others.iter().filter(|(_, head, _)| matches!(head.protocol, 4 | 41)).cloned().collect();
        if !earlier.is_empty() && self.random.below(3) == 0 {
            let (before, to, _) = self.random.pick(&earlier).clone();
            side = 1 - before;
            head = Head { source: to.destination, destination: to.source, ..to };
        }
        let inner = self.inner(head.protocol);
        let packet = self.ip(head, &inner, &[], None);
        self.remember(side, head, &packet);
        Event { class: Class::Tunnel, side, packets: vec![packet] }
    }

    pub fn tunnel_odd(&mut self, side: usize, source: u128, destination: u128) -> Event {
        let protocol = *self.random.pick(&[4, 41]);
        let head = Head { source, destination, protocol };
        let inside = if self.random.below(8) == 0 { 45 - protocol } else { protocol };
        let mut inner = self.inner(inside);
        let lengths = if protocol == 4 { 2..4 } else { 4..6 };
        match self.random.below(5) {
            0 => inner.truncate(self.random.below(60)),
            1 => inner.truncate(self.random.below(inner.len())),
            2 => inner[lengths.start..lengths.end].copy_from_slice(&(self.random.number() as u16).to_be_bytes()),
            3 => inner[0] = self.random.number() as u8,
            _ => inner.iter_mut().for_each(|octet| *octet = 0),
        }
        let packet = self.ip(head, &inner, &[], None);
        Event { class: Class::TunnelOdd, side, packets: vec![packet] }
    }

    pub fn lengths(&mut self, side: usize, source: u128, destination: u128) -> Event {
        let protocol = *self.random.pick(&[17, 17, 136]);
        let head = Head { source, destination, protocol };
        let ports = (self.port(), self.port());
        let mut datagram = self.udp(head, ports, 20);
        let choice = self.random.below(4);
        if choice == 3 {
            let wrong: &[u16] = if protocol == 17 { &[0, 1, 7, 8, 27, 29, 200] } else { &[1, 7, 29, 200] };
            datagram[4..6].copy_from_slice(&self.random.pick(wrong).to_be_bytes());
        } else if protocol == 136 {
            // All of it is covered.
            datagram[4..6].fill(0);
        }
        datagram[6..8].fill(0);
        // Of UDP-Lite, what the kernel takes for right: row `checksum`.
        let checksum = self.checksum(Head { protocol: 17, ..head }, &datagram);
        datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = self.ip(head, &datagram, &[], None);
        match choice {
            // As in a frame that was too short.
            0 => packet.extend([0x99; 18]),
            1 => packet.truncate(packet.len() - 1 - self.random.below(20)),
            2 if self.family == Family::Ipv4 => {
                if self.random.below(2) == 0 {
                    packet[0] = *self.random.pick(&[0x44, 0x40, 0x65, 0x05]);
                } else {
                    packet[2..4].copy_from_slice(&self.random.pick(&[0_u16, 19, 22, 60]).to_be_bytes());
                }
                sum_header(&mut packet);
            }
            2 => packet[4..6].copy_from_slice(&self.random.pick(&[0_u16, 2, 60, 65535]).to_be_bytes()),
            _ => {}
        }
        Event { class: Class::Lengths, side, packets: vec![packet] }
    }

    /// From the destination, from a router on the way, or by somebody who makes it up.
    pub fn error_any(&mut self) -> Event {
        if self.others.is_empty() {
            return self.event(Class::Tunnel);
        }
        let (side, head, packet) = self.random.pick(&self.others).clone();
        let source = if self.random.below(3) == 0 { self.addresses(1 - side).0 } else { head.destination };
        let destination = if self.random.below(6) == 0 { self.addresses(side).0 } else { head.source };
        let quoted = match self.random.below(3) {
            0 => packet.len().min(self.random.below(80)),
            _ => packet.len().min(1200),
        };
        let mut event = self.error_about(Class::ErrorAny, 1 - side, source, destination, &packet[..quoted]);
        if self.random.below(3) == 0 {
            // The rest of it behind the error's end, where nobody has to look.
            event.packets[0].extend(&packet[quoted..]);
        }
        event
    }
}
