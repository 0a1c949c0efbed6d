/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Question 6: two ranks of NCCL on one GPU, on chunks of a process without a context; and how fast
 * an abort frees a rank whose peer does not come. NCCL allows that from 2.30 on, where it is asked
 * to (NCCL_MULTI_RANK_GPU_ENABLE).
 */
#include <limits.h>
#include <signal.h>
#include <stdlib.h>

#include "common/base/fd.h"
#include "common/base/text.h"
#include "tests/gpu/device/ask.h"
#include "tests/gpu/device/library.h"
#include "tests/gpu/device/maker.h"
#include "tests/gpu/device/nccl_peer.h"
#include "tests/gpu/device/trial.h"

#define VERSION_MIN 23000
#define QUESTION    "6. two ranks of NCCL on one GPU, on imported chunks"
#define ABORT       "6. abort of NCCL while a peer hangs"

struct pair {
	struct peer ranks[2];
	struct nccl_news news[2];
	struct peer maker;
	int fds[2];
};

static void end_pair(struct pair *pair)
{
	for (int i = 0; i < 2; i++) {
		if (pair->ranks[i].pid > 0)
			(void)peer_kill(&pair->ranks[i]); /* It has nothing to tell. */
		pair->fds[i] = zi_close(pair->fds[i]);
	}
	if (pair->maker.pid > 0)
		(void)peer_kill(&pair->maker); /* As above. */
}

static bool gather(struct pair *pair)
{
	int r = 0;

	for (int i = 0; i < 2 && !r; i++)
		r = nccl_peer_gather(&pair->ranks[i], pair->news[0].id, pair->fds[i]);
	for (int i = 0; i < 2 && !r; i++) {
		r = nccl_peer_hear(&pair->ranks[i], &pair->news[i]);
		if (r)
			pair->news[0].text = pair->news[i].text;
	}
	return !r;
}

static void ask_abort(struct trial *trial, struct pair *pair)
{
	int r;

	(void)kill(pair->ranks[1].pid, SIGSTOP); /* Of a child that was not waited for. */
	r = nccl_peer_abort(&pair->ranks[0]);
	if (!r)
		r = nccl_peer_hear(&pair->ranks[0], &pair->news[0]);
	if (r)
		trial_row(trial, TRIAL_FAILED, ABORT, NULL, "%s", pair->news[0].text.chars);
	else
		trial_row(trial, TRIAL_ANSWERED, ABORT, NULL, "the stream was free after %s ms",
		          trial_figure(trial, 1, (double)pair->news[0].abort_ns * 1e-6).chars);
}

static void ask_pair(struct trial *trial, const char *library, struct pair *pair)
{
	struct zi_text *text = &pair->news[0].text;
	long long version;

	if (nccl_peer_start(trial, library, 0, &pair->ranks[0], &pair->news[0])) {
		trial_row(trial, TRIAL_FAILED, QUESTION, NULL, "%s", text->chars);
		return;
	}
	version = (long long)pair->news[0].version;
	if (version < VERSION_MIN) {
		trial_row(trial, TRIAL_NOT_RUN, QUESTION, NULL,
		          "%s is NCCL %lld.%lld.%lld, and two ranks on one GPU need 2.30", library,
		          version / 10000, version / 100 % 100, version % 100);
		return;
	}
	if (nccl_peer_start(trial, library, 1, &pair->ranks[1], &pair->news[1])) {
		trial_row(trial, TRIAL_FAILED, QUESTION, NULL, "%s", pair->news[1].text.chars);
		return;
	}
	if (maker_start(trial, &pair->maker, text) ||
	    maker_make(&pair->maker, trial->sizes.chunk_bytes, 2, text, pair->fds) ||
	    !gather(pair)) {
		trial_row(trial, TRIAL_FAILED, QUESTION, NULL, "%s", text->chars);
		return;
	}
	trial_row(trial, TRIAL_ANSWERED, QUESTION, NULL, "yes: NCCL %lld.%lld.%lld gathered %s",
	          version / 10000, version / 100 % 100, version % 100,
	          zi_format_bytes(trial->sizes.chunk_bytes).chars);
	ask_abort(trial, pair);
}

void ask_nccl(struct trial *trial)
{
	struct pair pair = { .fds = { -1, -1 } };
	char library[PATH_MAX] = "";

	if (trial->is_fake) {
		trial_row(trial, TRIAL_NOT_RUN, QUESTION, NULL,
		          "NCCL does not run on the fake driver");
		return;
	}
	library_find(trial->options.nccl, library_nccl_names, library, sizeof(library));
	if (!library[0]) {
		trial_row(trial, TRIAL_NOT_RUN, QUESTION, NULL,
		          "libnccl.so.2 was not found (--nccl PATH)");
		return;
	}
	if (setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1)) {
		trial_row(trial, TRIAL_FAILED, QUESTION, NULL, "no memory for the environment");
		return;
	}
	ask_pair(trial, library, &pair);
	end_pair(&pair);
}
