/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One safetensors file: 8 bytes little-endian, the length of a JSON header padded with spaces to a
 * multiple of 8, then the tensors without gaps, in the model's order
 * (https://huggingface.co/docs/safetensors). A unit's parameters lie one after the other in its
 * flat space, so a subgroup's elements are one run in the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/checked.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/wire/geometry.h"
#include "kernels/hash.h"
#include "zctl/export.h"
#include "zctl/get.h"

static int complain(const struct export_file *file, const char *doing, int error)
{
	zctl_complain("%s %s: %s%s; nothing was exported", doing, file->path, strerror(error),
	              error == ENOSPC || error == EDQUOT || error == EFBIG
	                      ? " (export elsewhere, or free space)"
	                      : "");
	return 1;
}

static json_t *tensor(const json_t *param, const char *dtype, uint64_t begin, uint64_t end)
{
	json_t *object = json_object();

	(void)json_object_set_new(object, "dtype", json_string(dtype));
	(void)json_object_set(object, "shape", json_object_get(param, "shape"));
	(void)json_object_set_new(object, "data_offsets",
	                          json_pack("[I,I]", (json_int_t)begin, (json_int_t)end));
	return object;
}

/* Values are strings. What is no tensor is there for zctl load, when there is no manifest. */
static json_t *make_metadata(const struct export *export, bool has_model)
{
	static const char *const keys[] = { "param_dtype", "grad_dtype", "optimizer",
		                            "schedule",    "units",      "params" };
	const json_t *record = export->model.record;
	json_t *metadata =
		json_pack("{s:s,s:s,s:o}", "format", "pt", "zinf_job", export->model.job,
	                  "zinf_step", json_sprintf("%lld", (long long)get_signed(record, "step")));
	json_t *model = json_object();
	char *text;

	for (size_t i = 0; i < ZI_COUNT_OF(keys); i++)
		(void)json_object_set(model, keys[i], json_object_get(record, keys[i]));
	text = has_model ? json_dumps(model, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	if (text)
		(void)json_object_set_new(metadata, "zinf_model", json_string(text));
	free(text);
	json_decref(model);
	return metadata;
}

/* Heap; NULL: no memory, or a name that the format keeps for itself. */
static char *make_header(const struct export *export, enum zi_dtype dtype, bool has_model)
{
	const json_t *params = json_object_get(export->model.record, "params");
	const char *word = dtype == ZI_DTYPE_BF16 ? "BF16" : "F32";
	json_t *header = json_object(), *param, *rows;
	uint64_t offset = 0;
	size_t index, dim;
	char *text;

	(void)json_object_set_new(header, "__metadata__", make_metadata(export, has_model));
	json_array_foreach(params, index, param)
	{
		uint64_t count = 1;

		json_array_foreach(json_object_get(param, "shape"), dim, rows) count *=
			(uint64_t)json_integer_value(rows);
		if (json_object_get(header, get_word(param, "name"))) {
			zctl_complain("two tensors cannot be named '%s'", get_word(param, "name"));
			json_decref(header);
			return NULL;
		}
		(void)json_object_set_new(
			header, get_word(param, "name"),
			tensor(param, word, offset, offset + count * zi_dtype_bytes(dtype)));
		offset += count * zi_dtype_bytes(dtype);
	}
	text = json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
	json_decref(header);
	return text;
}

static int write_all(int fd, const void *bytes, uint64_t byte_count, uint64_t offset)
{
	const uint8_t *source = bytes;

	while (byte_count) {
		ssize_t done = pwrite(fd, source, byte_count, (off_t)offset);

		if (done < 0 && errno == EINTR && !zctl_is_cancelled())
			continue;
		if (done <= 0)
			return done ? errno : EIO;
		source += done;
		offset += (uint64_t)done;
		byte_count -= (uint64_t)done;
	}
	return 0;
}

static int write_header(struct export_file *file, char *text)
{
	uint64_t text_bytes = strlen(text);
	uint64_t padded = zi_align_up(text_bytes, 8);
	uint8_t length[8];
	int error;

	for (uint32_t i = 0; i < 8; i++)
		length[i] = (uint8_t)(padded >> 8 * i);
	file->data_offset = 8 + padded;
	error = write_all(file->fd, length, 8, 0);
	if (!error)
		error = write_all(file->fd, text, text_bytes, 8);
	if (!error && padded > text_bytes)
		error = write_all(file->fd, "        ", padded - text_bytes, 8 + text_bytes);
	return error;
}

int export_file_make(struct export_file *file, const char *path, const struct export *export,
                     enum zi_dtype dtype, bool has_hashes)
{
	_cleanup_(zi_freep) char *header = make_header(export, dtype, !has_hashes);
	int error;

	*file = (struct export_file){ .fd = -1, .width = zi_dtype_bytes(dtype) };
	file->path = strdup(path);
	if (!header || !file->path) {
		zctl_complain("no header for %s", path);
		return 1;
	}
	file->hashes = has_hashes ? json_array() : NULL;
	file->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (file->fd < 0)
		return complain(file, "making", errno);
	file->is_made = true;
	error = write_header(file, header);
	if (error)
		return complain(file, "writing", error);
	file->bytes = file->data_offset + export->model.element_count * file->width;
	/* A disk that is too small says so now; a file system without this says it later. */
	error = posix_fallocate(file->fd, 0, (off_t)file->bytes);
	if (error && error != EOPNOTSUPP && error != EINVAL)
		return complain(file, "writing", error);
	return 0;
}

int export_file_put(struct export_file *file, const struct export *export, uint32_t unit,
                    uint32_t subgroup, const void *bytes)
{
	const struct model_unit *entry = &export->model.units[unit];
	uint64_t first = (uint64_t)subgroup * ZI_SUBGROUP_ELEMENTS;
	uint64_t padded = zi_geometry_subgroup_elements(entry->padded_count, subgroup);
	uint64_t count =
		first >= entry->element_count ? 0 : ZI_MIN(padded, entry->element_count - first);
	int error;

	if (file->hashes)
		(void)json_array_append_new(
			file->hashes, json_sprintf("%016llx", (unsigned long long)kern_hash(
								      bytes, count * file->width)));
	error = write_all(file->fd, bytes, count * file->width,
	                  file->data_offset + (entry->element_first + first) * file->width);
	return error ? complain(file, "writing", error) : 0;
}

int export_file_end(struct export_file *file)
{
	if (fsync(file->fd))
		return complain(file, "syncing", errno);
	if (close(zi_steal_fd(file->fd)))
		return complain(file, "closing", errno);
	return 0;
}

void export_file_drop(struct export_file *file, bool is_kept)
{
	if (file->fd >= 0)
		(void)close(file->fd); /* It goes. */
	if (!is_kept && file->is_made)
		(void)unlink(file->path); /* Made by us. */
	json_decref(file->hashes);
	free(file->path);
	*file = (struct export_file){ .fd = -1 };
}
