/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage of the hostile tests: a daemon with small limits and a well-behaved neighbour that has
 * trained before the attack, trains after it in the same session, and must end in the bits of the
 * reference. Whatever the attacker does costs nobody but itself.
 */
#pragma once

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>

#include "tests/harness/ranks.h"
#include "tests/harness/raw.h"
#include "tests/system/system.h"

static struct harness harness;
static struct neighbour neighbour;
static struct raw raw; /* the attacker */
static uint32_t fd_count;

/* Descriptors that the daemon holds. */
static inline uint32_t count_fds(void)
{
	char path[64];
	uint32_t count = 0;
	DIR *directory;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", harness.pid);
	directory = opendir(path);
	cr_assert_not_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static inline void hostile_open(void)
{
	struct trainer_settings settings;

	system_start(&harness, &(struct harness_options){
				       .nvme_size = "64M",
				       .extra = "[limits]\nunits = 64\nparams = 256\n"
						"handshake_ms = 500\nsessions = 16\n",
			       });
	settings = ranks_settings(&harness, "neighbour", 1);
	settings.options.offload_optimizer = ZINF_OFFLOAD_NVME;
	settings.options.staging_bytes = 8 << 20;
	cr_assert_eq(neighbour_start(&neighbour, &settings), 0);
	cr_assert(neighbour_steps(&neighbour));
	fd_count = count_fds();
}

/* After an attack: the daemon lives and answers, the neighbour trains on, a newcomer gets in. */
static inline void expect_unharmed(void)
{
	static struct raw newcomer;

	cr_assert(system_is_alive(&harness));
	cr_assert(neighbour_steps(&neighbour));
	cr_assert_eq(raw_join(&newcomer, harness.socket_path, "newcomer", 0, 1), 0);
	cr_assert_eq(raw_call(&newcomer, ZI_OP_NOP, 0), 0);
	cr_assert_eq(raw_send_plain(&newcomer, ZI_MESSAGE_DETACH), 0);
	cr_assert_eq(raw_receive(&newcomer), ZI_MESSAGE_DONE);
	raw_close(&newcomer);
}

/* Of the attacker nothing is left, not even a descriptor. */
static inline void hostile_close(void)
{
	raw_close(&raw);
	expect_unharmed();
	cr_assert(neighbour_stop(&neighbour));
	cr_assert_eq(harness_stop(&harness), 0);
}

/* A session of the attacker. A new start each time: a process that only closes its socket counts as
 * living for a moment. */
static inline void attack_attached(void)
{
	static uint32_t start_count;
	struct zi_attach message;
	char incarnation[16];

	(void)snprintf(incarnation, sizeof(incarnation), "raw.%u", start_count++);
	raw_attach_message(&message, "attacker", incarnation, 0, 1);
	cr_assert_eq(raw_connect(&raw, harness.socket_path), 0);
	cr_assert_eq(raw_hello(&raw), 0);
	cr_assert_eq(raw_attach(&raw, &message), 0, "%s", raw.reply.error.text.chars);
}

/* … with a model in memory. */

static inline void attack_materialized(void)
{
	attack_attached();
	cr_assert_eq(raw_layout(&raw, 2, 5000), 0);
	cr_assert_eq(raw_materialize(&raw, 2), 0);
}

static inline struct zi_hello hello_of(uint16_t major)
{
	return (struct zi_hello){
		.header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_HELLO, 0, sizeof(struct zi_hello), 1 },
		.major = major,
		.program = "raw",
	};
}
