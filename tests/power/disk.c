/* SPDX-License-Identifier: Apache-2.0 */
/* The disk after a power failure (disk.h). One thread. */
#include "tests/power/disk.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "kernels/hash.h"

#define NEVER UINT64_MAX

struct disk {
	const struct record_list *list;
	uint64_t *durable; /* (list->count,) from which place on a record is surely there */
	bool *is_folded;   /* (list->count,) it is in the flushed images */
	uint32_t first;    /* all before are folded */
	uint64_t cut;
	struct image flushed[RECORD_FILES_MAX];
	char flushed_names[RECORD_FILES_MAX][RECORD_NAME_BYTES]; /* "": none */
	struct image chosen[RECORD_FILES_MAX];
	char chosen_names[RECORD_FILES_MAX][RECORD_NAME_BYTES];
};

/* How the unflushed records of one file are chosen; `count` of them. */
struct pick {
	enum { PICK_NOTHING, PICK_EVERYTHING, PICK_SECTORS } how;
	uint64_t seed;
	uint32_t sector_bytes;
	uint32_t count;
	enum disk_tear tear;
	uint32_t old_share, new_share; /* of 16 sectors: as before, as last */
	uint32_t size_limit;           /* records that count for its size */
};

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	(void)fprintf(stderr, "disk: %s\n", what);
	abort();
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static uint64_t draw(uint64_t *state)
{
	*state += 0x9e3779b97f4a7c15ull;
	return mix(*state);
}

/* ---- which flush makes a record durable ---- */

static bool is_of_names(const struct record *record)
{
	return record->kind == RECORD_CREATE || record->kind == RECORD_RENAME ||
	       record->kind == RECORD_UNLINK;
}

static bool is_flush(const struct record *record)
{
	return record->kind == RECORD_FLUSH || record->kind == RECORD_FLUSH_NAMES;
}

static enum disk_part part_of(const struct record_list *list, uint32_t file)
{
	const char *name = list->names[file];

	if (strcmp(name, "catalog.db") == 0 || strcmp(name, "catalog.db-mark") == 0)
		return DISK_CATALOG;
	return strncmp(name, "catalog.db-", strlen("catalog.db-")) == 0 ? DISK_LOG : DISK_STORE;
}

static bool is_log_flush(const struct record_list *list, const struct record *flush)
{
	return flush->kind == RECORD_FLUSH && part_of(list, flush->file) == DISK_LOG;
}

/* From which place on @flush has had its effect. */
static uint64_t effect_of(const struct record_list *list, const struct record *flush,
                          enum disk_lie lie, uint64_t lie_from)
{
	bool is_names = flush->kind == RECORD_FLUSH_NAMES;
	bool is_store = !is_names && part_of(list, flush->file) == DISK_STORE;

	if (lie == DISK_HONEST || flush->begin < lie_from)
		return flush->end;
	if ((lie == DISK_DROPS_NAMES_FLUSH && is_names) ||
	    (lie == DISK_DROPS_LOG_FLUSH && is_log_flush(list, flush)) ||
	    (lie == DISK_DROPS_STORE_FLUSH && is_store))
		return NEVER;
	if (lie != DISK_FLUSHES_STORE_LATE || !is_store)
		return flush->end;
	for (uint32_t i = 0; i < list->count; i++)
		if (list->records[i].begin > flush->end && is_log_flush(list, &list->records[i]))
			return list->records[i].end;
	return NEVER;
}

/* Backwards: what has ended before a flush began is durable with the first such one. */
static void find_durable(struct disk *disk, enum disk_lie lie, uint64_t lie_from)
{
	const struct record_list *list = disk->list;

	for (uint32_t i = 0; i < list->count; i++)
		disk->durable[i] = NEVER;
	for (uint32_t i = 0; i < list->count; i++) {
		const struct record *flush = &list->records[i];
		uint64_t effect;

		if (!is_flush(flush))
			continue;
		effect = effect_of(list, flush, lie, lie_from);
		for (uint32_t j = 0; j < i; j++) {
			const struct record *record = &list->records[j];
			bool is_covered =
				flush->kind == RECORD_FLUSH_NAMES
					? is_of_names(record)
					: record->file == flush->file && !is_of_names(record);

			if (is_covered && !is_flush(record) && record->end < flush->begin)
				disk->durable[j] = ZI_MIN(disk->durable[j], effect);
		}
	}
}

/* ---- names ---- */

static void names_fold(char (*names)[RECORD_NAME_BYTES], const struct record *record)
{
	/* Nothing for one that is removed. */
	(void)snprintf(names[record->file], RECORD_NAME_BYTES, "%s", record->name);
}

/* ---- choosing ---- */

/* How many of the unflushed records a sector has seen. */
static uint32_t limit_of(const struct pick *pick, uint64_t sector)
{
	uint64_t bits;

	if (pick->how != PICK_SECTORS)
		return pick->how == PICK_EVERYTHING ? pick->count : 0;
	bits = mix(pick->seed ^ (sector + 1) * 0x9e3779b97f4a7c15ull);
	if ((bits & 15) < pick->old_share)
		return 0;
	if ((bits & 15) < pick->old_share + pick->new_share)
		return pick->count;
	return (uint32_t)((bits >> 8) % (pick->count + 1));
}

/* Whether the sector at @at_bytes of a write is there although the write is torn. */
static bool is_left(const struct pick *pick, const struct record *record, uint64_t at_bytes,
                    uint64_t next_bytes)
{
	switch (pick->tear) {
	case DISK_FIRST_SECTOR:
		return at_bytes == record->offset_bytes;
	case DISK_BUT_FIRST:
		return at_bytes != record->offset_bytes;
	case DISK_BUT_LAST:
		return next_bytes != record->offset_bytes + record->bytes;
	default:
		return true;
	}
}

static void choose_write(struct image *image, const struct record *record, uint32_t ordinal,
                         const struct pick *pick)
{
	bool is_torn = ordinal + 1 == pick->count;
	uint64_t end_bytes = record->offset_bytes + record->bytes;
	uint64_t at_bytes = record->offset_bytes;

	image_hold(image, end_bytes);
	while (at_bytes < end_bytes) {
		uint64_t sector = at_bytes / pick->sector_bytes;
		uint64_t next_bytes = ZI_MIN((sector + 1) * pick->sector_bytes, end_bytes);

		if (ordinal < limit_of(pick, sector) &&
		    (!is_torn || is_left(pick, record, at_bytes, next_bytes)))
			memcpy(image->data + at_bytes,
			       (const uint8_t *)record->data + (at_bytes - record->offset_bytes),
			       next_bytes - at_bytes);
		at_bytes = next_bytes;
	}
}

/* A record that has begun and is not surely there. */
static bool is_pending(const struct disk *disk, uint32_t index)
{
	return !disk->is_folded[index] && !is_flush(&disk->list->records[index]);
}

static uint32_t pending_end(const struct disk *disk)
{
	uint32_t end = disk->first;

	while (end < disk->list->count && disk->list->records[end].begin < disk->cut)
		end++;
	return end;
}

static struct pick pick_of(const struct disk *disk, const struct disk_choice *choice, uint32_t file,
                           uint32_t count)
{
	uint64_t state = choice->seed * 0x9e3779b97f4a7c15ull + file;
	struct pick pick = { .sector_bytes = choice->sector_bytes, .count = count };
	uint64_t kind;

	if (choice->corner != DISK_RANDOM) {
		bool is_there = choice->corner >> part_of(disk->list, file) & 1;

		pick.how = is_there ? PICK_EVERYTHING : PICK_NOTHING;
		pick.size_limit = is_there ? count : 0;
		pick.tear = choice->tear;
		return pick;
	}
	kind = draw(&state) % 8;
	pick.how = kind == 0 ? PICK_NOTHING : kind == 1 ? PICK_EVERYTHING : PICK_SECTORS;
	pick.seed = draw(&state);
	pick.old_share = (uint32_t)(draw(&state) % 16);
	pick.new_share = (uint32_t)(draw(&state) % (17 - pick.old_share));
	pick.size_limit = limit_of(&pick, draw(&state));
	return pick;
}

static void choose_file(struct disk *disk, const struct disk_choice *choice, uint32_t file,
                        uint32_t end)
{
	const struct image *from = &disk->flushed[file];
	struct image *image = &disk->chosen[file];
	uint32_t ordinal = 0;
	struct pick pick;

	for (uint32_t i = disk->first; i < end; i++)
		ordinal += is_pending(disk, i) && !is_of_names(&disk->list->records[i]) &&
		           disk->list->records[i].file == file;
	pick = pick_of(disk, choice, file, ordinal);
	image_hold(image, from->capacity_bytes);
	image_truncate(image, from->bytes);
	if (from->bytes)
		memcpy(image->data, from->data, from->bytes);
	image->bytes = from->bytes;
	ordinal = 0;
	for (uint32_t i = disk->first; i < end; i++) {
		const struct record *record = &disk->list->records[i];

		if (!is_pending(disk, i) || is_of_names(record) || record->file != file)
			continue;
		if (record->kind == RECORD_TRUNCATE && ordinal >= pick.size_limit)
			break;
		if (record->kind == RECORD_TRUNCATE)
			image_truncate(image, record->offset_bytes);
		if (record->kind == RECORD_WRITE)
			choose_write(image, record, ordinal, &pick);
		if (ordinal < pick.size_limit)
			image->bytes = image_size_after(record, image->bytes);
		ordinal++;
	}
	image_hold(image, image->bytes);
}

static void choose_names(struct disk *disk, const struct disk_choice *choice, uint32_t end)
{
	uint64_t state = mix(choice->seed);
	uint32_t count = 0;
	uint32_t limit;

	for (uint32_t i = disk->first; i < end; i++)
		count += is_pending(disk, i) && is_of_names(&disk->list->records[i]);
	if (choice->corner != DISK_RANDOM)
		limit = choice->corner >> DISK_NAMES & 1 ? count : 0;
	else
		limit = (uint32_t)(draw(&state) % (count + 1));
	memcpy(disk->chosen_names, disk->flushed_names, sizeof(disk->chosen_names));
	for (uint32_t i = disk->first; i < end && limit; i++)
		if (is_pending(disk, i) && is_of_names(&disk->list->records[i])) {
			names_fold(disk->chosen_names, &disk->list->records[i]);
			limit--;
		}
}

/* ---- public ---- */

struct disk *disk_new(const struct record_list *list, enum disk_lie lie, uint64_t lie_from)
{
	struct disk *disk = calloc(1, sizeof(*disk));

	must(disk != NULL, "no memory");
	disk->list = list;
	disk->durable = calloc(list->count, sizeof(*disk->durable));
	disk->is_folded = calloc(list->count, sizeof(*disk->is_folded));
	must(disk->durable && disk->is_folded, "no memory");
	find_durable(disk, lie, lie_from);
	return disk;
}

struct disk *disk_free(struct disk *disk)
{
	if (!disk)
		return NULL;
	for (uint32_t i = 0; i < RECORD_FILES_MAX; i++) {
		free(disk->flushed[i].data);
		free(disk->chosen[i].data);
	}
	free(disk->durable);
	free(disk->is_folded);
	free(disk);
	return NULL;
}

void disk_cut(struct disk *disk, uint64_t cut)
{
	uint32_t end;

	assert(cut >= disk->cut);
	disk->cut = cut;
	end = pending_end(disk);
	for (uint32_t i = disk->first; i < end; i++) {
		const struct record *record = &disk->list->records[i];

		if (!is_pending(disk, i) || disk->durable[i] >= cut)
			continue;
		disk->is_folded[i] = true;
		if (is_of_names(record))
			names_fold(disk->flushed_names, record);
		else
			image_fold(&disk->flushed[record->file], record);
	}
	while (disk->first < end && !is_pending(disk, disk->first))
		disk->first++;
}

uint64_t disk_choose(struct disk *disk, const struct disk_choice *choice)
{
	uint32_t end = pending_end(disk);
	uint64_t hash = 0;

	choose_names(disk, choice, end);
	for (uint32_t i = 0; i < disk->list->file_count; i++) {
		if (!disk->chosen_names[i][0])
			continue;
		choose_file(disk, choice, i, end);
		hash = mix(hash + i + 1) ^ kern_hash(disk->chosen[i].data, disk->chosen[i].bytes) ^
		       kern_hash(disk->chosen_names[i], strlen(disk->chosen_names[i]));
	}
	return hash;
}

struct image *disk_file(struct disk *disk, enum disk_part part)
{
	for (uint32_t i = 0; i < disk->list->file_count; i++)
		if (disk->chosen_names[i][0] && part_of(disk->list, i) == part)
			return &disk->chosen[i];
	return NULL;
}

void disk_write(const struct disk *disk, const char *directory)
{
	image_clear_directory(directory);
	for (uint32_t i = 0; i < disk->list->file_count; i++) {
		char path[256];

		if (!disk->chosen_names[i][0])
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", directory, disk->chosen_names[i]);
		image_write(&disk->chosen[i], path);
	}
}

bool disk_compare(const struct disk *disk, const char *directory)
{
	DIR *stream = opendir(directory);
	struct dirent *entry;
	uint32_t there_count = 0;
	uint32_t count = 0;
	bool is_equal = true;

	must(stream != NULL, "the directory cannot be read");
	while ((entry = readdir(stream)))
		there_count += entry->d_name[0] != '.';
	(void)closedir(stream);
	for (uint32_t i = 0; i < disk->list->file_count; i++)
		if (disk->chosen_names[i][0]) {
			char path[256];

			count++;
			(void)snprintf(path, sizeof(path), "%s/%s", directory,
			               disk->chosen_names[i]);
			is_equal = image_equals(&disk->chosen[i], path) && is_equal;
		}
	return is_equal && count == there_count;
}

void disk_describe(const struct disk *disk, char *text, uint32_t bytes)
{
	uint32_t counts[RECORD_FILES_MAX] = { 0 };
	uint32_t end = pending_end(disk);
	uint32_t names_count = 0;
	uint32_t used = 0;

	for (uint32_t i = disk->first; i < end; i++) {
		const struct record *record = &disk->list->records[i];

		if (!is_pending(disk, i))
			continue;
		if (is_of_names(record))
			names_count++;
		else
			counts[record->file]++;
	}
	used = (uint32_t)snprintf(text, bytes, "unflushed: %u names", names_count);
	for (uint32_t i = 0; i < disk->list->file_count && used < bytes; i++)
		if (counts[i])
			used += (uint32_t)snprintf(text + used, bytes - used, ", %u of %s",
			                           counts[i], disk->list->names[i]);
}
