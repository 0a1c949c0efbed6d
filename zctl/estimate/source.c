/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kind of source a word is (model.h): a count; else a file, told by what it holds. Of a
 * safetensors file nothing behind the header is read, nor need it be there.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "zctl/checkpoint.h"
#include "zctl/estimate/model.h"
#include "zctl/get.h"

/* Files that one index names: models of 10^12 elements have some hundreds. */
#define INDEX_FILES_MAX 65536u

struct content {
	uint8_t *bytes; /* (byte_count,) */
	size_t byte_count;
};

static void content_free(struct content *content)
{
	free(content->bytes);
}

/* Text has no such bytes, and no header is as long as text would say. */
static bool is_length(const uint8_t *bytes)
{
	return !bytes[4] && !bytes[5] && !bytes[6] && !bytes[7];
}

static uint64_t length_of(const uint8_t *bytes)
{
	uint64_t length = 0;

	for (uint32_t i = 0; i < ESTIMATE_LENGTH_BYTES; i++)
		length |= (uint64_t)bytes[i] << 8 * i;
	return length;
}

/* ---- files ---- */

static int read_at(int fd, void *bytes, size_t byte_count, struct zi_text *text)
{
	int r = zi_pread_all(fd, bytes, byte_count, 0);

	return r ? zi_text_error(text, err_trace(r), "cannot be read: %s", strerror(-r)) : 0;
}

static int open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct zi_text *text)
{
	/* Of a pipe nobody may be waited for. */
	_cleanup_(zi_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;

	if (fd < 0 || fstat(fd, &status)) {
		int error = errno;

		return zi_text_error(text, err_origin(-error), "cannot be opened: %s",
		                     strerror(error));
	}
	if (S_ISDIR(status.st_mode))
		return zi_text_error(text, err_origin(-EISDIR),
		                     "is a directory: name its manifest.json, config.json, "
		                     "model.safetensors or model.safetensors.index.json");
	if (!S_ISREG(status.st_mode))
		return zi_text_error(text, err_origin(-EINVAL), "is not a file");
	*ret_bytes = (uint64_t)status.st_size;
	*ret_fd = zi_steal_fd(fd);
	return 0;
}

/* As much of the file as is looked at. @content: content_free() it in any case. */
static int read_file(const char *path, struct content *content, struct zi_text *text)
{
	_cleanup_(zi_closep) int fd = -1;
	uint8_t length[ESTIMATE_LENGTH_BYTES];
	uint64_t file_bytes = 0, wanted_bytes;
	int r = open_file(path, &fd, &file_bytes, text);

	if (r)
		return err_trace(r);
	if (file_bytes < sizeof(length))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "has %llu bytes: it is cut short, or empty",
		                     (unsigned long long)file_bytes);
	r = read_at(fd, length, sizeof(length), text);
	if (r)
		return err_trace(r);
	wanted_bytes = file_bytes;
	if (is_length(length))
		wanted_bytes = ZI_MIN(file_bytes, sizeof(length) + length_of(length));
	if (wanted_bytes > ESTIMATE_HEADER_BYTES_MAX + sizeof(length))
		return zi_text_error(text, err_origin(-EINVAL),
		                     "is neither a safetensors file, whose header has at most "
		                     "100 MB, nor so much JSON");
	content->bytes = malloc(wanted_bytes);
	if (!content->bytes)
		return zi_text_error(text, err_origin(-ENOMEM), "is more than there is memory for");
	content->byte_count = wanted_bytes;
	return err_trace(read_at(fd, content->bytes, wanted_bytes, text));
}

/* ---- what they hold ---- */

static int parse_json(const char *bytes, size_t byte_count, const char *what, json_t **ret_json,
                      struct zi_text *text)
{
	json_error_t error;
	json_t *json = json_loadb(bytes, byte_count, JSON_REJECT_DUPLICATES, &error);

	if (json_is_object(json)) {
		*ret_json = json;
		return 0;
	}
	if (json)
		zi_text_set(text, "is no %s: an object is expected", what);
	else
		zi_text_set(text, "is no %s: line %d, column %d: %.120s", what, error.line,
		            error.column, error.text);
	json_decref(json);
	return err_origin(-EINVAL);
}

static int read_header(struct estimate_model *model, const uint8_t *bytes, size_t byte_count,
                       struct zi_text *text)
{
	uint64_t length = length_of(bytes);
	json_t *header = NULL;
	int r;

	if (length > ESTIMATE_HEADER_BYTES_MAX)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "is no safetensors file: a header of %llu bytes, at most 100 "
		                     "MB are possible",
		                     (unsigned long long)length);
	if (length > byte_count - ESTIMATE_LENGTH_BYTES)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "is cut short: of a header of %llu bytes %zu are there",
		                     (unsigned long long)length,
		                     byte_count - ESTIMATE_LENGTH_BYTES);
	r = parse_json((const char *)bytes + ESTIMATE_LENGTH_BYTES, length, "safetensors header",
	               &header, text);
	if (!r)
		r = estimate_read_header(model, header, text);
	json_decref(header);
	return err_trace(r);
}

/* One of an index's files, which lies beside it. */
static int read_part(struct estimate_model *model, const char *directory, const char *name,
                     struct zi_text *text)
{
	_cleanup_(content_free) struct content content = { 0 };
	_cleanup_(zi_freep) char *path = NULL;
	struct zi_text why = { "" };
	int r;

	if (asprintf(&path, "%s/%s", directory, name) < 0) {
		path = NULL;
		return zi_text_error(text, err_origin(-ENOMEM), "there is no memory for its names");
	}
	r = read_file(path, &content, &why);
	if (!r && !is_length(content.bytes))
		r = zi_text_error(&why, err_origin(-EINVAL), "is no safetensors file");
	if (!r)
		r = read_header(model, content.bytes, content.byte_count, &why);
	return r ? zi_text_error(text, r, "its file '%.80s': %s", name, why.chars) : 0;
}

/* model.safetensors.index.json: {"weight_map": {tensor: file}}. */
static int read_index(struct estimate_model *model, const json_t *map, const char *directory,
                      struct zi_text *text)
{
	json_t *files = json_object(), *file;
	const char *name;
	int r = 0;

	json_object_foreach((json_t *)map, name, file)
	{
		const char *word = json_string_value(file);

		if (!word || !*word || strchr(word, '/'))
			r = zi_text_error(text, err_origin(-EINVAL),
			                  "weight_map: '%.80s' lies in no file beside it", name);
		else if (json_object_set(files, word, file) ||
		         json_object_size(files) > INDEX_FILES_MAX)
			r = zi_text_error(text, err_origin(-EINVAL),
			                  "weight_map: more than %u files", INDEX_FILES_MAX);
		if (r)
			break;
	}
	if (!r && !directory)
		r = zi_text_error(text, err_origin(-EINVAL), "it is an index, without its files");
	json_object_foreach(files, name, file)
	{
		if (!r)
			r = read_part(model, directory, name, text);
	}
	json_decref(files);
	return err_trace(r);
}

static int read_json(struct estimate_model *model, json_t *json, const char *directory,
                     struct zi_text *text)
{
	const json_t *map = json_object_get(json, "weight_map");

	/* A part says what all of the model is. */
	if (!strcmp(get_word(json, "format"), CHECKPOINT_WHOLE) ||
	    !strcmp(get_word(json, "format"), CHECKPOINT_PART))
		return err_trace(estimate_read_record(model, json, text));
	if (json_is_object(map))
		return err_trace(read_index(model, map, directory, text));
	if (json_object_get(json, "model_type") || json_object_get(json, "hidden_size"))
		return err_trace(estimate_read_config(model, json, text));
	return zi_text_error(text, err_origin(-EINVAL),
	                     "is neither a config.json of Hugging Face, nor an index of "
	                     "safetensors files, nor a manifest.json of zctl export");
}

/* See model.h. */
int estimate_read_bytes(struct estimate_model *model, const void *bytes, size_t byte_count,
                        const char *directory, struct zi_text *text)
{
	json_t *json = NULL;
	int r;

	if (byte_count < ESTIMATE_LENGTH_BYTES)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "has %zu bytes: it is cut short, or empty", byte_count);
	if (is_length(bytes)) {
		r = read_header(model, bytes, byte_count, text);
	} else {
		r = parse_json(bytes, byte_count, "safetensors file, and no JSON", &json, text);
		if (!r)
			r = read_json(model, json, directory, text);
		json_decref(json);
	}
	if (!r)
		r = estimate_end_headers(model, text);
	if (!r)
		r = estimate_model_end(model, text);
	return err_trace(r);
}

static int read_path(struct estimate_model *model, const char *path, struct zi_text *text)
{
	_cleanup_(content_free) struct content content = { 0 };
	_cleanup_(zi_freep) char *copy = strdup(path);
	int r = read_file(path, &content, text);

	if (!r && !copy)
		r = zi_text_error(text, err_origin(-ENOMEM), "no memory");
	if (!r)
		r = estimate_read_bytes(model, content.bytes, content.byte_count, dirname(copy),
		                        text);
	return err_trace(r);
}

/* See model.h. */
int estimate_read(struct estimate_model *model, const char *source, uint32_t unit_count,
                  struct zi_text *text)
{
	struct zi_text why = { "" };
	int r;

	*model = (struct estimate_model){ 0 };
	if (estimate_is_count(source)) {
		r = estimate_read_count(model, source, unit_count, text);
		return r ? err_trace(r) : err_trace(estimate_model_end(model, text));
	}
	if (unit_count)
		return zi_text_error(text, err_origin(-EINVAL),
		                     "--units %u is for a count of elements: %.80s says itself "
		                     "which units there are",
		                     unit_count, source);
	r = read_path(model, source, &why);
	return r ? zi_text_error(text, r, "%.120s: %s", source, why.chars) : 0;
}
