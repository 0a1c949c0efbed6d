/* SPDX-License-Identifier: Apache-2.0 */
/* A victim and its parent's calls; see victim.h. */
#include "tests/gpu/device/victim.h"

#include <errno.h>
#include <string.h>

#include "common/base/clock.h"
#include "tests/gpu/device/kernels.h"
#include "tests/gpu/device/roles.h"
#include "tests/gpu/device/trial.h"

#define ANSWER_NS (120 * ZI_NS_PER_S)
#define TOLD_NS   (60 * ZI_NS_PER_S)

struct victim_settings {
	char driver[ZI_GPU_PATH_BYTES];
	char uuid[ZI_GPU_UUID_BYTES];
	uint32_t deed;
};

/* ---- the victim ---- */

static int send_news(int fd, int error, uint64_t after_ns, const struct zi_text *text)
{
	struct victim_news news = { .error = error, .after_ns = after_ns, .text = *text };

	return peer_send(fd, &news, sizeof(news), NULL, 0);
}

/* Its memory, and addresses behind it where there is none. */
static void make_memory(struct trial *trial, struct trial_span *ret_span, uint64_t *ret_bad)
{
	trial_make(trial, trial->sizes.copy_bytes, ret_span);
	TRIAL_DO(trial, cuMemsetD8Async(ret_span->address, 0, ret_span->bytes, trial->stream));
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	TRIAL_DO(trial, cuMemAddressReserve(ret_bad, trial->sizes.chunk_bytes, 0, 0, 0));
}

static void launch(struct trial *trial, enum victim_deed deed, const struct trial_span *span,
                   uint64_t bad)
{
	struct kernels kernels = { 0 };
	uint64_t count = trial->sizes.chunk_bytes / sizeof(uint32_t);

	if (!trial_load_kernels(trial, &kernels))
		return;
	if (deed == VICTIM_SPIN)
		trial_did(trial, kernels_spin(&kernels, span->address, trial->stream),
		          "launching a kernel");
	else
		trial_did(trial, kernels_mix(&kernels, bad, span->address, count, 1, trial->stream),
		          "launching a kernel");
}

/* Until the process is killed, or a call fails. */
static void copy_without_end(struct trial *trial, const struct trial_span *span, int fd)
{
	const uint64_t bytes = span->bytes / 2;
	struct zi_text text = { "" };
	void *up = NULL, *down = NULL;
	int r = 0;

	TRIAL_DO(trial, cuMemHostAlloc(&up, bytes, 0));
	TRIAL_DO(trial, cuMemHostAlloc(&down, bytes, 0));
	for (uint64_t round = 0; !trial->code && !r; round++) {
		TRIAL_DO(trial, cuMemcpyHtoDAsync(span->address, up, bytes, trial->stream));
		TRIAL_DO(trial, cuMemcpyDtoHAsync(down, span->address + bytes, bytes,
		                                  trial->other_stream));
		if (!round)
			r = send_news(fd, 0, 0, &text);
		TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
		TRIAL_DO(trial, cuStreamSynchronize(trial->other_stream));
	}
}

static void do_deed(struct trial *trial, enum victim_deed deed, int fd)
{
	struct trial_span span = { 0 };
	struct zi_text text = { "" };
	uint64_t bad = 0, begin_ns;

	make_memory(trial, &span, &bad);
	if (deed == VICTIM_COPIES) {
		copy_without_end(trial, &span, fd);
		return;
	}
	begin_ns = zi_clock_now_ns();
	launch(trial, deed, &span, bad);
	if (trial->code || send_news(fd, 0, 0, &text))
		return;
	TRIAL_DO(trial, cuStreamSynchronize(trial->stream));
	(void)send_news(fd, trial_call_error(trial, &text), zi_clock_now_ns() - begin_ns, &text);
	trial_begin(trial); /* It was told. */
	(void)peer_receive(fd, ZI_DEADLINE_NEVER, &begin_ns, sizeof(begin_ns), NULL, 0);
}

int victim_role(int fd)
{
	struct victim_settings settings;
	struct zi_text text = { "" };
	struct trial trial;
	int r = peer_receive(fd, ANSWER_NS, &settings, sizeof(settings), NULL, 0);

	if (r)
		return 1;
	r = trial_join(&trial,
	               &(struct trial_options){ .command = "victim",
	                                        .driver = settings.driver,
	                                        .device = settings.uuid },
	               &text);
	if (r)
		return send_news(fd, r, 0, &text) ? 1 : 0;
	do_deed(&trial, (enum victim_deed)settings.deed, fd);
	r = trial_call_error(&trial, &text);
	return r ? send_news(fd, r, 0, &text) != 0 : 0;
}

/* ---- its parent ---- */

int victim_start(const struct trial *trial, enum victim_deed deed, struct peer *ret_victim,
                 struct zi_text *text)
{
	static const char *const fake_words[] = {
		[VICTIM_SPIN] = "hang=kernel:1",
		[VICTIM_ILLEGAL] = "fail=kernel:1:700",
	};
	struct victim_settings settings = { .deed = deed };
	struct victim_news news = { 0 };
	int r;

	memcpy(settings.driver, trial->driver.path, sizeof(settings.driver));
	memcpy(settings.uuid, trial->device.uuid, sizeof(settings.uuid));
	r = peer_start(ret_victim, "victim", deed == VICTIM_COPIES ? NULL : fake_words[deed],
	               &settings, sizeof(settings));
	if (r)
		return zi_text_error(text, r, "starting a process: %s", strerror(-r));
	r = peer_receive(ret_victim->fd, ANSWER_NS, &news, sizeof(news), NULL, 0);
	*text = news.text;
	if (r)
		(void)zi_text_error(text, r, "a process with a GPU: %s", strerror(-r));
	else
		r = (int)news.error;
	if (r)
		(void)peer_kill(ret_victim); /* The first error says more. */
	return r;
}

int victim_hear(const struct peer *victim, struct victim_news *ret_news)
{
	return peer_receive(victim->fd, TOLD_NS, ret_news, sizeof(*ret_news), NULL, 0);
}
