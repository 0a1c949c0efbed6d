/* SPDX-License-Identifier: Apache-2.0 */
/* Holds a file against the table, key by key in the file's order: what is unknown is refused with
 * the nearest known name, what is of another type or out of range with what is allowed. Floor 2. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "libclient/deepspeed/private.h"

/* Objects within objects that the table has: checkpoint.parallel_write is at the third level. */
#define WALK_DEPTH_MAX 4u

struct walk_level {
	json_t *object;
	void *next;       /* jansson's iterator */
	const char *path; /* of the object's row; "" at the top */
};

/* What is left of @path behind "@object."; NULL: it lies elsewhere, or deeper. */
static const char *name_within(const char *path, const char *object)
{
	size_t bytes = strlen(object);

	if (bytes && (strncmp(path, object, bytes) != 0 || path[bytes] != '.'))
		return NULL;
	path += bytes ? bytes + 1 : 0;
	return strchr(path, '.') ? NULL : path;
}

/* UINT32_MAX: no row of that name holds; @ret_other is one of other types then, or NULL. */
static uint32_t find_row(const struct zinf_deepspeed *reader, const char *object, const char *name,
                         const struct deepspeed_key **ret_other)
{
	*ret_other = NULL;
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		const char *here = name_within(key->path, object);

		if (!here || (strcmp(here, name) != 0 && (!key->alias || strcmp(key->alias, name))))
			continue;
		if (deepspeed_holds(reader, key))
			return i;
		*ret_other = key;
	}
	return UINT32_MAX;
}

/* The path that a bare name has elsewhere in the table; NULL. */
static const char *find_elsewhere(const struct zinf_deepspeed *reader, const char *name)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const char *path = deepspeed_key(i)->path;
		const char *last = strrchr(path, '.');

		if (deepspeed_holds(reader, deepspeed_key(i)) && last && !strcmp(last + 1, name))
			return path;
	}
	return NULL;
}

static int refuse_unknown(struct zinf_deepspeed *reader, const char *object, const char *name)
{
	struct zi_nearest nearest = { .wanted = name };
	json_t *string = json_string(name);
	const char *elsewhere = find_elsewhere(reader, name);

	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const char *here = name_within(deepspeed_key(i)->path, object);

		if (here && deepspeed_holds(reader, deepspeed_key(i)))
			zi_nearest_offer(&nearest, here);
	}
	assert(nearest.name); /* Every object of the table has keys. */
	zi_text_set(&reader->text, "%s%sno key %s: ", object, *object ? " has " : "there is ",
	            deepspeed_show(string).chars);
	json_decref(string);
	/* Upstream's pages still say so; its code read it until 0.15. */
	if (!strcmp(object, "aio") && !strcmp(name, "thread_count"))
		zi_text_append(&reader->text, "its name is \"intra_op_parallelism\"");
	else if (elsewhere)
		zi_text_append(&reader->text, "did you mean %s?", elsewhere);
	else if (zi_nearest_name(&nearest))
		zi_text_append(&reader->text, "the nearest known one is \"%s\"", nearest.name);
	else
		zi_text_append(&reader->text, "docs/DEEPSPEED.md lists the known keys");
	return err_origin(-EINVAL);
}

static int refuse_other_type(struct zinf_deepspeed *reader, const struct deepspeed_key *key)
{
	bool is_scheduler = !strncmp(key->path, "scheduler.", strlen("scheduler."));

	return zi_text_error(&reader->text, err_origin(-EINVAL),
	                     "%s is a parameter of %s, and the file's %s is %s", key->path,
	                     key->only, is_scheduler ? "scheduler" : "optimizer",
	                     is_scheduler ? reader->schedule : reader->optimizer);
}

/* What is allowed, for people. */
static int refuse_value(struct zinf_deepspeed *reader, const struct deepspeed_key *key,
                        const json_t *value)
{
	static const char *const types[] = {
		[DEEPSPEED_OBJECT] = "an object",
		[DEEPSPEED_WHOLE] = "an object",
		[DEEPSPEED_BOOL] = "true or false",
		[DEEPSPEED_COUNT] = "a number without a fraction",
		[DEEPSPEED_NUMBER] = "a number",
		[DEEPSPEED_TEXT] = "a string",
		[DEEPSPEED_CHOICE] = "one of",
		[DEEPSPEED_BETAS] = "two numbers, each from 0 to below 1",
		[DEEPSPEED_LIST] = "a list",
	};

	zi_text_set(&reader->text, "%s is %s: %s", key->path, deepspeed_show(value).chars,
	            types[key->type]);
	if (key->type == DEEPSPEED_COUNT || key->type == DEEPSPEED_NUMBER)
		zi_text_append(&reader->text, " from %.15g to %.15g", key->low, key->high);
	if (key->type == DEEPSPEED_CHOICE)
		zi_text_append(&reader->text, " %s", key->choices);
	zi_text_append(&reader->text,
	               key->may_be_auto ? ", or \"auto\", is allowed" : " is allowed");
	if (json_is_array(value) && key->type == DEEPSPEED_NUMBER)
		zi_text_append(&reader->text,
		               " (groups of parameters are the trainer's: zinf_param_group())");
	if (json_is_true(value) && !strcmp(key->path, "zero_optimization"))
		zi_text_append(&reader->text, ": write { \"stage\": 1 }");
	return err_origin(-EINVAL);
}

static bool is_number(const struct deepspeed_key *key, const json_t *value)
{
	double number = json_number_value(value);

	if (!json_is_number(value) || !(number >= key->low && number <= key->high))
		return false;
	return key->type == DEEPSPEED_NUMBER || number == floor(number);
}

static bool is_betas(const json_t *value)
{
	if (!json_is_array(value) || json_array_size(value) != 2)
		return false;
	for (size_t i = 0; i < 2; i++) {
		double beta = json_number_value(json_array_get(value, i));

		if (!json_is_number(json_array_get(value, i)) || !(beta >= 0 && beta < 1))
			return false;
	}
	return true;
}

static bool is_allowed(const struct deepspeed_key *key, const json_t *value)
{
	switch (key->type) {
	case DEEPSPEED_OBJECT:
	case DEEPSPEED_WHOLE:
		return json_is_object(value);
	case DEEPSPEED_BOOL:
		return json_is_boolean(value);
	case DEEPSPEED_COUNT:
	case DEEPSPEED_NUMBER:
		return is_number(key, value);
	case DEEPSPEED_TEXT:
		return json_is_string(value);
	case DEEPSPEED_CHOICE:
		return json_is_string(value) &&
		       deepspeed_has_word(key->choices, json_string_value(value));
	case DEEPSPEED_BETAS:
		return is_betas(value);
	case DEEPSPEED_LIST:
		return json_is_array(value);
	}
	return false;
}

/* Whether @value is @text, a value of the table. */
static bool equals(const json_t *value, const char *text)
{
	if (!text)
		return false;
	if (json_is_boolean(value))
		return !strcmp(text, json_is_true(value) ? "true" : "false");
	if (json_is_number(value))
		return strcmp(text, "null") != 0 && json_number_value(value) == strtod(text, NULL);
	if (json_is_string(value))
		return !strcasecmp(text, json_string_value(value));
	return false;
}

/* Whether @value says nothing beyond what holds without it. */
static bool is_idle(const struct deepspeed_key *key, const json_t *value)
{
	if (key->type == DEEPSPEED_WHOLE)
		return !json_object_size(value) ||
		       (key->has_switch && !json_is_true(json_object_get(value, "enabled")));
	if (key->type == DEEPSPEED_LIST)
		return !json_array_size(value);
	return equals(value, key->standard) || equals(value, key->same);
}

/* A value that is allowed. */
static int take(struct zinf_deepspeed *reader, const struct deepspeed_key *key, json_t *value)
{
	if (key->type == DEEPSPEED_OBJECT || key->kind == DEEPSPEED_SAME || is_idle(key, value))
		return 0;
	if (key->kind == DEEPSPEED_REFUSE)
		return zi_text_error(&reader->text, err_origin(-EOPNOTSUPP),
		                     "%s is %s, which zinf does not do: %s", key->path,
		                     deepspeed_show(value).chars, key->reason);
	if (!key->reason)
		return 0;
	return err_trace(
		deepspeed_note(reader, key->path, deepspeed_show(value).chars, key->reason));
}

/* DeepSpeed drops a key of these sections whose value is "auto": its default holds. Source:
 * DeepSpeedConfigModel, deepspeed/runtime/config_utils.py. */
static bool drops_auto(const struct deepspeed_key *key)
{
	static const char *const sections[] = { "zero_optimization.", "fp16.", "bf16." };

	for (size_t i = 0; i < ZI_COUNT_OF(sections); i++)
		if (!strncmp(key->path, sections[i], strlen(sections[i])))
			return true;
	return key->kind == DEEPSPEED_NOTE || key->kind == DEEPSPEED_SAME;
}

/* "auto" of a key that nobody fills in. */
static int take_default(struct zinf_deepspeed *reader, const struct deepspeed_key *key)
{
	bool has_effect = key->kind == DEEPSPEED_USE || !key->reason;

	return err_trace(
		deepspeed_note(reader, key->path, "\"auto\"",
	                       has_effect ? "its default holds, as in DeepSpeed" : key->reason));
}

static int check_value(struct zinf_deepspeed *reader, uint32_t index, json_t *value)
{
	const struct deepspeed_key *key = deepspeed_key(index);
	bool is_auto = json_is_string(value) && !strcmp(json_string_value(value), "auto");

	if (reader->values[index])
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "%s is given twice: also by its other name \"%s\"", key->path,
		                     key->alias);
	if (json_is_null(value) && !strcmp(key->standard, "null"))
		return 0;
	if (is_auto && !key->may_be_auto && drops_auto(key))
		return err_trace(take_default(reader, key));
	if (is_auto && !key->may_be_auto && key->type != DEEPSPEED_TEXT)
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "%s is \"auto\", which neither DeepSpeed nor Accelerate "
		                     "replaces: write a value, or leave the key out",
		                     key->path);
	if (!(is_auto && key->may_be_auto) && !is_allowed(key, value))
		return refuse_value(reader, key, value);
	reader->values[index] = value;
	return err_trace(take(reader, key, value));
}

static int check_needed(struct zinf_deepspeed *reader)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);

		if (key->is_needed && key->only && deepspeed_holds(reader, key) &&
		    !reader->values[i])
			return zi_text_error(&reader->text, err_origin(-EINVAL),
			                     "%s is missing, and has no default", key->path);
	}
	return 0;
}

/* As in the header. */
int deepspeed_walk(struct zinf_deepspeed *reader)
{
	struct walk_level levels[WALK_DEPTH_MAX] = { { reader->root, json_object_iter(reader->root),
		                                       "" } };
	uint32_t depth = 1;

	/* Each turn takes a key of the file, or leaves an object. */
	while (depth) {
		struct walk_level *level = &levels[depth - 1];
		const struct deepspeed_key *other;
		const char *name;
		json_t *value;
		uint32_t index;
		int r;

		if (!level->next) {
			depth--;
			continue;
		}
		name = json_object_iter_key(level->next);
		value = json_object_iter_value(level->next);
		level->next = json_object_iter_next(level->object, level->next);
		index = find_row(reader, level->path, name, &other);
		if (index == UINT32_MAX)
			return other ? refuse_other_type(reader, other)
			             : refuse_unknown(reader, level->path, name);
		r = check_value(reader, index, value);
		if (r)
			return err_trace(r);
		if (deepspeed_key(index)->type == DEEPSPEED_OBJECT && json_is_object(value)) {
			assert(depth < WALK_DEPTH_MAX); /* The table is no deeper. */
			levels[depth++] = (struct walk_level){ value, json_object_iter(value),
				                               deepspeed_key(index)->path };
		}
	}
	return err_trace(check_needed(reader));
}
