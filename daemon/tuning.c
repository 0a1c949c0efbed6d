/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was measured of a store, kept over restarts: a small file per store in the state folder, by
 * the store's identity. Floor 7.
 *
 * Not in the store's own superblock: that would be rewritten while jobs' data depends on it, and a
 * write that tears would cost all of it for the sake of figures that are measured anew in seconds.
 * For the same reason a file that makes no sense is told and ignored.
 */
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "daemon/daemon.h"
#include "nvme/nvme.h"

/* Before anything was measured: what fio reaches its best with on many a drive. */
#define TUNING_DEPTH_DEFAULT 32u
#define TUNING_BLOCK_DEFAULT (1u << 20)

/* A single hard disk moves as much in sequence; a solid one several times that. */
#define TUNING_ODD_BYTES_PER_S (100ull << 20)

#define TUNING_DEPTH_MAX 4096u
#define TUNING_BLOCK_MAX (64u << 20)
#define TUNING_KEY_COUNT 6u
/* The folder, the identity, a suffix. */
#define TUNING_PATH_BYTES (CONFIG_TEXT_BYTES + 64u)

/* The six figures by name; all are below 2^63. */
struct tuning_file {
	uint64_t values[TUNING_KEY_COUNT];
	uint32_t seen; /* a bit each */
};

static const struct {
	const char *name;
	uint64_t low, high, multiple;
} tuning_keys[TUNING_KEY_COUNT] = {
	{ "read_block", ZI_STORE_ALIGN_BYTES, TUNING_BLOCK_MAX, ZI_STORE_ALIGN_BYTES },
	{ "write_block", ZI_STORE_ALIGN_BYTES, TUNING_BLOCK_MAX, ZI_STORE_ALIGN_BYTES },
	{ "read_depth", 1, TUNING_DEPTH_MAX, 1 },
	{ "write_depth", 1, TUNING_DEPTH_MAX, 1 },
	{ "read_bytes_per_s", 1, INT64_MAX, 1 },
	{ "write_bytes_per_s", 1, INT64_MAX, 1 },
};

/* @path: (TUNING_PATH_BYTES,) */
static int tuning_path(char *path, const char *state_dir, const uint8_t uuid[16],
                       const char *suffix)
{
	char digits[33];
	int written;

	for (uint32_t i = 0; i < 16; i++)
		(void)snprintf(&digits[2 * i], 3, "%02x", uuid[i]); /* Two digits. */
	written = snprintf(path, TUNING_PATH_BYTES, "%s/tuning-%s%s", state_dir, digits, suffix);
	return written < 0 || written >= (int)TUNING_PATH_BYTES ? err_origin(-ENAMETOOLONG) : 0;
}

/* One key; 0 makes inih note an error. */
static int tuning_take(void *arg, const char *section, const char *name, const char *value)
{
	struct tuning_file *file = arg;
	char *end;

	(void)section; /* There is none. */
	for (uint32_t i = 0; i < TUNING_KEY_COUNT; i++) {
		unsigned long long number;

		if (strcmp(tuning_keys[i].name, name) != 0)
			continue;
		errno = 0;
		number = strtoull(value, &end, 10);
		if (errno || *end || end == value || number < tuning_keys[i].low ||
		    number > tuning_keys[i].high || number % tuning_keys[i].multiple)
			return 0;
		file->values[i] = number;
		file->seen |= 1u << i;
		return 1;
	}
	return 0;
}

/**
 * tuning_load() - what was measured of a store
 * @uuid: its identity
 * @ret_tuning: written on success
 *
 * Return: 0; -ENOENT nothing was; -EUCLEAN the file makes no sense; an errno of reading it.
 */
int tuning_load(const char *state_dir, const uint8_t uuid[16], struct nvme_tuning *ret_tuning)
{
	struct tuning_file file = { .seen = 0 };
	char path[TUNING_PATH_BYTES];
	FILE *stream;
	int line;
	int r;

	r = tuning_path(path, state_dir, uuid, "");
	if (r)
		return err_trace(r);
	stream = fopen(path, "re");
	if (!stream)
		return errno == ENOENT ? -ENOENT : err_origin(-errno);
	line = ini_parse_file(stream, tuning_take, &file);
	(void)fclose(stream); /* Only read. */
	if (line || file.seen != (1u << TUNING_KEY_COUNT) - 1)
		return err_origin(-EUCLEAN);
	*ret_tuning = (struct nvme_tuning){
		.read_block_bytes = (uint32_t)file.values[0],
		.write_block_bytes = (uint32_t)file.values[1],
		.read_depth = (uint32_t)file.values[2],
		.write_depth = (uint32_t)file.values[3],
		.read_bytes_per_s = file.values[4],
		.write_bytes_per_s = file.values[5],
	};
	return 0;
}

/* Writes and flushes the whole file, which is closed either way. */
static int tuning_write(const char *path, const struct nvme_tuning *tuning)
{
	FILE *stream = fopen(path, "we");
	int r = 0;

	if (!stream)
		return err_origin(-errno);
	fprintf(stream,
	        "; Measured by zctl bench nvme. Without this file the defaults hold.\n"
	        "read_block = %u\nwrite_block = %u\nread_depth = %u\nwrite_depth = %u\n"
	        "read_bytes_per_s = %llu\nwrite_bytes_per_s = %llu\n",
	        tuning->read_block_bytes, tuning->write_block_bytes, tuning->read_depth,
	        tuning->write_depth, (unsigned long long)tuning->read_bytes_per_s,
	        (unsigned long long)tuning->write_bytes_per_s);
	if (fflush(stream) || ferror(stream) || fsync(fileno(stream)))
		r = err_origin(errno ? -errno : -EIO);
	if (fclose(stream) && !r)
		r = err_origin(-errno);
	return r;
}

/**
 * tuning_save() - keeps what was measured, instead of what was there
 *
 * Return: 0, and the next daemon finds it; else an errno, and it finds what it found before.
 * Context: any thread; blocks.
 */
int tuning_save(const char *state_dir, const uint8_t uuid[16], const struct nvme_tuning *tuning)
{
	char temporary_path[TUNING_PATH_BYTES];
	char path[TUNING_PATH_BYTES];
	int r;

	r = tuning_path(path, state_dir, uuid, "");
	if (!r)
		r = tuning_path(temporary_path, state_dir, uuid, ".new");
	if (r)
		return err_trace(r);
	r = tuning_write(temporary_path, tuning);
	if (!r && rename(temporary_path, path))
		r = err_origin(-errno);
	if (r)
		(void)unlink(temporary_path); /* Best effort: the next one overwrites it. */
	return r;
}

/* @figure: configured, 0: auto. @measured: 0: not. */
static uint32_t tuning_pick(uint64_t figure, uint32_t measured, uint32_t fallback)
{
	if (figure)
		return (uint32_t)figure;
	return measured ? measured : fallback;
}

/* What a store works with: what is configured, else measured, else the default. */
struct nvme_tuning tuning_resolve(const struct config_store *config,
                                  const struct nvme_tuning *measured)
{
	return (struct nvme_tuning){
		.read_block_bytes = tuning_pick(config->read_block_bytes,
		                                measured->read_block_bytes, TUNING_BLOCK_DEFAULT),
		.write_block_bytes = tuning_pick(config->write_block_bytes,
		                                 measured->write_block_bytes, TUNING_BLOCK_DEFAULT),
		.read_depth =
			tuning_pick(config->read_depth, measured->read_depth, TUNING_DEPTH_DEFAULT),
		.write_depth = tuning_pick(config->write_depth, measured->write_depth,
		                           TUNING_DEPTH_DEFAULT),
		.read_bytes_per_s = measured->read_bytes_per_s,
		.write_bytes_per_s = measured->write_bytes_per_s,
	};
}

/* See daemon.h. */
bool tuning_is_odd(const struct nvme_tuning *measured)
{
	return measured->read_bytes_per_s < TUNING_ODD_BYTES_PER_S ||
	       measured->write_bytes_per_s < TUNING_ODD_BYTES_PER_S;
}

/* Before the engine knows the store. */
void daemon_tune_store(const struct daemon *daemon, const struct config_store *config,
                       struct nvme_store *store)
{
	struct nvme_tuning measured = { 0 };
	int r = tuning_load(daemon->config->state_dir, store->uuid, &measured);

	if (r && r != -ENOENT)
		(void)log_warning_errno(r,
		                        "What was measured of store '%s' cannot be read in %s, "
		                        "ignoring; zctl bench nvme %s measures it again",
		                        store->name, daemon->config->state_dir, store->name);
	store->tuning = tuning_resolve(config, &measured);
	log_info("Store '%s' is used with reads of %s, %u at once, and writes of %s, %u at once%s",
	         store->name, zi_format_bytes(store->tuning.read_block_bytes).chars,
	         store->tuning.read_depth, zi_format_bytes(store->tuning.write_block_bytes).chars,
	         store->tuning.write_depth,
	         !r                    ? ""
	         : config->is_measured ? "; it was never measured before"
	                               : "; it was never measured (zctl bench nvme measures it)");
}
