/* SPDX-License-Identifier: Apache-2.0 */
/* See actions_coll.h. */
#include "tests/fuzz/actions_coll.h"

#include <errno.h>

#include "common/wire/board.h"
#include "tests/fuzz/house.h"

static void send_open(struct peer *peer, uint8_t how)
{
	struct zi_coll_open message = { .arena_bytes = (uint64_t)(how & 7) << 18,
		                        .timeout_ms = how & 8 ? 1 : 0 };

	if (how & 128)
		message.arena_bytes = UINT64_MAX >> (how & 31);
	if (how & 64) {
		message.error = (how & 32 ? 1 : -1) * (how & 31);
		message.reason[how % ZI_REASON_BYTES] = (char)how;
	}
	peer_send(peer, &message, ZI_MESSAGE_COLL_OPEN, sizeof(message));
}

static void send_group(struct peer *peer, uint8_t mask, uint8_t how)
{
	struct zi_coll_group message = { .timeout_ms = how & 8 ? 1 : 0 };

	if (how & 16)
		message.name[0] = how & 32 ? 'g' : '\x1b';
	message.members[how & 128 ? how % ZI_GROUP_MASK_WORDS : 0] = mask;
	if (how & 64) {
		message.error = (how & 32 ? 1 : -1) * (how & 31);
		message.reason[0] = (char)mask;
	}
	peer_send(peer, &message, ZI_MESSAGE_COLL_GROUP, sizeof(message));
}

static void take_fail(struct peer *peer, struct fuzz_input *input)
{
	static const int errors[] = { -ETIMEDOUT, -EINVAL, -EPIPE, 0, 1, INT32_MIN, -EFAULT, -1 };
	struct zi_coll_fail message = { .timeout_ms = 100 };

	message.group = fuzz_u8(input) % 16;
	message.sequence = fuzz_u8(input) % 8;
	message.error = errors[fuzz_u8(input) % 8];
	message.culprit = fuzz_u8(input) % 8;
	message.root = fuzz_u8(input) % 8;
	message.operation = fuzz_u8(input);
	message.dtype = fuzz_u8(input);
	message.element_count = fuzz_u64(input);
	peer_send(peer, &message, ZI_MESSAGE_COLL_FAIL, sizeof(message));
}

static void take_abort(struct peer *peer, struct fuzz_input *input)
{
	struct zi_coll_abort message = { .group = fuzz_u8(input) % 16 };

	for (uint32_t i = 0; i < 16; i++)
		message.reason[i] = (char)fuzz_u8(input);
	peer_send(peer, &message, ZI_MESSAGE_COLL_ABORT, sizeof(message));
}

/* Anywhere on the newest board that it received. */
static void scribble(struct peer *peer, struct fuzz_input *input)
{
	uint64_t offset = fuzz_u32(input);
	uint64_t value = fuzz_u64(input);

	if (peer->board)
		memcpy(peer->board + offset % (peer->board_bytes / 8) * 8, &value, sizeof(value));
}

/* A call as a rank posts it; whose part of the board it is does not matter. */
static void post(struct peer *peer, struct fuzz_input *input)
{
	uint32_t member = fuzz_u8(input);
	uint32_t sequence = fuzz_u8(input) % 8;
	struct zi_board_post said = { .sequence = sequence };
	struct zi_board_member *members = (void *)peer->board;

	said.call.operation = fuzz_u8(input) % (_ZI_COLL_COUNT + 1);
	said.call.dtype = fuzz_u8(input) % (_ZI_DTYPE_COUNT + 1);
	said.call.reduce_op = fuzz_u8(input) % (_ZI_REDUCE_COUNT + 1);
	said.call.flags = fuzz_u8(input) & 1;
	said.call.root = fuzz_u8(input) % 8;
	said.call.element_count = (uint64_t)fuzz_u8(input) << fuzz_u8(input) % 57;
	if (!peer->board)
		return;
	member %= (uint32_t)(peer->board_bytes / sizeof(*members));
	members[member].posts[sequence % ZI_BOARD_SLOTS] = said;
	members[member].takes[said.call.root].sequence = said.call.reduce_op;
}

void action_coll(struct peer *peers, struct peer *peer, struct fuzz_input *input, uint8_t what)
{
	struct zi_coll_group_free message = { 0 };
	uint8_t how;

	switch (what % 8) {
	case 0:
		send_open(peer, fuzz_u8(input));
		return;
	case 1:
		how = fuzz_u8(input);
		send_group(peer, fuzz_u8(input), how);
		return;
	case 2:
		message.group = fuzz_u8(input) % 16;
		peer_send(peer, &message, ZI_MESSAGE_COLL_GROUP_FREE, sizeof(message));
		return;
	case 3:
		if (what & 8)
			take_abort(peer, input);
		else
			take_fail(peer, input);
		return;
	case 4:
		scribble(peer, input);
		return;
	case 5:
		post(peer, input);
		return;
	default:
		how = fuzz_u8(input);
		for (uint32_t i = 0; i < PEERS; i++)
			if (what % 8 == 6)
				send_open(&peers[i], 1);
			else
				send_group(&peers[i], how, 0);
		house_settle();
		for (uint32_t i = 0; i < PEERS; i++)
			peer_receive(&peers[i]);
		return;
	}
}
