/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Question 7: a kernel that never ends, an illegal address, SIGKILL amid copies: how long it takes
 * until the memory of that process is free, and what the copies of another process (this one)
 * notice meanwhile.
 */
#include <stdio.h>

#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "tests/gpu/device/ask.h"
#include "tests/gpu/device/kernels.h"
#include "tests/gpu/device/trial.h"
#include "tests/gpu/device/victim.h"

/* The driver's own use of memory moves by less. */
#define SLACK_BYTES  (64ull << 20)
#define PHASE_COPIES 20u
#define BACK_LIMIT_S 10.0

/* This process's copies: the slowest one since the last look. */
struct copies {
	void *memory;
	struct trial_span span;
	double slowest_s;
};

static void copy_once(struct trial *trial, struct copies *copies)
{
	double begin_s = trial_now_s();

	TRIAL_DO(trial, cuMemcpyHtoDAsync(copies->span.address, copies->memory, copies->span.bytes,
	                                  trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	copies->slowest_s = ZI_MAX(copies->slowest_s, trial_now_s() - begin_s);
}

/* Milliseconds of the slowest of some copies. */
static double copy_some(struct trial *trial, struct copies *copies)
{
	copies->slowest_s = 0;
	for (uint32_t i = 0; i < PHASE_COPIES && !trial->code; i++)
		copy_once(trial, copies);
	return copies->slowest_s * 1e3;
}

/* Copies until the memory is back. Return: seconds; negative: it did not come back. */
static double await_memory(struct trial *trial, struct copies *copies, uint64_t free_bytes)
{
	double begin_s = trial_now_s(), now_s = begin_s;

	copies->slowest_s = 0;
	do {
		copy_once(trial, copies);
		if (trial->code || now_s - begin_s > BACK_LIMIT_S)
			return -1;
		now_s = trial_now_s();
	} while (trial_free_bytes(trial) + SLACK_BYTES < free_bytes);
	return now_s - begin_s;
}

static void ask_end(struct trial *trial, enum victim_deed deed, const char *what,
                    struct copies *copies)
{
	const uint64_t free_bytes = trial_free_bytes(trial);
	double alone_ms, beside_ms, begin_s, ended_s, back_s;
	struct victim_news news = { 0 };
	struct zi_text text = { "" };
	struct peer victim;
	char told[200] = "";
	int r;

	alone_ms = copy_some(trial, copies);
	r = victim_start(trial, deed, &victim, &text);
	if (r) {
		trial_row(trial, TRIAL_FAILED, what, NULL, "%s", text.chars);
		return;
	}
	beside_ms = copy_some(trial, copies);
	if (deed == VICTIM_ILLEGAL && victim_hear(&victim, &news))
		(void)snprintf(told, sizeof(told), "it was not told; ");
	else if (deed == VICTIM_ILLEGAL)
		(void)snprintf(told, sizeof(told), "told after %s ms (%.110s); ",
		               trial_figure(trial, 1, (double)news.after_ns * 1e-6).chars,
		               news.text.chars);
	begin_s = trial_now_s();
	(void)peer_kill(&victim); /* Its end is what is measured. */
	ended_s = trial_now_s();
	back_s = await_memory(trial, copies, free_bytes);
	if (trial->code)
		trial_row_of_call(trial, what, NULL);
	else if (back_s < 0)
		trial_row(trial, TRIAL_FAILED, what, NULL, "%sits memory is not back after %.0f s",
		          told, BACK_LIMIT_S);
	else
		trial_row(trial, TRIAL_ANSWERED, what, NULL,
		          "%sended %s ms after SIGKILL, memory back %s ms later; slowest copy of "
		          "another process: alone %s, beside it %s, after its end %s ms",
		          told, trial_figure(trial, 1, (ended_s - begin_s) * 1e3).chars,
		          trial_figure(trial, 1, back_s * 1e3).chars,
		          trial_figure(trial, 2, alone_ms).chars,
		          trial_figure(trial, 2, beside_ms).chars,
		          trial_figure(trial, 2, copies->slowest_s * 1e3).chars);
}

void ask_ends(struct trial *trial)
{
	static const char *const what[] = {
		[VICTIM_SPIN] = "7. a kernel that never ends, SIGKILL",
		[VICTIM_ILLEGAL] = "7. an illegal address, SIGKILL",
		[VICTIM_COPIES] = "7. SIGKILL amid copies",
	};
	struct copies copies = { 0 };

	trial_begin(trial);
	trial_make(trial, trial->sizes.chunk_bytes, &copies.span);
	TRIAL_DO(trial, cuMemHostAlloc(&copies.memory, trial->sizes.chunk_bytes, 0));
	for (int deed = 0; deed < (int)ZI_COUNT_OF(what); deed++) {
		if (trial->code)
			trial_row_of_call(trial, what[deed], NULL);
		else if (deed != VICTIM_COPIES && !kernels_exist(trial->is_fake))
			trial_row(trial, TRIAL_NOT_RUN, what[deed], NULL, KERNELS_MISSING);
		else
			ask_end(trial, (enum victim_deed)deed, what[deed], &copies);
	}
	if (copies.memory)
		(void)trial->driver.cuda.cuMemFreeHost(copies.memory);
	trial_drop(trial, &copies.span);
}
