/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer that is killed, a zinf-gpu that is killed, a kernel that hangs, an illegal address, no
 * memory: the trainer is told within its deadline, its memory is back 1 s after its end, and the
 * steps of another job on the same GPU go on.
 *
 * "Back" is what zinfd has charged and what the driver says is free, both.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "tests/gpu/device/check.h"
#include "tests/gpu/device/maker.h"
#include "tests/gpu/device/rank_peer.h"
#include "tests/harness/patience.h"

#define MUST "told in time, memory back in 1 s, others go on"

#define BACK_S       1.0
#define BACK_AWAIT_S 20.0
#define STEPS_GO_ON  2u
/* The driver's own use of memory moves by less. */
#define SLACK_BYTES     (64ull << 20)
#define FILL_LEFT_BYTES (256ull << 20)
/* After a deadline zinfd has so much longer to name ranks (zinf.h, timeout_ms). */
#define DEADLINE_MORE_NS ZI_NS_PER_S

/* The other job, and the memory beside it. */
struct scene {
	struct check *check;
	struct peer neighbour;
	uint64_t charged_bytes, free_bytes;
};

/* What a row saw. */
struct verdict {
	bool is_right;
	char text[TRIAL_TEXT_BYTES];
};

static void judge(struct verdict *verdict, bool is_right, const char *words)
{
	const size_t used_bytes = strlen(verdict->text);

	(void)snprintf(verdict->text + used_bytes, sizeof(verdict->text) - used_bytes, "%s%s%s",
	               used_bytes ? ", " : "", is_right ? "" : "NOT ", words);
	verdict->is_right &= is_right;
}

/* The row ends here. */
static void give_up(struct verdict *verdict, const char *what, const struct zi_text *why)
{
	(void)snprintf(verdict->text, sizeof(verdict->text), "%s: %s", what, why->chars);
	verdict->is_right = false;
}

static void add_row(const struct scene *scene, const char *what, const struct verdict *verdict)
{
	trial_row(scene->check->trial, verdict->is_right ? TRIAL_PASSED : TRIAL_FAILED, what, MUST,
	          "%s", verdict->text);
}

/* ---- what is looked at ---- */

/* One that has failed once is not waited for again. */
static void see_neighbour(struct scene *scene, struct verdict *verdict)
{
	struct rank_news news;
	int r = scene->neighbour.pid ? rank_peer_await_steps(&scene->neighbour, STEPS_GO_ON, &news)
	                             : -EPIPE;

	if (r && scene->neighbour.pid)
		(void)peer_kill(&scene->neighbour); /* The row tells. */
	judge(verdict, !r, "the other job's steps went on");
}

static void note_memory(struct scene *scene)
{
	scene->charged_bytes = check_charged_bytes(scene->check);
	scene->free_bytes = trial_free_bytes(scene->check->trial);
}

/* From now on, which is the end of a process. */
static void see_memory(const struct scene *scene, struct verdict *verdict)
{
	const struct trial *trial = scene->check->trial;
	const double begin_s = trial_now_s();
	const double limit_s = BACK_S * (trial->is_fake ? (double)patience() : 1);
	double passed_s;
	char words[80];
	bool is_back;

	do {
		is_back = check_charged_bytes(scene->check) == scene->charged_bytes &&
		          trial_free_bytes(trial) + SLACK_BYTES >= scene->free_bytes;
		passed_s = trial_now_s() - begin_s;
	} while (!is_back && passed_s < BACK_AWAIT_S);
	(void)snprintf(words, sizeof(words), "memory back %s ms after its end",
	               trial_figure(trial, 0, passed_s * 1e3).chars);
	judge(verdict, is_back && passed_s <= limit_s, words);
}

static struct rank_settings settings_of(const struct scene *scene, const char *job)
{
	return rank_settings_of(scene->check->trial, scene->check->harness.socket_path, job);
}

/* A rank whose job is there. Return: it is; else *verdict says why not, and the rank has ended. */
static bool start_rank(const struct rank_settings *settings, const char *fake,
                       struct verdict *verdict, struct peer *ret_peer)
{
	struct rank_news news = { .text = { "the process ended" } };
	int r = rank_peer_start(ret_peer, settings, fake);

	if (!r) {
		r = rank_peer_await(ret_peer, RANK_READY, &news);
		if (r)
			(void)peer_kill(ret_peer); /* The first error says more. */
	}
	if (!r)
		return true;
	give_up(verdict, "a trainer did not start", &news.text);
	return false;
}

/* The rank's own end. */
static void finish_rank(struct peer *peer, struct verdict *verdict, const char *words)
{
	struct rank_news news;

	judge(verdict, !rank_peer_finish(peer, &news), words);
}

/* ---- kills ---- */

static void kill_trainer(struct scene *scene)
{
	const struct rank_settings settings = settings_of(scene, "killed");
	struct verdict verdict = { .is_right = true };
	struct rank_news news;
	struct peer peer;

	note_memory(scene);
	if (start_rank(&settings, NULL, &verdict, &peer)) {
		judge(&verdict, !rank_peer_await_steps(&peer, STEPS_GO_ON, &news), "it trained");
		(void)peer_kill(&peer); /* Amid a step. */
		see_memory(scene, &verdict);
		see_neighbour(scene, &verdict);
	}
	add_row(scene, "a trainer that is killed", &verdict);
}

/* Sends SIGKILL to every zinf-gpu of the daemon. Return: how many there were. */
static uint32_t kill_workers(pid_t daemon)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	uint32_t count = 0;

	while (proc && (entry = readdir(proc))) {
		char path[300], line[600], name[64];
		int pid = atoi(entry->d_name), parent = 0;

		(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid); /* Fits. */
		if (pid <= 0 || zi_read_text(path, line, sizeof(line)) ||
		    sscanf(line, "%*d (%63[^)]) %*c %d", name, &parent) != 2 || parent != daemon ||
		    strcmp(name, "zinf-gpu") != 0)
			continue;
		count += !kill(pid, SIGKILL);
	}
	if (proc)
		(void)closedir(proc);
	return count;
}

static void kill_worker(struct scene *scene)
{
	const struct rank_settings settings = settings_of(scene, "after_worker");
	struct verdict verdict = { .is_right = true };
	struct peer peer;

	note_memory(scene);
	judge(&verdict, kill_workers(scene->check->harness.pid), "it was there");
	see_neighbour(scene, &verdict);
	if (start_rank(&settings, NULL, &verdict, &peer)) {
		judge(&verdict, true, "another trainer got memory from the next zinf-gpu");
		finish_rank(&peer, &verdict, "it trained");
		see_memory(scene, &verdict);
	}
	add_row(scene, "a zinf-gpu that is killed", &verdict);
}

/* ---- kernels ---- */

/* Was the rank told by a call that came back in time, with this error? 0: any. */
static void see_told(const struct scene *scene, const struct rank_news *news, int error,
                     struct verdict *verdict)
{
	const uint64_t limit_ns = news->limit_ns + news->limit_ns / 4 + DEADLINE_MORE_NS;
	struct zi_text words;

	zi_text_set(&words, "told in %s of %s ms (%.70s)",
	            trial_figure(scene->check->trial, 0, (double)news->call_ns * 1e-6).chars,
	            trial_figure(scene->check->trial, 0, (double)news->limit_ns * 1e-6).chars,
	            news->text.chars);
	judge(verdict,
	      news->text.chars[0] && news->call_ns <= limit_ns && (!error || news->error == error),
	      words.chars);
}

static void misbehave(struct scene *scene, enum rank_deed deed, const char *what)
{
	const struct trial *trial = scene->check->trial;
	const char *fake = deed == RANK_HANGS ? "hang=kernel:1" : "fail=kernel:1:700";
	struct rank_settings settings =
		settings_of(scene, deed == RANK_HANGS ? "hangs" : "illegal");
	struct verdict verdict = { .is_right = true };
	struct rank_news news = { 0 };
	struct peer peer;

	if (!kernels_exist(trial->is_fake)) {
		trial_row(scene->check->trial, TRIAL_NOT_RUN, what, MUST, KERNELS_MISSING);
		return;
	}
	settings.timeout_ms = trial->sizes.timeout_ms;
	note_memory(scene);
	if (start_rank(&settings, fake, &verdict, &peer)) {
		int r = rank_peer_order(&peer, deed);

		if (!r)
			r = rank_peer_await(&peer, RANK_FAILED, &news);
		if (r)
			judge(&verdict, false, "told");
		else
			see_told(scene, &news, deed == RANK_HANGS ? -ETIMEDOUT : 0, &verdict);
		see_neighbour(scene, &verdict);
		(void)peer_kill(&peer); /* Its end is what is waited for. */
		see_memory(scene, &verdict);
		see_neighbour(scene, &verdict);
	}
	add_row(scene, what, &verdict);
}

/* ---- no memory ---- */

/* A process takes all that is free, but what a context needs at least. The fake's processes have
 * memory of their own: there the rank's driver says that there is none. */
static bool fill_memory(struct scene *scene, struct verdict *verdict, struct peer *ret_maker)
{
	const struct trial *trial = scene->check->trial;
	uint64_t bytes = trial->is_fake ? ZI_GPU_GRAIN_BYTES : scene->free_bytes - SLACK_BYTES;
	struct zi_text text = { "" };
	int fd = -1;
	int r = maker_start(trial, ret_maker, &text);

	if (!r) {
		r = maker_make(ret_maker, bytes / ZI_GPU_GRAIN_BYTES * ZI_GPU_GRAIN_BYTES, 1, &text,
		               &fd);
		if (r)
			(void)peer_kill(ret_maker); /* The first error says more. */
	}
	(void)zi_close(fd);
	if (!r)
		return true;
	give_up(verdict, "the GPU was not filled", &text);
	return false;
}

static void see_refusal(struct scene *scene, struct verdict *verdict)
{
	const struct trial *trial = scene->check->trial;
	const struct rank_settings settings = settings_of(scene, "refused");
	struct rank_news news = { 0 };
	struct peer peer;
	int r = rank_peer_start(&peer, &settings,
	                        trial->is_fake ? "fail=cuMemImportFromShareableHandle:2:2" : NULL);

	if (!r)
		r = rank_peer_await(&peer, RANK_READY, &news);
	if (r == -ECANCELED)
		see_told(scene, &news, 0, verdict);
	else
		judge(verdict, false, "refused");
	(void)peer_kill(&peer); /* It has nothing to tell. */
}

static void use_up_memory(struct scene *scene)
{
	const struct rank_settings settings = settings_of(scene, "has_room");
	struct verdict verdict = { .is_right = true };
	struct peer maker, peer;

	note_memory(scene);
	if (fill_memory(scene, &verdict, &maker)) {
		see_refusal(scene, &verdict);
		see_neighbour(scene, &verdict);
		(void)peer_kill(&maker); /* Its end is what is waited for. */
		see_memory(scene, &verdict);
		if (start_rank(&settings, NULL, &verdict, &peer))
			finish_rank(&peer, &verdict, "then it trained");
	}
	add_row(scene, "a trainer for which there is no memory", &verdict);
}

/* ---- all ---- */

void check_ends(struct check *check)
{
	struct scene scene = { .check = check };
	const struct rank_settings settings = settings_of(&scene, "neighbour");
	struct verdict verdict = { .is_right = true };
	struct rank_news news;

	if (!start_rank(&settings, NULL, &verdict, &scene.neighbour)) {
		add_row(&scene, "the other job", &verdict);
		return;
	}
	kill_trainer(&scene);
	kill_worker(&scene);
	misbehave(&scene, RANK_HANGS, "a kernel that hangs");
	misbehave(&scene, RANK_MISADDRESSES, "an illegal address");
	use_up_memory(&scene);
	if (scene.neighbour.pid && rank_peer_finish(&scene.neighbour, &news))
		trial_row(check->trial, TRIAL_FAILED, "the other job", "ends well", "%s",
		          news.text.chars);
}
