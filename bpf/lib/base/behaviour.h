/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What behaviours have in common, by name: their numbers are in no order that means anything. */
#ifndef SEGUE_BASE_BEHAVIOUR_H
#define SEGUE_BASE_BEHAVIOUR_H

#include "lib/base/types.h"

/* Goes on to the next segment, and nothing else (RFC 8986 sections 4.1 to 4.3). */
INLINE int behaviour_only_advances(u32 behaviour)
{
	switch (behaviour) {
	case SEGUE_END:
	case SEGUE_END_X:
	case SEGUE_END_T:
		return 1;
	}
	return 0;
}

/* Takes the inner packet out for good: such a SID is the last one (RFC 8986 sections 4.4 to 4.9; End.DTM). */
INLINE int behaviour_decapsulates(u32 behaviour)
{
	switch (behaviour) {
	case SEGUE_END_DX2:
	case SEGUE_END_DX4:
	case SEGUE_END_DX6:
	case SEGUE_END_DT4:
	case SEGUE_END_DT6:
	case SEGUE_END_DT46:
	case SEGUE_END_DTM:
		return 1;
	}
	return 0;
}

/* Leads to a function, and on to the next segment: without one there is nothing to go back to (draft section 6.2). */
INLINE int behaviour_needs_next(u32 behaviour)
{
	switch (behaviour) {
	case SEGUE_END_AD:
	case SEGUE_END_AM:
	case SEGUE_END_AN:
	case SEGUE_END_AN_NF:
		return 1;
	}
	return 0;
}

#endif
