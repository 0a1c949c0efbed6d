/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a configuration that was read: the public functions of zinf/deepspeed.h. Floor 2, any
 * thread: what it works on is the caller's. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "libclient/deepspeed/private.h"

/* As zinf/deepspeed.h says: real files are some kilobytes. */
#define JSON_BYTES_MAX (16u << 20)

/* What is wrong where nothing else was said. */
#define NO_MEMORY "no memory is left to read the configuration"

ZI_DEFINE_CLEANUP(struct zinf_deepspeed *, zinf_deepspeed_free)

/* @text: the caller's, may be NULL. */
static int tell(const struct zi_text *why, int error, char *text, size_t text_bytes)
{
	if (text && text_bytes)
		(void)snprintf(text, text_bytes, "%s", why->chars); /* May be cut. */
	return error;
}

/* Defaults of a file that says nothing. */
static int new_reader(const struct zinf_deepspeed_facts *facts, struct zinf_deepspeed **ret_reader)
{
	_cleanup_(zinf_deepspeed_freep) struct zinf_deepspeed *reader = calloc(1, sizeof(*reader));

	if (!reader)
		return err_origin(-ENOMEM);
	reader->values = calloc(deepspeed_key_count(), sizeof(json_t *));
	if (!reader->values)
		return err_origin(-ENOMEM);
	reader->facts = *facts;
	reader->text = (struct zi_text){ NO_MEMORY };
	reader->config = (struct zinf_deepspeed_config){
		.bytes = sizeof(reader->config),
		.optimizer = ZINF_ADAMW,
		.step = ZINF_STEP_OPTIONS_INIT,
	};
	*ret_reader = zi_steal(reader);
	return 0;
}

/* jansson names the token that it did not expect. */
static int parse_json(struct zinf_deepspeed *reader, const char *json, size_t json_bytes)
{
	_cleanup_(zi_freep) char *plain = deepspeed_plain_json(json, json_bytes);
	json_error_t error;

	if (!plain)
		return err_origin(-ENOMEM);
	reader->root = json_loadb(plain, json_bytes, JSON_REJECT_DUPLICATES, &error);
	if (!reader->root) {
		if (json_error_code(&error) == json_error_out_of_memory)
			return err_origin(-ENOMEM);
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "line %d, column %d: %.120s (JSON is read, with HJSON's "
		                     "comments and trailing commas)",
		                     error.line, error.column, error.text);
	}
	if (!json_is_object(reader->root))
		return zi_text_error(
			&reader->text, err_origin(-EINVAL),
			"the file is no object: { \"train_batch_size\": … } is expected");
	return 0;
}

/* The stage comes first, for others look at it. */
static int read_all(struct zinf_deepspeed *reader)
{
	int (*const parts[])(struct zinf_deepspeed * reader) = {
		deepspeed_precision, deepspeed_zero, deepspeed_optimizer,
		deepspeed_schedule,  deepspeed_rest, deepspeed_batch,
	};
	int r = deepspeed_find_optimizer(reader);

	if (!r)
		r = deepspeed_find_schedule(reader);
	if (!r)
		r = deepspeed_walk(reader);
	if (r)
		return err_trace(r);
	reader->config.zero_stage = (uint32_t)deepspeed_count(reader, "zero_optimization.stage");
	for (uint32_t i = 0; i < ZI_COUNT_OF(parts); i++) {
		r = parts[i](reader);
		if (r)
			return err_trace(r);
	}
	return 0;
}

static int check_facts(const struct zinf_deepspeed_facts *facts, struct zi_text *text)
{
	if (facts->bytes < sizeof(*facts))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "zinf_deepspeed_facts.bytes is %u: at least %zu, begin with "
		                     "ZINF_DEEPSPEED_FACTS_INIT",
		                     facts->bytes, sizeof(*facts));
	if (!facts->world_size || facts->world_size > ZINF_WORLD_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "zinf_deepspeed_facts.world_size is %u: 1 to %d are allowed",
		                     facts->world_size, ZINF_WORLD_MAX);
	return 0;
}

/* As in the public header. */
int zinf_deepspeed_read(const char *json, size_t json_bytes,
                        const struct zinf_deepspeed_facts *facts, char *text, size_t text_bytes,
                        struct zinf_deepspeed **ret_deepspeed)
{
	_cleanup_(zinf_deepspeed_freep) struct zinf_deepspeed *reader = NULL;
	struct zi_text why = { NO_MEMORY };
	int r = json && facts && ret_deepspeed
	                ? check_facts(facts, &why)
	                : err_origin(zi_text_error(&why, -EINVAL, "%s is NULL",
	                                           !json    ? "json"
	                                           : !facts ? "facts"
	                                                    : "ret_deepspeed"));

	if (!r && json_bytes > JSON_BYTES_MAX)
		r = zi_text_error(&why, err_origin(-EFBIG),
		                  "%zu bytes: at most %s are a configuration", json_bytes,
		                  zi_format_bytes(JSON_BYTES_MAX).chars);
	if (!r)
		r = new_reader(facts, &reader);
	if (r)
		return tell(&why, err_trace(r), text, text_bytes);
	r = parse_json(reader, json, json_bytes);
	if (!r)
		r = read_all(reader);
	if (r)
		return tell(&reader->text, err_trace(r), text, text_bytes);
	*ret_deepspeed = zi_steal(reader);
	return 0;
}

/* @ret_json: (@ret_bytes,) the caller's. */
static int read_file(const char *path, struct zi_text *text, char **ret_json, size_t *ret_bytes)
{
	_cleanup_(zi_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;
	size_t bytes = 0;
	char *json;

	if (fd < 0 || fstat(fd, &status) < 0)
		return zi_text_error(text, err_origin(-errno), "%.160s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		return zi_text_error(text, err_origin(S_ISDIR(status.st_mode) ? -EISDIR : -EINVAL),
		                     "%.160s is no file", path);
	if (status.st_size > (off_t)JSON_BYTES_MAX)
		return zi_text_error(text, err_origin(-EFBIG),
		                     "%.160s has %s: at most %s are a configuration", path,
		                     zi_format_bytes((uint64_t)status.st_size).chars,
		                     zi_format_bytes(JSON_BYTES_MAX).chars);
	json = malloc((size_t)status.st_size + 1);
	if (!json)
		return zi_text_error(text, err_origin(-ENOMEM), "%.160s: no memory", path);
	for (ssize_t got = 1; got > 0 && bytes < (size_t)status.st_size; bytes += (size_t)got) {
		got = read(fd, json + bytes, (size_t)status.st_size - bytes);
		if (got >= 0)
			continue;
		free(json);
		return zi_text_error(text, err_origin(-errno), "%.160s: %s", path, strerror(errno));
	}
	*ret_json = json;
	*ret_bytes = bytes;
	return 0;
}

/* As in the public header. */
int zinf_deepspeed_open(const char *path, const struct zinf_deepspeed_facts *facts, char *text,
                        size_t text_bytes, struct zinf_deepspeed **ret_deepspeed)
{
	_cleanup_(zi_freep) char *json = NULL;
	struct zi_text why = { "" };
	char words[ZI_TEXT_BYTES] = "";
	size_t json_bytes = 0;
	int r = path ? read_file(path, &why, &json, &json_bytes)
	             : err_origin(zi_text_error(&why, -EINVAL, "path is NULL"));

	if (r)
		return tell(&why, err_trace(r), text, text_bytes);
	r = zinf_deepspeed_read(json, json_bytes, facts, words, sizeof(words), ret_deepspeed);
	if (!r)
		return 0;
	/* The path, but never at the cost of the reason. */
	if (text && text_bytes)
		(void)snprintf(text, text_bytes, "%.80s: %s", path, words);
	return err_trace(r);
}

/* Before struct zinf_step_options got its last field, what follows it here lay that much lower. */
#define STEP_BYTES  offsetof(struct zinf_step_options, group_betas)
#define STEP_GROWTH (sizeof(struct zinf_step_options) - STEP_BYTES)

static void get_older(const struct zinf_deepspeed *deepspeed,
                      struct zinf_deepspeed_config *ret_config)
{
	unsigned char older[sizeof(*ret_config)];
	const unsigned char *newer = (const void *)&deepspeed->config;
	size_t begin = offsetof(struct zinf_deepspeed_config, step), end = begin + STEP_BYTES;
	uint32_t step_bytes = STEP_BYTES, bytes = ret_config->bytes;

	memcpy(older, newer, end);
	memcpy(older + begin, &step_bytes, sizeof(step_bytes));
	memcpy(older + end, newer + end + STEP_GROWTH, sizeof(older) - end - STEP_GROWTH);
	memcpy(ret_config, older, bytes);
	ret_config->bytes = bytes;
}

/* As in the public header. */
void zinf_deepspeed_get(const struct zinf_deepspeed *deepspeed,
                        struct zinf_deepspeed_config *ret_config)
{
	uint32_t bytes = ZI_MIN(ret_config->bytes, deepspeed->config.bytes);

	if (ret_config->bytes + STEP_GROWTH <= sizeof(*ret_config)) {
		get_older(deepspeed, ret_config);
		return;
	}

	memcpy(ret_config, &deepspeed->config, bytes);
	ret_config->bytes = bytes;
}

/* As in the public header. */
void zinf_deepspeed_free(struct zinf_deepspeed *deepspeed)
{
	if (!deepspeed)
		return;
	for (uint32_t i = 0; i < deepspeed->note_count; i++) {
		free((char *)deepspeed->notes[i].key);
		free((char *)deepspeed->notes[i].value);
	}
	free(deepspeed->notes);
	free(deepspeed->values);
	json_decref(deepspeed->root);
	free(deepspeed);
}
