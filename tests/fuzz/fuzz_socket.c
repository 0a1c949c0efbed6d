/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzz target: what clients say on the socket, from connecting on, in any order and of any shape,
 * with rings beside it; the real handlers of both threads, a real job behind them. Whatever they
 * do, the daemon answers well-formed messages, everything ends, and nothing stays charged.
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

	house_open();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_init(&peers[i]);
	actions_run(peers, &input, ACTION_CONNECT);
	/* Half of the inputs end with clients that have closed, half with some that have not. */
	for (uint32_t i = 0; i < PEERS; i++) {
		peer_receive(&peers[i]);
		if (byte_count % 2)
			peer_close(&peers[i]);
	}
	house_close();
	for (uint32_t i = 0; i < PEERS; i++)
		peer_close(&peers[i]);
	return 0;
}
