/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration: an INI file, checked key by key against one table (config_table.c) from which
 * docs/CONFIG.md and the example file are printed as well. Floor 7; read once, before any thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/text.h"
#include "common/base/types.h"

#define CONFIG_TEXT_BYTES  256u /* of a path or another text, NUL included */
#define CONFIG_STORES_MAX  16u
#define CONFIG_KEYS_MAX    64u
#define CONFIG_SYSTEM_PATH "/etc/zinf/zinfd.conf"

enum config_huge { CONFIG_HUGE_TRY = 0, CONFIG_HUGE_NEVER, CONFIG_HUGE_REQUIRE };
enum config_lock { CONFIG_LOCK_TRY = 0, CONFIG_LOCK_REQUIRE };
enum config_gpu { CONFIG_GPU_AUTO = 0, CONFIG_GPU_YES, CONFIG_GPU_NO };
enum config_direct { CONFIG_DIRECT_REQUIRE = 0, CONFIG_DIRECT_TRY };

/* A section [nvme NAME]. */
struct config_store {
	char name[ZI_NAME_BYTES];
	char path[CONFIG_TEXT_BYTES];
	char stripe[CONFIG_TEXT_BYTES]; /* "": a tier of its own */
	uint64_t bytes;
	uint64_t direct, is_drained;
	char backend[CONFIG_TEXT_BYTES]; /* of the one engine: equal in all stores */
	uint64_t read_depth, write_depth, read_block_bytes, write_block_bytes; /* 0: measured */
	uint64_t is_measured; /* at start, when it never was */
	uint64_t deadline_s;  /* 0: none */
	uint64_t iopoll;
	uint64_t write_budget_bytes, write_budget_action; /* a day; 0: none */
	uint64_t wear_percent;
	uint32_t line;                        /* of its section's first key */
	uint32_t seen_lines[CONFIG_KEYS_MAX]; /* by index into the table; 0: not given */
};

/* Every number is a uint64_t, so that the table can point at it. Times are as the key's name says.
 * */
struct config {
	char file[CONFIG_TEXT_BYTES]; /* "" when there is none */

	char socket[CONFIG_TEXT_BYTES];
	char state_dir[CONFIG_TEXT_BYTES];
	char topology[CONFIG_TEXT_BYTES]; /* "" is this machine */
	uint64_t socket_mode, log_level, stop_timeout_s, coll_timeout_s, spin_us, pool_threads;
	uint64_t wear_interval_s; /* 0: never */

	uint64_t cpu_capacity_bytes; /* 0: half of what this process may use */
	uint64_t huge_pages, lock;

	uint64_t gpu_enable;
	char gpu_driver[CONFIG_TEXT_BYTES]; /* "": the system's */
	uint64_t gpu_reserve_bytes, gpu_deadline_s;

	struct config_store stores[CONFIG_STORES_MAX];
	uint32_t store_count;

	uint64_t sessions, sessions_per_uid, jobs, jobs_per_uid, units, params;
	uint64_t connections, connections_per_uid, answers_per_uid, answer_bytes_per_uid;
	uint64_t descriptors_per_uid; /* 0: auto */
	uint64_t ring_entries, inflight_ops, handshake_ms;
	uint64_t uid_cpu_bytes, uid_nvme_bytes, uid_gpu_bytes; /* UINT64_MAX: none */
	uint64_t uid_write_bytes, uid_write_action;            /* a day; 0: none */
	uint64_t staging_bytes;
	uint64_t is_staging_kept;

	uint32_t seen_lines[CONFIG_KEYS_MAX];
};

enum config_kind { CONFIG_COUNT, CONFIG_BYTES, CONFIG_MODE, CONFIG_CHOICE, CONFIG_TEXT };

/* One key: where it goes, what is allowed, what it means. */
struct config_key {
	const char *section; /* "nvme" stands for every [nvme NAME] */
	const char *name;
	enum config_kind kind;
	size_t offset;       /* in struct config, or struct config_store */
	uint64_t low, high;  /* COUNT, BYTES */
	const char *choices; /* CHOICE: words, a blank between; the value is the index */
	const char *special; /* a word that stands for special_value */
	uint64_t special_value;
	const char *fallback; /* default, as text */
	const char *doc;
};

extern const struct config_key config_keys[];
extern const uint32_t config_key_count;
struct config_section {
	const char *name;
	const char *doc;
};
extern const struct config_section config_sections[];
extern const uint32_t config_section_count;

/* Every key at its default; no stores. */
void config_init(struct config *config);
/* Reads @path over @config. -ENOENT and the like, -EINVAL: @text says file, line, what was found,
 * what is allowed. */
int config_load(struct config *config, const char *path, struct zi_text *text);
/* "limits.jobs=8", "nvme disk.size=4G" (the command line's --set). */
int config_set(struct config *config, const char *assignment, struct zi_text *text);
/* For a plain user: socket, state and (with @store_bytes) a store in @directory, or in the places
 * that XDG names when it is NULL. */
int config_set_user(struct config *config, const char *directory, uint64_t store_bytes,
                    struct zi_text *text);
/* Makes the folders of socket and state; after config_check(). */
int config_make_user(const struct config *config, struct zi_text *text);
/* What no single key can tell: relations between them. */
int config_check(const struct config *config, struct zi_text *text);

/* config_value.c, private to the reader: one value into its place in @base. 0; -EINVAL: @text says
 * what was found and what is allowed. */
int config_assign(const struct config_key *key, void *base, const char *value,
                  struct zi_text *text);

/* docs/CONFIG.md and systemd/zinfd.conf. */
void config_print_doc(FILE *stream);
void config_print_example(FILE *stream);
