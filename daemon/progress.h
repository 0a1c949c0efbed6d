/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far a store is that is being written for the first time: which steps of it the service
 * manager, the log and a terminal are told. Floor 7, main thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum progress_news {
	PROGRESS_MANAGER = 1u << 0, /* each percent */
	PROGRESS_BEGUN = 1u << 1,   /* the first line of the log */
	PROGRESS_LINE = 1u << 2,    /* one more line: 10 % further, and a second later */
	PROGRESS_BAR = 1u << 3,     /* the terminal's line changes */
};

/* Zero-initialise, but for what the caller knows. */
struct progress {
	bool is_terminal;
	bool is_begun;
	uint32_t percent;      /* now */
	uint32_t line_percent; /* of the last line of the log */
	uint64_t line_ns;      /* its time */
};

/* @now_ns: monotonic. Return: bits of enum progress_news. */
uint32_t progress_step(struct progress *progress, uint64_t done_bytes, uint64_t total_bytes,
                       uint64_t now_ns);
