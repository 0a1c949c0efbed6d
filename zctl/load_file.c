/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a safetensors file (export_file.c says what one is). Its tensors may lie in any order, as
 * other tools write them. Nothing in it is believed. Subgroups are asked for in order, and the next
 * ones are read meanwhile where a subgroup is one run in the file, as in an export.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/checked.h"
#include "common/base/cleanup.h"
#include "common/base/text.h"
#include "common/wire/geometry.h"
#include "kernels/hash.h"
#include "zctl/get.h"
#include "zctl/load.h"

/* What the format allows itself. */
#define HEADER_BYTES_MAX 100000000u

static int complain(const struct load_file *file, const char *what)
{
	zctl_complain("%s %s; nothing was loaded", file->path, what);
	return 1;
}

static int cannot_read(const struct load_file *file, uint64_t byte_count, uint64_t offset,
                       int error)
{
	zctl_complain("reading %" PRIu64 " bytes at offset %" PRIu64 " of %s: %s; nothing "
	              "was loaded",
	              byte_count, offset, file->path,
	              error == ENODATA ? "the file is cut short" : strerror(error));
	return 1;
}

static int read_at(const struct load_file *file, void *bytes, uint64_t byte_count, uint64_t offset)
{
	int error = mover_read(&file->file, bytes, byte_count, offset);

	return error ? cannot_read(file, byte_count, offset, error) : 0;
}

static int read_header(struct load_file *file)
{
	_cleanup_(zi_freep) char *text = NULL;
	uint8_t length[8];
	uint64_t text_bytes = 0;
	json_error_t error;

	if (file->bytes < sizeof length)
		return complain(file, "is no safetensors file: it is cut short");
	if (read_at(file, length, sizeof length, 0))
		return 1;
	for (uint32_t i = 0; i < sizeof length; i++)
		text_bytes |= (uint64_t)length[i] << 8 * i;
	if (text_bytes > HEADER_BYTES_MAX || text_bytes > file->bytes - sizeof length)
		return complain(file, "is no safetensors file, or cut short: its header is longer "
		                      "than the file");
	text = malloc(text_bytes + 1);
	if (!text)
		return complain(file, "has a header for which there is no memory");
	if (read_at(file, text, text_bytes, sizeof length))
		return 1;
	file->header = json_loadb(text, text_bytes, JSON_REJECT_DUPLICATES, &error);
	file->data_offset = sizeof length + text_bytes;
	if (json_is_object(file->header))
		return 0;
	zctl_complain("%s is no safetensors file: its header, at %d: %s; nothing was "
	              "loaded",
	              file->path, error.position, error.text);
	return 1;
}

int load_file_open(struct load_file *file, const char *path, struct mover *mover)
{
	struct stat status;
	int error;

	*file = (struct load_file){ .mover = mover,
		                    .file = { .fd = -1, .direct_fd = -1 },
		                    .path = strdup(path) };
	if (!file->path)
		return 1;
	error = mover_file_open(&file->file, path, O_RDONLY, 0);
	if (!error && fstat(file->file.fd, &status))
		error = errno;
	if (error) {
		zctl_complain("opening %s: %s; nothing was loaded", path, strerror(error));
		return 1;
	}
	if (!S_ISREG(status.st_mode))
		return complain(file, "is not a file");
	file->bytes = (uint64_t)status.st_size;
	return read_header(file);
}

static int match_param(struct load_file *file, const struct model_param *param, enum zi_dtype dtype,
                       uint64_t *ret_begin)
{
	const json_t *tensor = json_object_get(file->header, param->name);
	const json_t *shape = json_object_get(tensor, "shape");
	const json_t *offsets = json_object_get(tensor, "data_offsets");
	uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
	uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
	uint64_t data_bytes = file->bytes - file->data_offset;
	const char *word = model_dtype_word(dtype);
	const char *what = NULL;

	if (!tensor)
		what = "is missing";
	else if (strcmp(get_word(tensor, "dtype"), word) != 0)
		what = "is of another dtype";
	for (uint32_t i = 0; !what && i < param->dim_count; i++)
		if ((uint64_t)json_integer_value(json_array_get(shape, i)) != param->shape[i])
			what = "is of another shape";
	if (!what && json_array_size(shape) != param->dim_count)
		what = "is of another shape";
	if (!what && (end < begin || end - begin != param->element_count * file->width))
		what = "is of another length";
	if (!what && end > data_bytes)
		what = "lies beyond the end of the file, which is cut short";
	*ret_begin = begin;
	if (!what)
		return 0;
	zctl_complain("%s: tensor '%s' %s (%s, %" PRIu64 " elements are wanted); nothing was "
	              "loaded",
	              file->path, param->name, what, word, param->element_count);
	return 1;
}

static int match_entry(struct load_file *file, const struct model *model, const json_t *entry)
{
	if (get_count(entry, "bytes") != file->bytes) {
		zctl_complain("%s has %" PRIu64 " bytes, and %" PRIu64 " in manifest.json: it is "
		              "%s; nothing was loaded",
		              file->path, file->bytes, get_count(entry, "bytes"),
		              file->bytes < get_count(entry, "bytes") ? "cut short"
		                                                      : "another file");
		return 1;
	}
	file->hashes = json_object_get(entry, "xxh3");
	if (json_array_size(file->hashes) != model->subgroup_count)
		return complain(file, "has another number of checksums in manifest.json than "
		                      "subgroups");
	return 0;
}

int load_file_match(struct load_file *file, const struct model *model, enum zi_dtype dtype,
                    const json_t *entry)
{
	size_t tensor_count = json_object_size(file->header);

	file->width = zi_dtype_bytes(dtype);
	if (entry && match_entry(file, model, entry))
		return 1;
	file->begins = calloc(model->param_count + 1ul, sizeof *file->begins);
	file->memory = mover_memory(LOAD_SLOTS * LOAD_SLOT_BYTES);
	for (uint32_t i = 0; file->memory && i < LOAD_SLOTS; i++)
		file->slots[i].move.buffer = file->memory + i * LOAD_SLOT_BYTES;
	if (!file->begins || !file->memory)
		return complain(file, "has more tensors than there is memory for");
	for (uint32_t i = 0; i < model->param_count; i++)
		if (match_param(file, &model->params[i], dtype, &file->begins[i]))
			return 1;
	if (json_object_get(file->header, "__metadata__"))
		tensor_count--;
	if (tensor_count == model->param_count)
		return 0;
	zctl_complain("%s has %zu tensors, but the model %u parameters; nothing was loaded",
	              file->path, tensor_count, model->param_count);
	return 1;
}

/* Against what the manifest says. @count: without padding. */
static int verify(const struct load_file *file, const struct model *model, uint32_t unit,
                  uint32_t subgroup, const void *bytes, uint64_t count)
{
	const struct model_unit *entry = &model->units[unit];
	const char *word =
		json_string_value(json_array_get(file->hashes, entry->subgroup_first + subgroup));
	char got[20];

	if (!file->hashes)
		return 0;
	(void)snprintf(got, sizeof got, "%016llx",
	               (unsigned long long)kern_hash(bytes, count * file->width));
	if (word && !strcmp(word, got))
		return 0;
	zctl_complain("%s is damaged: unit '%s', subgroup %u, %" PRIu64 " bytes from offset "
	              "%" PRIu64 " on, do not match their checksum in manifest.json; nothing was "
	              "loaded",
	              file->path, entry->name, entry->subgroup_base + subgroup, count * file->width,
	              file->data_offset + file->begins[entry->param_first] +
	                      (uint64_t)subgroup * ZI_SUBGROUP_ELEMENTS * file->width);
	return 1;
}

/* Parameters of a unit lie in the file in pieces, or one after the other. Calls @take for every run
 * of a subgroup, until it is not 0. @done: bytes of the subgroup before the run. */
static int each_run(const struct load_file *file, const struct model *model, uint32_t unit,
                    uint32_t subgroup,
                    int (*take)(void *arg, uint64_t done, uint64_t bytes, uint64_t offset),
                    void *arg)
{
	const struct model_unit *entry = &model->units[unit];
	uint64_t first, done = 0, run_first = 0, run_bytes = 0, run_offset = 0;
	uint64_t count = model_subgroup_elements(model, unit, subgroup, &first);
	int r = 0;

	for (uint32_t i = 0; i < entry->param_count && done < count && !r; i++) {
		const struct model_param *param = &model->params[entry->param_first + i];
		uint64_t skip = first + done - param->element_first;
		uint64_t offset, elements;

		if (first + done >= param->element_first + param->element_count)
			continue;
		elements = ZI_MIN(param->element_count - skip, count - done);
		offset = file->data_offset + file->begins[entry->param_first + i] +
		         skip * file->width;
		if (run_bytes && offset != run_offset + run_bytes) {
			r = take(arg, run_first, run_bytes, run_offset);
			run_bytes = 0;
		}
		if (!run_bytes) {
			run_first = done * file->width;
			run_offset = offset;
		}
		run_bytes += elements * file->width;
		done += elements;
	}
	return r || !run_bytes ? r : take(arg, run_first, run_bytes, run_offset);
}

struct piece {
	const struct load_file *file;
	uint8_t *target;
};

static int read_piece(void *arg, uint64_t done, uint64_t bytes, uint64_t offset)
{
	const struct piece *piece = arg;

	return read_at(piece->file, piece->target + done, bytes, offset);
}

struct run {
	uint32_t count; /* of the subgroup's */
	uint64_t bytes, offset;
};

static int find_run(void *arg, uint64_t done, uint64_t bytes, uint64_t offset)
{
	struct run *run = arg;

	(void)done;
	run->count++;
	run->bytes = bytes;
	run->offset = offset;
	return 0;
}

/* Whole blocks around a subgroup that is one run, but not beyond the end of the file. */
static void begin(struct load_file *file, const struct model *model, uint32_t unit,
                  uint32_t subgroup, struct load_slot *slot)
{
	struct run run = { .count = 0 };
	uint64_t begin, end;

	(void)each_run(file, model, unit, subgroup, find_run, &run); /* Never fails. */
	slot->is_begun = run.count == 1 && run.offset % file->width == 0;
	slot->skip_bytes = 0;
	if (!slot->is_begun)
		return;
	begin = run.offset - run.offset % MOVER_ALIGN_BYTES;
	end = ZI_MIN(zi_align_up(run.offset + run.bytes, MOVER_ALIGN_BYTES), file->bytes);
	slot->skip_bytes = run.offset - begin;
	slot->move.file = &file->file;
	slot->move.offset_bytes = begin;
	slot->move.bytes = end - begin;
	mover_submit(file->mover, &slot->move);
}

/* Subgroups up to LOAD_SLOTS - 1 behind @number, which is the model's @number-th. */
static void read_ahead(struct load_file *file, const struct model *model, uint64_t number)
{
	for (; file->ahead_number < number + LOAD_SLOTS && file->ahead_unit < model->unit_count;
	     file->ahead_number++) {
		const struct model_unit *unit = &model->units[file->ahead_unit];

		begin(file, model, file->ahead_unit,
		      (uint32_t)(file->ahead_number - unit->subgroup_first),
		      &file->slots[file->ahead_number % LOAD_SLOTS]);
		if (file->ahead_number + 1 == unit->subgroup_first + unit->subgroup_count)
			file->ahead_unit++;
	}
}

int load_file_get(struct load_file *file, const struct model *model, uint32_t unit,
                  uint32_t subgroup, const void **ret_bytes)
{
	uint64_t number = model->units[unit].subgroup_first + subgroup, first;
	uint64_t padded = zi_geometry_subgroup_elements(model->units[unit].padded_count, subgroup);
	uint64_t count = model_subgroup_elements(model, unit, subgroup, &first);
	struct load_slot *slot = &file->slots[number % LOAD_SLOTS];
	uint8_t *bytes;
	int r;

	read_ahead(file, model, number);
	bytes = slot->move.buffer + slot->skip_bytes;
	if (slot->is_begun) {
		r = mover_wait(file->mover, &slot->move);
		if (r)
			return cannot_read(file, slot->move.bytes, slot->move.offset_bytes, r);
	} else if (each_run(file, model, unit, subgroup, read_piece,
	                    &(struct piece){ .file = file, .target = bytes })) {
		return 1;
	}
	memset(bytes + count * file->width, 0, (padded - count) * file->width);
	*ret_bytes = bytes;
	return verify(file, model, unit, subgroup, bytes, count);
}

void load_file_close(struct load_file *file)
{
	if (!file->path)
		return;
	for (uint32_t i = 0; file->memory && i < LOAD_SLOTS; i++)
		(void)mover_wait(file->mover, &file->slots[i].move); /* Of no use any more. */
	mover_memory_free(file->memory, LOAD_SLOTS * LOAD_SLOT_BYTES);
	mover_file_close(&file->file);
	json_decref(file->header);
	free(file->begins);
	free(file->path);
}
