/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which traffic goes into which SR policy. The first rule that holds wins; the classifier finds it, and the result is
 * remembered per flow, so that finding it is paid for once per flow.
 */
#ifndef SEGUE_ACCESS_STEERING_H
#define SEGUE_ACCESS_STEERING_H

#include "lib/base/types.h"
#include "lib/base/address.h"
#include "lib/base/maps.h"
#include "lib/base/config.h"
#include "lib/packet/packet.h"
#include "lib/packet/flow.h"
#include "lib/forward/adjacency.h"
#include "lib/core/boundary.h"
#include "lib/access/encapsulation.h"
#include "abi/classifier.h"

#define STEERING_SIZE (1U << 16)

/* Octets of map `steering`. A power of two; the loader's to change, together with the map's value size. */
const volatile u32 steering_size SEC(".rodata.steering") = STEERING_SIZE;

/*
 * Images of the steering rules, compiled for the classifier: one in each half, so that the next one is written while
 * packets walk the other. `config.steering` names the chain.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, STEERING_SIZE);
} steering SEC(".maps");

#define CLASSIFIER(name_) steering_##name_
#define CLASSIFIER_MAP steering
#define CLASSIFIER_OCTETS steering_size
#define CLASSIFIER_FIRST
#include "lib/classifier/walk.h"

PERCPU(steering_keys, struct segue_classifier_key, 1);

/* What rules may look at beyond addresses, ports and protocol: flow label | DSCP << 20; 0 while no rule does. */
INLINE u32 steering_marks(const struct segue_port *port, const struct flow *flow)
{
	if (likely(!(port->config_flags & SEGUE_CONFIG_STEER_MARKS)))
		return 0;
	return flow->flow_label | (u32)(flow->traffic_class >> 2) << 20;
}

struct flow_verdict {
	u64 key[5];
	u32 ingress; /* ifindex */
	u32 marks;
	u32 list;		    /* index of the segment list, or SEGUE_NONE: the policy has none that is valid */
	u32 counter;		    /* of the rule */
	u32 outcome;		    /* not 0: it ends here, for this reason */
	struct adjacency adjacency; /* a copy of the list's */
};

/* Rows of map `flows`. A power of two; the loader's to change, together with the map's size. */
const volatile u32 flow_rows SEC(".rodata.flows") = SEGUE_FLOW_CACHE / SEGUE_FLOW_ROW;

/*
 * What a CPU remembers of flows; two cache lines each. The kernel finds a row by a pointer in a table of its own: the
 * fewer rows, the more of that table is at hand.
 */
struct flow_row {
	struct flow_verdict verdict[SEGUE_FLOW_ROW];
};

_Static_assert(sizeof(struct flow_verdict) == 128, "an entry is two cache lines");

PERCPU(flows, struct flow_row, SEGUE_FLOW_CACHE / SEGUE_FLOW_ROW);

/* The fields that steering rules look at; the others are never read. */
INLINE void steering_key_fill(const struct segue_port *port, const struct flow *flow, struct segue_classifier_key *key)
{
	u32 ports = flow->key[4], protocol = (flow->key[4] >> 32) & 0xff;
	int has_ports = protocol_has_ports(protocol) && !((flow->key[4] >> 48) & FLOW_FRAGMENT);

	key->family = flow->family;
	if (flow->family == 4) {
		key->source[0] = bpf_ntohl(flow->key[0]);
		key->source[1] = 0;
		key->destination[0] = bpf_ntohl(flow->key[0] >> 32);
		key->destination[1] = 0;
		key->flow_label = SEGUE_CLASSIFIER_ABSENT;
	} else {
		key->source[0] = bpf_be64_to_cpu(flow->key[0]);
		key->source[1] = bpf_be64_to_cpu(flow->key[1]);
		key->destination[0] = bpf_be64_to_cpu(flow->key[2]);
		key->destination[1] = bpf_be64_to_cpu(flow->key[3]);
		key->flow_label = flow->flow_label;
	}
	/* In a packet the source port comes first: the low half of the word. Fragments have none. */
	key->source_port = has_ports ? bpf_ntohs(ports) : SEGUE_CLASSIFIER_ABSENT;
	key->destination_port = has_ports ? bpf_ntohs(ports >> 16) : SEGUE_CLASSIFIER_ABSENT;
	key->protocol = protocol;
	key->ingress = port->ifindex;
	key->traffic_class = flow->traffic_class;
}

/* Is it a packet with labels in UDP, to an address of this node that takes these? */
RARE u32 flow_to_udp_endpoint(u32 generation, const struct flow *flow)
{
	u32 port;

	if (!flow)
		return 0;
	port = flow->key[4] >> 16 & 0xffff;
	if (((flow->key[4] >> 32) & 0xff) != PROTOCOL_UDP || port != bpf_htons(UDP_PORT_LABELS) ||
	    (flow->key[4] >> 48) & FLOW_FRAGMENT)
		return 0;
	return udp_endpoint(generation, flow->family == 4 ? address_mapped(flow->key[0] >> 32)
							  : (struct address){flow->key[2], flow->key[3]}) != NULL;
}

/* What must hold before rules are asked. The line of their chain, with the key filled; 0: `verdict` is complete. */
RARE int steering_prepare(const struct segue_port *port, u32 generation, const struct flow *flow,
			  struct flow_verdict *verdict)
{
	const struct segue_config *config_ = config_get(generation);
	struct segue_classifier_key *key;
	u32 zero = 0;

	if (!port || !flow || !verdict || !config_)
		return 0;
	verdict->counter = SEGUE_NONE;
	verdict->list = SEGUE_NONE;
	if (port->config_flags & (SEGUE_CONFIG_UDP_IPV6 | SEGUE_CONFIG_UDP_IPV4) &&
	    flow_to_udp_endpoint(generation, flow)) {
		verdict->outcome = SEGUE_OUTCOME_drop_labels_from_outside;
		return 0;
	}
	verdict->outcome = flow_addresses(port, flow);
	if (verdict->outcome)
		return 0;
	if (flow->family == 6 &&
	    in_prefixes(config_->sid_blocks, config_->sid_blocks_count, (struct address){flow->key[2], flow->key[3]})) {
		verdict->outcome = SEGUE_OUTCOME_drop_sid_from_outside;
		return 0;
	}
	if (flow->family == 6 && in_infrastructure(config_, (struct address){flow->key[2], flow->key[3]})) {
		verdict->outcome = SEGUE_OUTCOME_drop_infrastructure_from_outside;
		return 0;
	}
	verdict->outcome = SEGUE_OUTCOME_passed_not_for_segue;
	key = bpf_map_lookup_elem(&steering_keys, &zero);
	if (!key)
		return 0;
	steering_key_fill(port, flow, key);
	return config_->steering;
}

/* What the rule at `line` says. */
RARE int steering_obey(u32 line, u32 hash, struct flow_verdict *verdict)
{
	const struct segue_classifier_rule *rule = steering_rule(line);
	const struct segue_policy *policy;
	u32 index;

	if (!rule || !verdict)
		return 0;
	verdict->counter = rule->detail;
	if (rule->action == SEGUE_ACTION_DROP) {
		verdict->outcome = SEGUE_OUTCOME_drop_steering_rule;
	} else if (rule->action == SEGUE_ACTION_POLICY) {
		index = rule->argument;
		policy = bpf_map_lookup_elem(&policies, &index);
		verdict->outcome = SEGUE_OUTCOME_drop_policy_invalid;
		if (policy && policy->lists) {
			verdict->outcome = 0;
			verdict->list = policy->list[policy->bucket[hash & (SEGUE_POLICY_BUCKETS - 1)] & 15];
		}
	}
	return 0;
}

/* The first rule that holds decides. Inlined, because the walk takes nearly all the stack that there is. */
INLINE void steering_decide(const struct packet *packet, const struct flow *flow, struct flow_verdict *verdict)
{
	u32 chain = steering_prepare(packet->port, packet->generation, flow, verdict), zero = 0, line;
	const struct segue_classifier_key *key;

	if (!chain)
		return;
	key = bpf_map_lookup_elem(&steering_keys, &zero);
	if (!key)
		return;
	line = steering_find(chain, key);
	if (line)
		steering_obey(line, flow->hash, verdict);
}

/* The entry of the flows with this hash, of which the low bits choose among lists. `row`: room for a key. */
INLINE struct flow_verdict *steering_slot(const u32 *hash, u32 *row)
{
	struct flow_verdict *verdict;
	struct flow_row *entries;

	*row = *hash / (256 * SEGUE_FLOW_ROW) & (flow_rows - 1);
	entries = bpf_map_lookup_elem(&flows, row);
	if (unlikely(!entries))
		return NULL;
	verdict = &entries->verdict[*hash / 256 % SEGUE_FLOW_ROW];
	opaque(verdict); /* else it is computed anew for each field */
	return verdict;
}

INLINE const struct flow_verdict *steering_verdict(const struct packet *packet, const struct flow *flow)
{
	u32 index, marks = steering_marks(packet->port, flow);
	struct flow_verdict *verdict = steering_slot(&flow->hash, &index);
	const struct segue_segment_list *list;
	const struct adjacency *adjacency;

	if (!verdict)
		return NULL;
	/* Word by word, for which the stack suffices. */
	if (likely(verdict->key[0] == flow->key[0] && verdict->key[1] == flow->key[1] &&
		   verdict->key[2] == flow->key[2] && verdict->key[3] == flow->key[3] &&
		   verdict->key[4] == flow->key[4] && verdict->ingress == packet->port->ifindex &&
		   verdict->marks == marks &&
		   adjacency_current(&verdict->adjacency, packet->epoch, (u32)bpf_jiffies64())))
		return verdict;
	steering_decide(packet, flow, verdict);
	for (int i = 0; i < 5; i++)
		verdict->key[i] = flow->key[i];
	verdict->ingress = packet->port->ifindex;
	verdict->marks = marks;
	index = verdict->list;
	list = bpf_map_lookup_elem(&segment_lists, &index);
	adjacency = !verdict->outcome && list ? list_adjacency(packet, list, flow->hash) : NULL;
	if (adjacency)
		verdict->adjacency = *adjacency;
	else
		adjacency_none(&verdict->adjacency, packet->epoch);
	return verdict;
}

#endif
