/* SPDX-License-Identifier: Apache-2.0 */
/* A gate for the commit thread: while it is closed, whatever is asked of the catalog waits at its
 * first statement. */
#pragma once

#include <sys/eventfd.h>

#include "daemon/catalog/catalog_private.h"
#include "tests/unit/zero/node.h"

static int gate_fd = -1; /* open: readable for ever */

static inline int gate_wait(unsigned int what, void *arg, void *statement, void *text)
{
	uint64_t token;

	(void)what;
	(void)arg;
	(void)statement;
	(void)text;
	return read(gate_fd, &token, sizeof(token)) == sizeof(token) ? 0 : -1;
}

/* The thread is idle, and hears of this with its next request. */
static inline void gate_close(struct node *node)
{
	(void)zi_close(gate_fd);
	gate_fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	cr_assert_geq(gate_fd, 0);
	cr_assert_eq(sqlite3_trace_v2(node->catalog->db, SQLITE_TRACE_STMT, gate_wait, NULL), 0);
}

static inline void gate_open(void)
{
	uint64_t tokens = UINT64_MAX / 2;

	cr_assert_eq(write(gate_fd, &tokens, sizeof(tokens)), sizeof(tokens));
}

/* After node_deinit(). */
static inline void gate_end(void)
{
	gate_fd = zi_close(gate_fd);
}
