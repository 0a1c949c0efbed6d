/* SPDX-License-Identifier: Apache-2.0 */
/* Activations, and what is printed. Floor 2. */
#include "libclient/deepspeed/private.h"

#define A "activation_checkpointing."

/* As in the header. */
int deepspeed_rest(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;

	config->checkpoints_to_cpu = deepspeed_bool(reader, A "cpu_checkpointing");
	config->checkpoint_count = (uint32_t)deepspeed_count(reader, A "number_checkpoints");
	/* There the model asks for it; a file whose section changes nothing does not. */
	config->is_checkpointing = config->checkpoints_to_cpu || config->checkpoint_count ||
	                           deepspeed_bool(reader, A "partition_activations") ||
	                           deepspeed_bool(reader, A "contiguous_memory_optimization");
	config->print_interval = (uint32_t)deepspeed_count(reader, "steps_per_print");
	config->shows_times = deepspeed_bool(reader, "wall_clock_breakdown");
	return 0;
}
