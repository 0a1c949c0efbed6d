/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: tensors of two ranks whose job is materialised. The first bytes choose the job; then
 * each action opens a budget, asks for a tensor's next step, spoils the segment, or goes. The room
 * is a few pages, so that tensors drive each other out to the store and back.
 */
#include "tests/fuzz/actions.h"

#define RANKS       2u
#define ACTIONS_MAX 96u

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	house_build();
	return 0;
}

/* Of whole pages, of none, of more than there is. */
static void open_budget(struct peer *peer, uint8_t how)
{
	struct zi_tensor_open message = { .budget_bytes = (uint64_t)(how & 15) << 12 };

	if (how & 128)
		message.budget_bytes = UINT64_MAX >> (how & 63);
	peer_send(peer, &message, ZI_MESSAGE_TENSOR_OPEN, sizeof(message));
}

/* Few ids, so that they meet; lengths around pages and around the budget. */
static void submit(struct peer *peer, uint16_t opcode, struct fuzz_input *input)
{
	uint8_t how = fuzz_u8(input), bytes = fuzz_u8(input);
	struct zi_sqe sqe = { .user_data = peer->sq_tail, .opcode = opcode, .args = { how % 8u } };

	if (opcode == ZI_OP_CANCEL)
		sqe.args[0] = peer->sq_tail - 1u - how % 8u;
	else if (opcode <= ZI_OP_TENSOR_PUT)
		sqe.args[1] = how & 128 ? (uint64_t)bytes << (how & 63) : 1024u * (how % 8u + 1);
	peer_push(peer, &sqe);
}

static void spoil(struct peer *peer, struct fuzz_input *input)
{
	uint64_t offset = fuzz_u32(input);

	if (peer->window)
		memset(peer->window + offset % peer->window_bytes, fuzz_u8(input), 1);
}

static void take_answers(struct peer *peers, int settles)
{
	if (settles)
		house_settle();
	for (uint32_t i = 0; i < RANKS; i++) {
		peer_receive(&peers[i]);
		peer_reap(&peers[i]);
	}
}

static void act(struct peer *peers, struct fuzz_input *input)
{
	uint8_t what = fuzz_u8(input);
	struct peer *peer = &peers[what >> 7];

	switch (what % 16) {
	case 0:
		open_budget(peer, fuzz_u8(input));
		return;
	case 1:
	case 2:
		take_answers(peers, what % 16 == 1);
		return;
	case 3:
		spoil(peer, input);
		return;
	case 4:
		for (uint32_t i = fuzz_u8(input) % 8; i > 0; i--)
			house_turn();
		return;
	case 5:
		if ((what & 0x70) == 0x70)
			peer_close(peer);
		return;
	case 6:
		submit(peer, ZI_OP_CANCEL, input);
		return;
	default:
		submit(peer, ZI_OP_TENSOR_ALLOC + (what % 16 - 7) % 6, input);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	struct peer peers[PEERS];
	uint8_t config = fuzz_u8(&input) & 127u; /* No rank is there to be taken over from. */

	house_open();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_init(&peers[i]);
	actions_begin(peers, RANKS, config, 0, 0);
	for (uint32_t i = 0; i < RANKS; i++)
		open_budget(&peers[i], 1 + fuzz_u8(&input) % 8);
	take_answers(peers, 1);
	for (uint32_t i = 0; i < ACTIONS_MAX && input.byte_count; i++)
		act(peers, &input);
	take_answers(peers, 0);
	house_close();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	return 0;
}
