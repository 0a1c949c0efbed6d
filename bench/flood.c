/* SPDX-License-Identifier: Apache-2.0 */
/* Floods of questions (flood.h). */
#include "bench/flood.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/wire/import.h"
#include "tests/harness/raw.h"

#define FLOOD_UID 60000u /* and the next ones */

static struct raw raw; /* of a client's process */

/* The first message of the answer; the rest is read and forgotten. Its type; 0: cut. */
static int ask(const char *command, int *fds)
{
	struct zi_admin question = { .header = { ZI_CONTROL_MAGIC, ZI_MESSAGE_ADMIN, 0,
		                                 sizeof(question), ++raw.sequence } };
	int type;

	(void)snprintf(question.command, sizeof(question.command), "%s", command);
	if (raw_send(&raw, &question, sizeof(question), NULL, 0))
		return 0;
	type = raw_receive_fds(&raw, fds);
	while (type == ZI_MESSAGE_ADMIN_REPLY && raw.reply.header.flags & ZI_MESSAGE_MORE)
		type = raw_receive(&raw);
	return type < 0 ? 0 : type;
}

static void flood_show(void)
{
	(void)ask("status", NULL);
	(void)ask("jobs", NULL);
	(void)ask("limits", NULL);
}

static void flood_export(void)
{
	(void)ask("export open " FLOOD_JOB, NULL);
}

/* One unit, and parameters of one element. */
static void fill(void *window, uint64_t byte_count, uint32_t param_count)
{
	struct zi_import_head *head = window;
	struct zi_layout_entry *entries = (void *)(head + 1);
	uint64_t room = (byte_count - sizeof(*head)) / sizeof(*entries);

	*head = (struct zi_import_head){ .magic = ZI_IMPORT_MAGIC,
		                         .beta1_power = 1,
		                         .beta2_power = 1,
		                         .world_size = 1,
		                         .unit_count = 1,
		                         .param_count = param_count };
	entries[0] = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .name = "unit" };
	for (uint32_t i = 1; i <= param_count && i < room; i++) {
		entries[i] = (struct zi_layout_entry){ .kind = ZI_LAYOUT_PARAM,
			                               .dim_count = 1,
			                               .shape = { 1 } };
		(void)snprintf(entries[i].name, sizeof(entries[i].name), "param.%u", i);
	}
}

static void flood_load(uint64_t byte_count, uint32_t param_count)
{
	char command[96];
	void *window;
	int fds[ZI_MESSAGE_FDS_MAX] = { -1 };

	(void)snprintf(command, sizeof(command), "load open load-%d/x %llu", (int)getpid(),
	               (unsigned long long)byte_count);
	if (ask(command, fds) != ZI_MESSAGE_ADMIN_REPLY || fds[0] < 0)
		return;
	window = mmap(NULL, byte_count, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
	(void)close(fds[0]);
	if (window == MAP_FAILED)
		return;
	fill(window, byte_count, param_count);
	(void)snprintf(command, sizeof(command), "load describe %llu",
	               (unsigned long long)byte_count);
	(void)ask(command, NULL);
	(void)munmap(window, byte_count);
}

static void flood_once(enum flood_kind kind)
{
	const uint64_t bytes =
		sizeof(struct zi_import_head) + (FLOOD_PARAMS + 1) * sizeof(struct zi_layout_entry);

	switch (kind) {
	case FLOOD_SHOW:
		flood_show();
		break;
	case FLOOD_EXPORT:
		flood_export();
		break;
	case FLOOD_LOAD:
		flood_load(bytes, FLOOD_PARAMS);
		break;
	case FLOOD_HUGE:
		flood_load(ZI_IMPORT_BYTES_MAX,
		           ZI_IMPORT_BYTES_MAX / sizeof(struct zi_layout_entry) - 2);
		break;
	case FLOOD_BUSY:
	default:
		for (volatile uint32_t i = 0; i < 1000000; i++)
			continue;
	}
}

/* A client's process: until it is killed. */
static void run(enum flood_kind kind, uint32_t index, const char *socket_path, int ready_fd)
{
	/* What is exported belongs to this uid. Refused: all are of one uid. */
	if (kind == FLOOD_SHOW || kind == FLOOD_LOAD || kind == FLOOD_HUGE)
		(void)!setuid(FLOOD_UID + index);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* Kept by no setuid() that follows. */
	for (;;) {
		bool is_first = ready_fd >= 0;

		if (kind != FLOOD_BUSY && (raw_connect(&raw, socket_path) || raw_hello(&raw))) {
			raw_close(&raw);
			continue;
		}
		flood_once(kind);
		if (kind != FLOOD_BUSY)
			raw_close(&raw);
		if (!is_first)
			continue;
		(void)!write(ready_fd, "x", 1);
		(void)close(ready_fd);
		ready_fd = -1;
	}
}

int flood_start(struct flood *flood, enum flood_kind kind, const char *socket_path)
{
	int fds[2];
	char word;

	*flood = (struct flood){ .count = 0 };
	if (pipe(fds))
		return -1;
	for (uint32_t i = 0; i < FLOOD_CLIENTS; i++) {
		pid_t pid = fork();

		if (!pid) {
			(void)close(fds[0]);
			run(kind, i, socket_path, fds[1]);
			_exit(1);
		}
		if (pid > 0)
			flood->pids[flood->count++] = pid;
	}
	(void)close(fds[1]);
	for (uint32_t i = 0; i < flood->count; i++)
		if (read(fds[0], &word, 1) != 1)
			break;
	(void)close(fds[0]);
	if (flood->count == FLOOD_CLIENTS)
		return 0;
	fprintf(stderr, "bench: no process for a flood: %s\n", strerror(errno));
	flood_stop(flood);
	return -1;
}

void flood_stop(struct flood *flood)
{
	for (uint32_t i = 0; i < flood->count; i++)
		(void)kill(flood->pids[i], SIGKILL);
	for (uint32_t i = 0; i < flood->count; i++)
		(void)waitpid(flood->pids[i], NULL, 0);
	flood->count = 0;
}
