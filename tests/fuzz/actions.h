/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients of the house do, decided by an input: each action is a byte for what, a byte for
 * which client, then what it needs. The numbers are the format of the corpora: append, never
 * renumber. From ACTION_COLL_FIRST on they are those of actions_coll.h.
 */
#pragma once

#include "tests/fuzz/house.h"
#include "tests/fuzz/peer.h"

enum action {
	ACTION_CONNECT,
	ACTION_HELLO,       /* u8: major */
	ACTION_ATTACH,      /* u8 place, u8 configuration, u8 resident: see take_attach() */
	ACTION_MODEL,       /* u8 units (low 2 bits), u8 sizes */
	ACTION_ENTRY,       /* u8 kind, u8 dimensions, u64 each, text */
	ACTION_MATERIALIZE, /* u8: counts that lie, a tail: see actions_model.h */
	ACTION_WRITE_BEGIN, /* u8 unit */
	ACTION_WRITE_END,   /* u8 unit, u8 root */
	ACTION_BLOB_GET,
	ACTION_DETACH,
	ACTION_DESTROY,
	ACTION_ADMIN,   /* text */
	ACTION_MESSAGE, /* u8 type, u8 how, bytes: a header that is right, a payload that is not */
	ACTION_PACKET,  /* u8 descriptors, text of bytes */
	ACTION_CLOSE,
	ACTION_TURN,   /* u8 turns */
	ACTION_SUBMIT, /* u8 opcode, u8 unit, u8 argument: a slot that is right */
	ACTION_SLOT,   /* 64 bytes */
	ACTION_WORD,   /* u8 which, u32: an index or a flag */
	ACTION_REAP,
	ACTION_OPTIONS, /* u8 how, doubles: see take_options() */
	ACTION_SETTLE,
	ACTION_FILL,     /* u8: all gradients and the copy of a unit */
	ACTION_SHUTDOWN, /* u8 which way */
	ACTION_DOORBELL, /* u8: ring, fill, or empty it */
	ACTION_STEP,     /* u8 how: a whole step of all clients */
	ACTION_VALUES,   /* first values of every unit, committed */
	ACTION_WILD,     /* u8 where, u64: into the uplink, anywhere */
	_ACTION_COUNT,
};

/* Actions [@first, _ACTION_COUNT) until the input ends. */
void actions_run(struct peer *peers, struct fuzz_input *input, enum action first);
/* Connected, attached, materialised with first values: @place and @config as ACTION_ATTACH. */
void actions_begin(struct peer *peers, uint32_t world, uint8_t config, uint8_t resident,
                   uint8_t model);
