/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `ask`: the seven questions that only a GPU answers. The numbers are those of the design:
 *   1. making, exporting and sharing chunks     5. copies from kinds of memory, beside a kernel
 *   2. registration of read-only memory         6. two ranks of NCCL on one GPU
 *   3. the life of chunks                       7. what hangs, fails or is killed
 *   4. times of each call on memory
 */
#include "tests/gpu/device/ask.h"

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/commands.h"
#include "tests/gpu/device/facts.h"
#include "tests/gpu/device/trial.h"

static void ask_fact(struct trial *trial, const char *question, fact_fn fact)
{
	struct zi_text found = { "" };

	if (fact(trial, &found))
		trial_row(trial, TRIAL_ANSWERED, question, NULL, "yes: %s", found.chars);
	else
		trial_row(trial, TRIAL_FAILED, question, NULL, "no: %s", found.chars);
}

/* What the device says of itself. */
static void print_device(const struct trial *trial)
{
	const struct zi_gpu_device *device = &trial->device;

	trial_say(trial,
	          "%s, PCI %s, %u multiprocessors, %u copy engines, NUMA node %d, granularity %s",
	          zi_format_bytes(device->bytes).chars, device->pci, device->multiprocessor_count,
	          device->copy_engine_count, device->host_numa,
	          zi_format_bytes(device->granularity_bytes).chars);
	trial_say(trial,
	          "VMM %d, descriptors %d, read-only registration %d, host pointers %d, MIG %d",
	          device->has_vmm, device->has_posix_fds, device->has_read_only_register,
	          device->has_host_pointers, device->is_mig);
}

void ask_run(struct trial *trial)
{
	print_device(trial);
	ask_fact(trial, "1. chunks of a process without a context, in two maps on two streams",
	         fact_chunks_are_shared);
	ask_fact(trial, "2. registration of memory that is mapped read-only",
	         fact_read_only_memory_registers);
	ask_fact(trial, "3. chunks after their maker was killed", fact_chunks_outlive_their_maker);
	ask_fact(trial, "3. memory that is made anew is zero", fact_new_chunks_are_zero);
	ask_memory_times(trial);
	ask_register_times(trial);
	ask_copies(trial);
	ask_nccl(trial);
	ask_ends(trial);
}
