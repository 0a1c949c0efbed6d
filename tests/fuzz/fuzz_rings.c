/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: ring slots, ring indices, options and doorbells of ranks whose job is materialised,
 * through poll and dispatch to a real small job. The first bytes choose the job: how many ranks,
 * configuration, resident share, model.
 */
#include "tests/fuzz/actions.h"

int LLVMFuzzerInitialize(int *argument_count, char ***arguments)
{
	(void)argument_count; /* libFuzzer's own. */
	(void)arguments;
	house_build();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
	struct fuzz_input input = { bytes, byte_count };
	struct peer peers[PEERS];
	uint32_t world = 1u + fuzz_u8(&input) % PEERS;
	uint8_t config = fuzz_u8(&input) & 127u; /* Nobody is there to be taken over from. */
	uint8_t resident = fuzz_u8(&input);

	house_open();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_init(&peers[i]);
	actions_begin(peers, world, config, resident, fuzz_u8(&input));
	actions_run(peers, &input, ACTION_CLOSE);
	for (uint32_t i = 0; i < PEERS; i++)
		peer_receive(&peers[i]);
	house_close();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	return 0;
}
