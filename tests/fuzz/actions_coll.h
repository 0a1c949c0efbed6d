/* SPDX-License-Identifier: Apache-2.0 */
/* What clients of the house do with collectives. As in actions.h: append, never renumber. */
#pragma once

#include "tests/fuzz/peer.h"

/* First bytes of an action from here on are these. */
#define ACTION_COLL_FIRST 240u

/* @what: counted from ACTION_COLL_FIRST. */
void action_coll(struct peer *peers, struct peer *peer, struct fuzz_input *input, uint8_t what);
