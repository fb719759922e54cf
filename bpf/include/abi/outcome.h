/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef SEGUE_ABI_OUTCOME_H
#define SEGUE_ABI_OUTCOME_H

enum segue_outcome {
#define OUTCOME(number, name, kind, text) SEGUE_OUTCOME_##name = number,
#include "outcomes.def"
#undef OUTCOME
};

#define SEGUE_OUTCOME_DROPPED 16 /* lower numbers are forwarded or passed */

#endif
