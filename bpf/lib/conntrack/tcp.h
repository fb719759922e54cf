/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * TCP connections: their states (RFC 9293 section 3.3.2) and the windows of their sequence numbers, after Guido van
 * Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2001), as netfilter does it: crates/testkit/tests/
 * netfilter/tcp.rs sends the same segments through both.
 *
 * Four bounds, of a segment from S to R whose first octet is `sequence` and whose last one is before `end`:
 *   sequence <= limit of S                  R has offered room for it,
 *   end > end of S - window of R            and it is no older than what R could still be waiting for;
 *   acknowledged octet <= end of R          R has sent what it acknowledges,
 *   acknowledged octet > end of R - window  and has not forgotten it long ago.
 */
#ifndef SEGUE_CONNTRACK_TCP_H
#define SEGUE_CONNTRACK_TCP_H

#include "lib/base/types.h"
#include "lib/firewall/reset.h"
#include "lib/conntrack/packet.h"
#include "lib/conntrack/segment.h"
#include "lib/conntrack/table.h"

#define TCP_OLDEST_ACK 66000  /* an ACK may be so old, however small the window */
#define TCP_REPEATS_MAX 3     /* then nobody listens any more */
#define TCP_IDLE SECONDS(300) /* of a connection on which something is not acknowledged, or repeated */

/* What becomes of a segment of a connection, and of its entry. */
enum tcp_verdict {
	TCP_VERDICT_KNOWN,
	TCP_VERDICT_INVALID,
	TCP_VERDICT_AGAIN,  /* the entry is over: this segment begins another connection */
	TCP_VERDICT_FORGET, /* the segment belongs to the connection, and is its last */
};

/* The state after a packet from the side that began (`original`) or from the other. INVALID: it fits nowhere. */
INLINE u32 tcp_next(u32 state, u32 event, u32 original)
{
	switch (event) {
	case TCP_EVENT_RST:
		return state == SEGUE_TCP_NONE ? SEGUE_TCP_INVALID : SEGUE_TCP_CLOSE;
	case TCP_EVENT_SYN:
		if (original) {
			if (state == SEGUE_TCP_NONE || state == SEGUE_TCP_SYN_SENT || state >= SEGUE_TCP_TIME_WAIT)
				return state == SEGUE_TCP_SYN_SENT2 ? state : SEGUE_TCP_SYN_SENT;
			return SEGUE_TCP_IGNORED; /* repeated, or the client knows of no connection any more */
		}
		if (state == SEGUE_TCP_SYN_SENT || state == SEGUE_TCP_SYN_SENT2)
			return SEGUE_TCP_SYN_SENT2; /* both sides begin at once */
		return state == SEGUE_TCP_TIME_WAIT ? SEGUE_TCP_SYN_SENT : SEGUE_TCP_INVALID;
	case TCP_EVENT_SYN_ACK:
		if (state == SEGUE_TCP_SYN_SENT2)
			return SEGUE_TCP_SYN_RECV;
		if (original)
			return state == SEGUE_TCP_SYN_RECV ? state : SEGUE_TCP_INVALID;
		if (state == SEGUE_TCP_NONE)
			return SEGUE_TCP_INVALID;
		return state == SEGUE_TCP_SYN_SENT ? SEGUE_TCP_SYN_RECV : SEGUE_TCP_IGNORED;
	case TCP_EVENT_FIN:
		if (state == SEGUE_TCP_SYN_RECV || state == SEGUE_TCP_ESTABLISHED)
			return SEGUE_TCP_FIN_WAIT;
		if (state == SEGUE_TCP_FIN_WAIT || state == SEGUE_TCP_CLOSE_WAIT || state == SEGUE_TCP_LAST_ACK)
			return SEGUE_TCP_LAST_ACK;
		return state == SEGUE_TCP_TIME_WAIT || state == SEGUE_TCP_CLOSE ? state : SEGUE_TCP_INVALID;
	case TCP_EVENT_ACK:
		switch (state) {
		case SEGUE_TCP_NONE: /* picked up in the middle */
			return original ? SEGUE_TCP_ESTABLISHED : SEGUE_TCP_INVALID;
		case SEGUE_TCP_SYN_SENT:
		case SEGUE_TCP_SYN_SENT2:
			return original ? SEGUE_TCP_INVALID : SEGUE_TCP_IGNORED;
		case SEGUE_TCP_SYN_RECV:
			return original ? SEGUE_TCP_ESTABLISHED : state;
		case SEGUE_TCP_FIN_WAIT:
			return SEGUE_TCP_CLOSE_WAIT;
		case SEGUE_TCP_LAST_ACK:
			return SEGUE_TCP_TIME_WAIT;
		}
		return state;
	}
	return SEGUE_TCP_INVALID;
}

INLINE u64 tcp_timeout(u32 state)
{
	switch (state) {
	case SEGUE_TCP_SYN_RECV:
		return SECONDS(60);
	case SEGUE_TCP_ESTABLISHED:
		return SECONDS(5 * 86400);
	case SEGUE_TCP_CLOSE_WAIT:
		return SECONDS(60);
	case SEGUE_TCP_LAST_ACK:
		return SECONDS(30);
	case SEGUE_TCP_CLOSE:
		return SECONDS(10);
	}
	return SECONDS(120); /* SYN_SENT, SYN_SENT2, FIN_WAIT, TIME_WAIT */
}

INLINE void tcp_side_options(struct segue_connection *entry, const struct tcp_segment *segment, u32 from)
{
	if (!segment->options)
		return;
	entry->scale[from & 1] = segment->scale;
	entry->side_flags[from & 1] = (entry->side_flags[from & 1] & SEGUE_SIDE_LIBERAL) | segment->side_flags;
}

/* The first segment of a connection. */
INLINE void tcp_begin(struct segue_connection *entry, const struct tcp_segment *segment)
{
	struct segue_tcp_side *side = &entry->side[0];

	side->end = segment->end;
	side->limit = segment->end;
	side->window = segment->window ? segment->window : 1;
	if (segment->event == TCP_EVENT_SYN) {
		tcp_side_options(entry, segment, 0);
		return;
	}
	side->limit += side->window;
	entry->side_flags[0] = SEGUE_SIDE_SACK | SEGUE_SIDE_LIBERAL;
	entry->side_flags[1] = SEGUE_SIDE_SACK | SEGUE_SIDE_LIBERAL;
}

/* What a SYN says of the side that sends it. */
INLINE void tcp_side_begin(struct segue_connection *entry, const struct tcp_segment *segment, u32 from)
{
	struct segue_tcp_side *side = &entry->side[from & 1];

	side->end = segment->end;
	side->limit = segment->end;
	side->window = segment->window ? segment->window : 1;
	tcp_side_options(entry, segment, from);
	/* RFC 7323 section 2.2: both sides scale, or neither. */
	if (from && !(entry->side_flags[0] & entry->side_flags[1] & SEGUE_SIDE_SCALING)) {
		entry->scale[0] = 0;
		entry->scale[1] = 0;
	}
}

/* What the first segment from one side says, if it is no SYN. */
INLINE void tcp_side_join(struct segue_connection *entry, const struct tcp_segment *segment, u32 from, u32 selective)
{
	struct segue_tcp_side *side = &entry->side[from & 1], *other = &entry->side[!from];
	u32 window = segment->window << (entry->scale[from & 1] & 15);

	side->end = segment->end;
	side->window = window ? window : 1;
	side->limit = side->end + side->window;
	if (!other->window) {
		other->end = selective;
		other->limit = selective;
	} else if (selective == other->end + 1) {
		other->end++; /* it answers a keepalive, which did not count */
	}
}

enum tcp_place {
	TCP_PLACE_INSIDE,
	TCP_PLACE_IGNORED, /* no harm in it, but it says nothing: old data, an old ACK, more than there is room for */
	TCP_PLACE_OUTSIDE,
};

/*
 * The segment, of side `from`, against the windows: where it lies, and what it changes if inside. By itself, because
 * the verifier would follow it for each way there is to it. Flags and window are read again rather than kept: of the
 * stack there is just enough.
 */
RARE u32 tcp_window(struct segue_connection *entry, const struct tcp_segment *segment, u32 from, u32 liberal)
{
	u32 sequence, end, acknowledgment, selective, window, most, oldest, recent, place = TCP_PLACE_INSIDE;
	struct segue_tcp_side *sender, *receiver;

	if (!entry || !segment)
		return TCP_PLACE_OUTSIDE;
	from &= 1;
	sender = &entry->side[from];
	receiver = &entry->side[!from];
	sequence = segment->sequence;
	end = segment->end;
	acknowledgment = segment->acknowledgment;
	selective = entry->side_flags[!from] & SEGUE_SIDE_SACK ? segment->selective : acknowledgment;
	if (!sender->window) {
		if (segment->flags & TCP_SYN) {
			tcp_side_begin(entry, segment, from);
			if (!(segment->flags & TCP_ACK))
				return TCP_PLACE_INSIDE;
		} else {
			tcp_side_join(entry, segment, from, selective);
		}
	} else if (segment->flags & TCP_SYN && tcp_before(sender->end, end) &&
		   (entry->state == SEGUE_TCP_SYN_SENT || entry->state == SEGUE_TCP_SYN_RECV)) {
		/* RFC 9293 section 3.5: it starts anew with a higher number. */
		tcp_side_begin(entry, segment, from);
		if (from && !(segment->flags & TCP_ACK))
			return TCP_PLACE_INSIDE;
	}
	/* A segment without ACK acknowledges nothing new; neither does a RST of those that set ACK, and 0. */
	if (!(segment->flags & TCP_ACK) || (segment->flags & TCP_RST && !acknowledgment))
		acknowledgment = selective = receiver->end;
	/* A RST that answers a SYN may have no number. */
	if (segment->flags & TCP_RST && !sequence && entry->state == SEGUE_TCP_SYN_SENT)
		sequence = end = sender->end;
	/* How much of it lies in later fragments is not known: all that there is room for, at most. */
	if (unlikely(segment->incomplete) && tcp_before(end, sender->limit))
		end = sender->limit;
	oldest = receiver->end - (sender->window > TCP_OLDEST_ACK ? sender->window : TCP_OLDEST_ACK) - 1;
	recent = tcp_before(sender->end - receiver->window - 1, end);
	if (!tcp_before(sequence, sender->limit + 1)) {
		place = TCP_PLACE_OUTSIDE;
		if (receiver->window && recent && tcp_before(oldest, selective) &&
		    end - sender->limit + 1 <= receiver->window && tcp_before(selective, receiver->end + 1)) {
			/* A little too much. If the rules let it pass, and it is acknowledged, that is in order. */
			sender->end = end;
			entry->side_flags[from & 1] |= SEGUE_SIDE_UNACKNOWLEDGED;
			place = TCP_PLACE_IGNORED;
		}
	} else if (!tcp_before(selective, receiver->end + 1)) {
		place = TCP_PLACE_OUTSIDE;
	} else if ((receiver->window && !recent) || !tcp_before(oldest, selective)) {
		place = TCP_PLACE_IGNORED;
	}
	if (place != TCP_PLACE_INSIDE)
		return liberal || entry->side_flags[from & 1] & SEGUE_SIDE_LIBERAL ? TCP_PLACE_INSIDE : place;

	window = segment->window;
	if (!(segment->flags & TCP_SYN))
		window <<= entry->scale[from & 1] & 15;
	most = window + (selective - acknowledgment);
	if (sender->window < most)
		sender->window = most;
	if (tcp_before(sender->end, end)) {
		sender->end = end;
		entry->side_flags[from & 1] |= SEGUE_SIDE_UNACKNOWLEDGED;
	}
	if (segment->flags & TCP_ACK && (!(entry->side_flags[from & 1] & SEGUE_SIDE_ACKNOWLEDGES) ||
					 tcp_before(sender->acknowledged, acknowledgment))) {
		sender->acknowledged = acknowledgment;
		entry->side_flags[from & 1] |= SEGUE_SIDE_ACKNOWLEDGES;
	}
	if (receiver->window && tcp_before(sender->limit, end))
		receiver->window += end - sender->limit;
	if (tcp_before(receiver->limit - 1, selective + window))
		receiver->limit = selective + window + !window; /* a zero window is probed by one octet */
	if (acknowledgment == receiver->end)
		entry->side_flags[!from] &= ~SEGUE_SIDE_UNACKNOWLEDGED;
	if (segment->event != TCP_EVENT_ACK)
		return TCP_PLACE_INSIDE;
	if (entry->last_side == from && entry->last_sequence == sequence &&
	    entry->last_acknowledgment == acknowledgment && entry->last_end == end &&
	    entry->last_window == segment->window) {
		entry->repeats++;
		return TCP_PLACE_INSIDE;
	}
	entry->last_side = from;
	entry->last_sequence = sequence;
	entry->last_acknowledgment = acknowledgment;
	entry->last_end = end;
	entry->last_window = segment->window;
	entry->repeats = 0;
	return TCP_PLACE_INSIDE;
}

/*
 * A segment that is let through without believing it: the two sides may know better. What they answer tells.
 */
INLINE void tcp_ignore(struct segue_connection *entry, const struct tcp_segment *segment, u32 from)
{
	entry->last_event = segment->event;
	entry->last_side = from;
	entry->last_sequence = segment->sequence;
	entry->last_end = segment->end;
	entry->last_window = segment->window;
	if (segment->event == TCP_EVENT_SYN && !from) {
		entry->last_flags = segment->side_flags;
		entry->last_scale = segment->scale;
		if (entry->state == SEGUE_TCP_LAST_ACK)
			entry->last_flags |= SEGUE_LAST_CHALLENGED;
	}
	if (entry->state == SEGUE_TCP_SYN_SENT && segment->event == TCP_EVENT_ACK && from)
		entry->last_acknowledgment = segment->acknowledgment;
}

/* A SYN/ACK that acknowledges a SYN which was ignored: the connection is what these two say. */
INLINE void tcp_resume(struct segue_connection *entry, u32 from)
{
	struct segue_tcp_side *other = &entry->side[!from], *side = &entry->side[from & 1];

	other->end = entry->last_end;
	other->limit = entry->last_end;
	other->window = entry->last_window ? entry->last_window : 1;
	entry->last_flags &= ~SEGUE_LAST_CHALLENGED;
	entry->scale[!from] = entry->last_scale;
	entry->side_flags[!from] = entry->last_flags;
	side->end = 0;
	side->limit = 0;
	side->window = 0;
	side->acknowledged = 0;
	entry->scale[from & 1] = 0;
	entry->side_flags[from & 1] &= SEGUE_SIDE_LIBERAL;
}

enum tcp_reset {
	TCP_RESET_WINDOW, /* the windows decide whether it closes the connection */
	TCP_RESET_KEEPS,  /* likewise, but it does not close it: it may be a guess, and is answered if it is (RFC 5961)
			   */
	TCP_RESET_CLOSES, /* whatever the windows say */
	TCP_RESET_INVALID,
};

/* A RST of side `from` to a known connection. */
INLINE u32 tcp_reset(const struct segue_connection *entry, const struct tcp_segment *segment, u32 from)
{
	u32 state = entry->state, sequence = segment->sequence, established;

	established = state == SEGUE_TCP_ESTABLISHED && entry->flags & SEGUE_CONNECTION_ASSURED;
	/* The end is near anyway, or the ports are in use again: what is known is of no use. */
	if (state >= SEGUE_TCP_FIN_WAIT && state <= SEGUE_TCP_CLOSE)
		return TCP_RESET_CLOSES;
	if (entry->side_flags[!from] & SEGUE_SIDE_ACKNOWLEDGES && entry->last_event != TCP_EVENT_SYN) {
		u32 expected = entry->side[!from].acknowledged;

		if (!sequence && !established) /* the answer to a SYN that was ignored */
			return TCP_RESET_WINDOW;
		if (tcp_before(sequence, expected))
			return TCP_RESET_INVALID;
		if (!established || sequence == expected)
			return TCP_RESET_WINDOW;
		/* Data, and at once the RST behind it. */
		if (entry->last_event == TCP_EVENT_ACK && entry->last_side == from && sequence == entry->last_end)
			return TCP_RESET_WINDOW;
		return TCP_RESET_KEEPS;
	}
	/* It answers a SYN, or an ACK to half a connection, that was ignored. */
	if (((entry->flags & SEGUE_CONNECTION_REPLIED && entry->last_event == TCP_EVENT_SYN) ||
	     (!(entry->flags & SEGUE_CONNECTION_ASSURED) && entry->last_event == TCP_EVENT_ACK)) &&
	    entry->last_side != from && segment->acknowledgment == entry->last_end)
		return TCP_RESET_CLOSES;
	/* It answers an ACK that answered a SYN to a connection which the server still had. */
	if (state == SEGUE_TCP_SYN_SENT && entry->last_event == TCP_EVENT_ACK && entry->last_side &&
	    sequence == entry->last_acknowledgment)
		return TCP_RESET_CLOSES;
	return TCP_RESET_WINDOW;
}

/* A FIN or RST outside of the window, and one from the other side: the two know something that is not known here. */
INLINE void tcp_outside(struct segue_connection *entry, const struct tcp_segment *segment, u64 now, u32 from)
{
	if (!(entry->flags & SEGUE_CONNECTION_ASSURED) ||
	    (segment->event != TCP_EVENT_FIN && segment->event != TCP_EVENT_RST))
		return;
	if (entry->last_side != from && (entry->last_event == TCP_EVENT_FIN || entry->last_event == TCP_EVENT_RST)) {
		if (entry->expires > now + TCP_IDLE)
			entry->expires = now + TCP_IDLE;
		return;
	}
	entry->last_event = segment->event;
	entry->last_side = from;
}

/* How long the connection lives after a segment that brought it to `state`. */
INLINE u64 tcp_lifetime(const struct segue_connection *entry, u32 event, u32 state)
{
	u64 timeout = tcp_timeout(state);

	if (entry->repeats >= TCP_REPEATS_MAX && timeout > TCP_IDLE)
		return TCP_IDLE;
	if (event == TCP_EVENT_RST)
		return tcp_timeout(SEGUE_TCP_CLOSE);
	if (timeout > TCP_IDLE &&
	    ((entry->side_flags[0] | entry->side_flags[1]) & SEGUE_SIDE_UNACKNOWLEDGED || !entry->last_window))
		return TCP_IDLE;
	return timeout;
}

/*
 * The segment in `track`, of side `from` (0 began), changes the connection. Of a connection in state NONE it is the
 * first. enum tcp_verdict.
 */
RARE u32 conntrack_tcp(const struct conntrack *track, struct segue_connection *entry, u64 now, u32 from, u32 liberal)
{
	const struct tcp_segment *segment;
	u32 old, next, event, place, closes = 0;
	u64 timeout;

	if (!track || !entry)
		return TCP_VERDICT_INVALID;
	from &= 1;
	segment = &track->tcp;
	event = segment->event;
	old = entry->state;
	next = tcp_next(old, event, !from);
	if (next == SEGUE_TCP_INVALID)
		return TCP_VERDICT_INVALID;
	if (old == SEGUE_TCP_NONE)
		tcp_begin(entry, segment);
	if (next == SEGUE_TCP_SYN_SENT && (old == SEGUE_TCP_TIME_WAIT || old == SEGUE_TCP_CLOSE)) {
		if ((entry->side_flags[0] | entry->side_flags[1]) & SEGUE_SIDE_CLOSES ||
		    (entry->last_side == from && entry->last_event == TCP_EVENT_RST))
			return TCP_VERDICT_AGAIN;
		next = SEGUE_TCP_IGNORED;
	}
	if (next == SEGUE_TCP_IGNORED) {
		if (event != TCP_EVENT_SYN_ACK || entry->last_event != TCP_EVENT_SYN || entry->last_side == from ||
		    segment->acknowledgment != entry->last_end) {
			tcp_ignore(entry, segment, from);
			return TCP_VERDICT_KNOWN;
		}
		tcp_resume(entry, from);
		old = SEGUE_TCP_SYN_SENT;
		next = SEGUE_TCP_SYN_RECV;
	} else if (next == SEGUE_TCP_TIME_WAIT) {
		/* RFC 5961: the answer to a SYN is no acknowledgment of the FIN. */
		if (old == SEGUE_TCP_LAST_ACK && event == TCP_EVENT_ACK && entry->last_side != from &&
		    entry->last_event == TCP_EVENT_SYN && entry->last_flags & SEGUE_LAST_CHALLENGED) {
			entry->last_flags &= ~SEGUE_LAST_CHALLENGED;
			return TCP_VERDICT_KNOWN;
		}
	} else if (next == SEGUE_TCP_SYN_SENT2) {
		entry->last_flags |= SEGUE_LAST_SIMULTANEOUS;
	} else if (next == SEGUE_TCP_SYN_RECV) {
		if (from && event == TCP_EVENT_ACK && entry->last_flags & SEGUE_LAST_SIMULTANEOUS)
			next = SEGUE_TCP_ESTABLISHED;
	} else if (event == TCP_EVENT_RST) {
		u32 reset = tcp_reset(entry, segment, from);

		if (reset == TCP_RESET_INVALID)
			return TCP_VERDICT_INVALID;
		if (reset == TCP_RESET_KEEPS)
			next = old;
		closes = reset == TCP_RESET_CLOSES;
	}
	if (!closes) {
		place = tcp_window(entry, segment, from, liberal);
		if (place == TCP_PLACE_IGNORED)
			return TCP_VERDICT_KNOWN;
		if (place == TCP_PLACE_OUTSIDE) {
			tcp_outside(entry, segment, now, from);
			return TCP_VERDICT_INVALID;
		}
	}
	entry->last_event = event;
	entry->last_side = from;
	entry->state = next;
	if (old != next && next == SEGUE_TCP_FIN_WAIT)
		entry->side_flags[from] |= SEGUE_SIDE_CLOSES;
	timeout = tcp_lifetime(entry, event, next);
	if (!(entry->flags & SEGUE_CONNECTION_REPLIED)) {
		if (event == TCP_EVENT_RST)
			return TCP_VERDICT_FORGET;
		/* SYNs alone keep nothing alive. */
		if (event == TCP_EVENT_SYN && old == SEGUE_TCP_SYN_SENT)
			return TCP_VERDICT_KNOWN;
		if (next == SEGUE_TCP_ESTABLISHED && timeout > TCP_IDLE)
			timeout = TCP_IDLE;
	} else if (next == SEGUE_TCP_ESTABLISHED && (old == SEGUE_TCP_SYN_RECV || old == SEGUE_TCP_ESTABLISHED)) {
		entry->flags |= SEGUE_CONNECTION_ASSURED;
	}
	entry->expires = now + timeout;
	return TCP_VERDICT_KNOWN;
}

#endif
