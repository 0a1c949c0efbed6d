/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One safetensors file: 8 bytes little-endian, the length of a JSON header padded with spaces to a
 * multiple of 8, then the tensors without gaps, in the model's order
 * (https://huggingface.co/docs/safetensors). A unit's parameters lie one after the other in its
 * flat space, so a subgroup's elements are one run in the file, and the file is written from its
 * front to its end, in blocks that go to the disk while the next ones are filled.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/checked.h"
#include "common/base/fd.h"
#include "common/base/text.h"
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

static json_t *tensor(const struct model_param *param, const char *dtype, uint64_t begin,
                      uint64_t end)
{
	json_t *object = json_object(), *shape = json_array();

	for (uint32_t i = 0; i < param->dim_count; i++)
		(void)json_array_append_new(shape, json_integer((json_int_t)param->shape[i]));
	(void)json_object_set_new(object, "dtype", json_string(dtype));
	(void)json_object_set_new(object, "shape", shape);
	(void)json_object_set_new(object, "data_offsets",
	                          json_pack("[I,I]", (json_int_t)begin, (json_int_t)end));
	return object;
}

/* Values are strings. What is no tensor is there for zctl load, when there is no manifest. */
static json_t *make_metadata(const struct export *export, bool has_model)
{
	static const char *const keys[] = { "param_dtype",    "grad_dtype", "optimizer",
		                            "grad_reduction", "units",      "params" };
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
	const struct model *model = export->written;
	const char *word = model_dtype_word(dtype);
	json_t *header = json_object();
	char *text;

	(void)json_object_set_new(header, "__metadata__", make_metadata(export, has_model));
	for (uint32_t i = 0; i < model->param_count; i++) {
		const struct model_param *param = &model->params[i];
		uint64_t begin = param->element_first * zi_dtype_bytes(dtype);
		uint64_t bytes = param->element_count * zi_dtype_bytes(dtype);

		if (json_object_get(header, param->name)) {
			zctl_complain("two tensors cannot be named '%s'", param->name);
			json_decref(header);
			return NULL;
		}
		(void)json_object_set_new(header, param->name,
		                          tensor(param, word, begin, begin + bytes));
	}
	text = json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
	json_decref(header);
	return text;
}

/* The block that is full, or the last one, goes; the next one is free when this returns. Return: 0,
 * or the errno of one that was written before. */
static int send_block(struct export_file *file, uint64_t byte_count)
{
	struct mover_move *block = &file->blocks[file->block_index];

	block->bytes = byte_count;
	block->offset_bytes = file->done_bytes - byte_count;
	mover_submit(file->mover, block);
	file->block_index = (file->block_index + 1) % EXPORT_BLOCKS;
	return mover_wait(file->mover, &file->blocks[file->block_index]);
}

/* The next bytes of the file. Return: 0, or an errno, of any write before. */
static int append(struct export_file *file, const void *bytes, uint64_t byte_count)
{
	const uint8_t *source = bytes;
	int error = 0;

	while (byte_count && !error) {
		uint64_t place = file->done_bytes % EXPORT_BLOCK_BYTES;
		uint64_t count = ZI_MIN(byte_count, EXPORT_BLOCK_BYTES - place);

		memcpy(file->blocks[file->block_index].buffer + place, source, count);
		source += count;
		byte_count -= count;
		file->done_bytes += count;
		if (file->done_bytes % EXPORT_BLOCK_BYTES == 0)
			error = send_block(file, EXPORT_BLOCK_BYTES);
	}
	return error;
}

/* Return: 0, or the errno of a block. */
static int wait_for_all(struct export_file *file)
{
	int error = 0;

	for (uint32_t i = 0; i < EXPORT_BLOCKS; i++) {
		int r = mover_wait(file->mover, &file->blocks[i]);

		error = error ? error : r;
	}
	return error;
}

static int write_header(struct export_file *file, const char *text)
{
	uint64_t text_bytes = strlen(text);
	uint64_t padded = zi_align_up(text_bytes, 8);
	uint8_t length[8];
	int error;

	for (uint32_t i = 0; i < 8; i++)
		length[i] = (uint8_t)(padded >> 8 * i);
	error = append(file, length, 8);
	if (!error)
		error = append(file, text, text_bytes);
	if (!error)
		error = append(file, "        ", padded - text_bytes);
	file->data_offset = file->done_bytes;
	return error;
}

/* A disk that is too small says so now; a file system without this says it later. Return: an errno.
 */
static int reserve(const struct export_file *file)
{
	if (!fallocate(file->file.fd, 0, 0, (off_t)file->bytes))
		return 0;
	return errno == EOPNOTSUPP || errno == EINVAL ? 0 : errno;
}

int export_file_make(struct export_file *file, const char *path, struct mover *mover,
                     const struct export *export, enum zi_dtype dtype, bool has_hashes)
{
	_cleanup_(zi_freep) char *header = make_header(export, dtype, !has_hashes);
	int error;

	*file = (struct export_file){ .mover = mover,
		                      .file = { .fd = -1, .direct_fd = -1 },
		                      .width = zi_dtype_bytes(dtype) };
	file->path = strdup(path);
	file->memory = mover_memory(EXPORT_BLOCKS * EXPORT_BLOCK_BYTES);
	if (!header || !file->path || !file->memory) {
		zctl_complain("no header for %s", path);
		return 1;
	}
	for (uint32_t i = 0; i < EXPORT_BLOCKS; i++)
		file->blocks[i] = (struct mover_move){
			.file = &file->file,
			.is_write = true,
			.buffer = file->memory + i * EXPORT_BLOCK_BYTES,
		};
	file->hashes = has_hashes ? json_array() : NULL;
	error = mover_file_open(&file->file, path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (error)
		return complain(file, "making", error);
	file->is_made = true;
	error = write_header(file, header);
	file->bytes = file->data_offset + export->written->element_count * file->width;
	if (!error)
		error = reserve(file);
	return error ? complain(file, "writing", error) : 0;
}

int export_file_put(struct export_file *file, const struct model *model, uint32_t unit,
                    uint32_t subgroup, const void *bytes)
{
	uint64_t first;
	uint64_t count = model_subgroup_elements(model, unit, subgroup, &first);
	int error;

	if (file->hashes)
		(void)json_array_append_new(
			file->hashes, json_sprintf("%016llx", (unsigned long long)kern_hash(
								      bytes, count * file->width)));
	assert(!count || file->done_bytes == file->data_offset + first * file->width);
	error = append(file, bytes, count * file->width);
	return error ? complain(file, "writing", error) : 0;
}

int export_file_end(struct export_file *file)
{
	uint64_t rest_bytes = file->done_bytes % EXPORT_BLOCK_BYTES;
	int error = rest_bytes ? send_block(file, rest_bytes) : 0, r;

	assert(error || file->done_bytes == file->bytes);
	r = wait_for_all(file);
	error = error ? error : r;
	if (error)
		return complain(file, "writing", error);
	if (fsync(file->file.fd))
		return complain(file, "syncing", errno);
	if (close(zi_steal_fd(file->file.fd)))
		return complain(file, "closing", errno);
	return 0;
}

void export_file_drop(struct export_file *file, bool is_kept)
{
	if (file->memory)
		(void)wait_for_all(file); /* It goes, or went well. */
	mover_file_close(&file->file);
	if (!is_kept && file->is_made)
		(void)unlink(file->path); /* Made by us. */
	mover_memory_free(file->memory, EXPORT_BLOCKS * EXPORT_BLOCK_BYTES);
	json_decref(file->hashes);
	free(file->path);
	*file = (struct export_file){ .file = { .fd = -1, .direct_fd = -1 } };
}

/* ---- the name, where the file system knows no RENAME_NOREPLACE ----
 *
 * An empty file or directory takes the name, which only the rename replaces: a claim. It is locked
 * (flock) as long as its export lives, and has a mode that nobody else gives: one that is not
 * locked was left by an export that was killed, and belongs to the next one of that uid. */

#define CLAIM_MODE (S_ISVTX | S_IRUSR | S_IWUSR)

static mode_t claim_mode(bool is_directory)
{
	return is_directory ? CLAIM_MODE | S_IXUSR : CLAIM_MODE;
}

/* Opens and locks a claim that was left at @path. Return: a descriptor; -1 with EEXIST: it is
 * something else, or in use. */
static int claim_open(const char *path, bool is_directory)
{
	_cleanup_(zi_closep) int fd = open(path, (is_directory ? O_RDONLY | O_DIRECTORY : O_RDWR) |
	                                                 O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	mode_t mode = claim_mode(is_directory) | (is_directory ? S_IFDIR : S_IFREG);
	struct stat status, named;

	if (fd >= 0 && !fstat(fd, &status) && status.st_mode == mode &&
	    status.st_uid == geteuid() && (is_directory || !status.st_size) &&
	    !flock(fd, LOCK_EX | LOCK_NB) && !lstat(path, &named) &&
	    named.st_dev == status.st_dev && named.st_ino == status.st_ino)
		return zi_steal_fd(fd);
	errno = EEXIST;
	return -1;
}

/* Makes one, locked before its mode says that it is one. -1: errno. */
static int claim_make(const char *path, bool is_directory)
{
	_cleanup_(zi_closep) int fd = -1;

	if (is_directory && mkdir(path, S_IRWXU))
		return -1;
	if (is_directory)
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	else
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		return -1;
	/* A file system without locks or modes: after a kill the claim stays. */
	if (!flock(fd, LOCK_EX | LOCK_NB))
		(void)fchmod(fd, claim_mode(is_directory));
	return zi_steal_fd(fd);
}

static int rename_by_claim(const char *partial, const char *path, bool is_directory)
{
	_cleanup_(zi_closep) int fd = claim_make(path, is_directory);
	int error;

	if (fd < 0 && errno == EEXIST)
		fd = claim_open(path, is_directory);
	if (fd < 0)
		return -1;
	if (!rename(partial, path))
		return 0;
	error = errno;
	(void)(is_directory ? rmdir : unlink)(path); /* Ours. */
	errno = error;
	return -1;
}

bool export_name_is_free(const char *path, bool is_directory)
{
	_cleanup_(zi_closep) int fd = -1;
	struct stat status;

	if (lstat(path, &status))
		return true;
	fd = claim_open(path, is_directory);
	return fd >= 0;
}

int export_rename(const char *partial, const char *path, bool is_directory)
{
	if (!renameat2(AT_FDCWD, partial, AT_FDCWD, path, RENAME_NOREPLACE))
		return 0;
	/* A file system that does not know the flag; a claim that was left. */
	if (errno != EINVAL && errno != EEXIST)
		return -1;
	return rename_by_claim(partial, path, is_directory);
}
