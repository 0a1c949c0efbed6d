/* SPDX-License-Identifier: Apache-2.0 */
/* What every system test says first and last. */
#pragma once

#include <criterion/criterion.h>
#include <string.h>

#include "tests/harness/ranks.h"

static inline void system_start(struct harness *harness, const struct harness_options *options)
{
	cr_assert_eq(harness_start(harness, options), 0);
}

static inline int system_destroy_body(void *arg)
{
	const struct trainer_settings *settings = arg;
	struct zinf_options options = settings->options;
	struct zinf *zinf;

	options.incarnation = "destroy";
	options.world_size = 1;
	options.rank = 0;
	return zinf_attach(&options, &zinf) || zinf_destroy_job(zinf);
}

/* When every rank has left. From a process of its own: what a process received stays charged
 * while it lives. */
static inline int system_destroy_job(struct trainer_settings *settings)
{
	return harness_wait(harness_fork(system_destroy_body, settings), 20000);
}

/* Ranks come to their end, with the bits of the plain computation. */
static inline void system_train(const struct trainer_settings *settings)
{
	struct ranks ranks;

	cr_assert_eq(ranks_train(&ranks, settings), 0);
	cr_assert(ranks_are_right(&ranks));
	ranks_free(&ranks);
}

/* zctl ends with @code; what it says goes to (capacity,) @words. */
static inline void system_zctl(const char *socket_path, int code, const char *const *arguments,
                               char *words, size_t capacity)
{
	int got = harness_zctl(socket_path, arguments, words, capacity);

	cr_assert_eq(got, code, "%s ended with %d: %s", arguments[0], got, words);
}
/* With its words behind @code. @words: an array. */
#define SYSTEM_ZCTL(socket_path, words, code, ...)                                              \
	system_zctl((socket_path), (code), (const char *const[]){ __VA_ARGS__, NULL }, (words), \
	            sizeof(words))

/* The daemon lives and says so. */
static inline bool system_is_alive(struct harness *harness)
{
	json_t *status = harness_admin(harness, "status");
	bool is_alive =
		status && json_integer_value(json_object_get(status, "pid")) == harness->pid;

	json_decref(status);
	return is_alive;
}

#define system_expect_text(text, part) \
	cr_assert(strstr((text), (part)), "'%s' is not in: %s", (part), (text))

/* In a line of sh: torchrun, without the directory of logs that it leaves behind. */
#define SYSTEM_TORCHRUN                                                        \
	"export TMPDIR=$(mktemp -d); trap 'rm -rf $TMPDIR' EXIT; timeout 200 " \
	"torchrun --standalone --no-python "

/* Whether there is one that starts a program: some only print why they cannot. */
static inline bool system_has_torchrun(void)
{
	return system(SYSTEM_TORCHRUN "--nproc_per_node 1 true >/dev/null 2>&1") == 0;
}

/* Whether it starts ranks again: torch 2.3.1 closes its own rendezvous instead, whatever runs. */
static inline bool system_torchrun_restarts(void)
{
	return system(SYSTEM_TORCHRUN "--nproc_per_node 1 --max-restarts 1 sh -c "
	                              "'exit $((1 - TORCHELASTIC_RESTART_COUNT))' "
	                              ">/dev/null 2>&1") == 0;
}
