/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: every key of the table is known where it belongs, is noted, refused or used as its row
 * says, and is held to its type, its range, "auto", null and its spelling. Method: a loop over the
 * rows, each in the smallest file that can have it; no row can be forgotten.
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/cleanup.h"
#include "tests/unit/libclient/deepspeed.h"

/* An object within @root, made where it is missing. */
static json_t *object_at(json_t *root, const char *path)
{
	char copy[128];
	char *rest = NULL;

	(void)snprintf(copy, sizeof(copy), "%s", path);
	for (char *name = strtok_r(copy, ".", &rest); name; name = strtok_r(NULL, ".", &rest)) {
		json_t *next = json_object_get(root, name);

		if (!next)
			json_object_set_new(root, name, next = json_object());
		root = next;
	}
	return root;
}

static void set(json_t *root, const char *path, json_t *value)
{
	char object[128];
	const char *dot = strrchr(path, '.');

	(void)snprintf(object, sizeof(object), "%.*s", dot ? (int)(dot - path) : 0, path);
	json_object_set_new(object_at(root, object), dot ? dot + 1 : path, value);
}

/* The first type of those that have the row. */
static void first_type(const struct deepspeed_key *key, char *type, size_t bytes)
{
	(void)snprintf(type, bytes, "%.*s", key->only ? (int)strcspn(key->only, " ") : 0,
	               key->only ? key->only : "");
}

/* What a file needs for @key to hold, without the key. */
static json_t *context(const struct deepspeed_key *key)
{
	json_t *root = json_object();
	bool is_scheduler = !strncmp(key->path, "scheduler", 9);
	char type[32];

	first_type(key, type, sizeof(type));
	set(root, "train_micro_batch_size_per_gpu", json_integer(1));
	if (!strncmp(key->path, "optimizer", 9) || is_scheduler)
		set(root, is_scheduler ? "scheduler.type" : "optimizer.type",
		    json_string(*type          ? type
		                : is_scheduler ? "LRRangeTest"
		                               : "adam"));
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *other = deepspeed_key(i);

		if (other->is_needed && other->only && *type &&
		    deepspeed_has_word(other->only, type))
			set(root, other->path,
			    json_real(strstr(other->path, "max") ? 4 : other->low + 1));
	}
	if (strstr(key->path, "offload_param") || strstr(key->path, "mics_shard_size"))
		set(root, "zero_optimization.stage", json_integer(3));
	if (strstr(key->path, "grad_accum_dtype")) /* half, of other_value() */
		set(root, "fp16.enabled", json_true());
	if (strstr(key->path, "nesterov"))
		set(root, "optimizer.params.momentum", json_real(0.9));
	if (strstr(key->path, "stair_count") || strstr(key->path, "decay_mom"))
		set(root, "scheduler.params.decay_step_size", json_integer(9));
	return root;
}

/* A value that is allowed, and another than the default and than what is passed over. */
static json_t *other_value(const struct deepspeed_key *key)
{
	static const double numbers[] = { 2, 1, 0.5, 0.85, 0 };

	switch (key->type) {
	case DEEPSPEED_OBJECT:
		return json_object();
	case DEEPSPEED_WHOLE:
		return json_pack("{s:b,s:i}", "enabled", 1, "x", 1);
	case DEEPSPEED_BOOL:
		return json_boolean(strcmp(key->standard, "true") != 0 && !key->same);
	case DEEPSPEED_TEXT:
		return json_string(strstr(key->path, "type") ? "adam" : "x");
	case DEEPSPEED_CHOICE:
		return json_string(strrchr(key->choices, ' ') + 1);
	case DEEPSPEED_BETAS:
		return json_pack("[f,f]", 0.5, 0.5);
	case DEEPSPEED_LIST:
		return json_pack("[s]", "x");
	case DEEPSPEED_COUNT:
	case DEEPSPEED_NUMBER:
		break;
	}
	for (size_t i = 0; i < ZI_COUNT_OF(numbers); i++)
		if (numbers[i] >= key->low && numbers[i] <= key->high &&
		    numbers[i] != strtod(key->standard, NULL) &&
		    (!strstr(key->path, "max_mom") || numbers[i] == 0.85) &&
		    (!strstr(key->path, "cycle_min_lr") || numbers[i] == 2) &&
		    (key->type == DEEPSPEED_NUMBER || numbers[i] == floor(numbers[i])))
			return json_real(numbers[i]);
	cr_assert_fail("no value for %s", key->path);
	return NULL;
}

/* The file of @key with @value; taken. */
static int parse_value(const struct deepspeed_key *key, json_t *value)
{
	json_t *root = context(key);
	int r;

	cr_assert_not_null(value, "%s", key->path);
	set(root, key->path, value);
	char *json = json_dumps(root, 0);

	r = parse(json);
	free(json);
	json_decref(root);
	return r;
}

static bool is_type_row(const struct deepspeed_key *key)
{
	return !strcmp(key->path, "optimizer.type") || !strcmp(key->path, "scheduler.type");
}

Test(deepspeed_keys, another_value_does_what_the_row_says)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		int r;

		if (is_type_row(key) || !strcmp(key->path, "optimizer") ||
		    !strcmp(key->path, "scheduler"))
			continue; /* Other tests have all types. */
		r = parse_value(key, other_value(key));
		if (key->kind == DEEPSPEED_REFUSE) {
			cr_expect_eq(r, -EOPNOTSUPP, "%s: %d %s", key->path, r, why);
			cr_expect(strstr(why, key->path), "%s: %s", key->path, why);
			cr_expect(strstr(why, key->reason), "%s: %s", key->path, why);
			continue;
		}
		cr_expect_eq(r, 0, "%s: %d %s", key->path, r, why);
		if (r)
			continue;
		/* Of a switch whose both values are passed over nothing is ever said. */
		bool is_silent = key->kind == DEEPSPEED_SAME ||
		                 (key->same && strcmp(key->standard, "null") != 0);

		cr_expect_eq(note_on(key->path) != NULL, key->reason && !is_silent, "%s",
		             key->path);
		if (note_on(key->path) && key->reason)
			cr_expect_str_eq(note_on(key->path), key->reason);
	}
}

static json_t *value_of(const struct deepspeed_key *key, const char *text)
{
	return key->type == DEEPSPEED_TEXT || key->type == DEEPSPEED_CHOICE
	               ? json_string(text)
	               : json_loads(text, JSON_DECODE_ANY, NULL);
}

Test(deepspeed_keys, the_default_is_allowed_and_nothing_is_to_be_said_of_it)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);

		if (!strcmp(key->standard, "null"))
			continue;
		int r = parse_value(key, value_of(key, key->standard));

		cr_expect_eq(r, 0, "%s: %d %s", key->path, r, why);
		if (!r)
			cr_expect_null(note_on(key->path), "%s", key->path);
		if (!key->same)
			continue;
		r = parse_value(key, value_of(key, key->same));
		cr_expect_eq(r, 0, "%s: %d %s", key->path, r, why);
		if (!r)
			cr_expect_null(note_on(key->path), "%s", key->path);
	}
}

Test(deepspeed_keys, another_type_is_refused_with_the_path_and_what_is_allowed)
{
	static const char *const values[] = { "true", "7",        "7.5",      "'x'",
		                              "[7]",  "{'y': 1}", "[0.5, 1]", "null" };

	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		uint32_t refusal_count = 0;

		for (size_t j = 0; j < ZI_COUNT_OF(values); j++) {
			char text[32];

			(void)snprintf(text, sizeof(text), "%s", values[j]);
			for (char *at = text; (at = strchr(at, '\'')); at++)
				*at = '"';
			if (!strcmp(text, "null") && !strcmp(key->standard, "null"))
				continue;
			int r = parse_value(key, json_loads(text, JSON_DECODE_ANY, NULL));

			if (!r || r == -EOPNOTSUPP)
				continue;
			refusal_count++;
			cr_expect_eq(r, -EINVAL, "%s: %s", key->path, text);
			cr_expect(strstr(why, key->path) || is_type_row(key) ||
			                  key->type == DEEPSPEED_OBJECT ||
			                  strstr(why, strrchr(key->path, '.') + 1),
			          "%s: %s: %s", key->path, text, why);
		}
		/* A number is allowed of three, "x" of a string. */
		cr_expect_geq(refusal_count, 4, "%s", key->path);
	}
}

Test(deepspeed_keys, what_is_past_the_range_is_refused_with_the_range)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		char range[96];

		if (key->type != DEEPSPEED_COUNT && key->type != DEEPSPEED_NUMBER)
			continue;
		(void)snprintf(range, sizeof(range), "from %.15g to %.15g", key->low, key->high);
		double below = key->low < -1 ? 2 * key->low : key->low - 1;

		cr_expect_eq(parse_value(key, json_real(below)), -EINVAL, "%s", key->path);
		cr_expect(strstr(why, range), "%s: %s", key->path, why);
		cr_expect_eq(parse_value(key, json_real(key->high * 2 + 1)), -EINVAL, "%s",
		             key->path);
		cr_expect(strstr(why, range), "%s: %s", key->path, why);
	}
}

/* Sections whose class drops "auto" in DeepSpeed, and keys without effect. */
static bool has_default_for_auto(const struct deepspeed_key *key)
{
	return key->kind == DEEPSPEED_NOTE || key->kind == DEEPSPEED_SAME ||
	       !strncmp(key->path, "zero_optimization.", strlen("zero_optimization.")) ||
	       !strncmp(key->path, "fp16.", strlen("fp16.")) ||
	       !strncmp(key->path, "bf16.", strlen("bf16."));
}

Test(deepspeed_keys, auto_is_filled_in_or_is_the_default_or_is_refused)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);

		if (key->type == DEEPSPEED_TEXT || key->type == DEEPSPEED_OBJECT)
			continue;
		int r = parse_value(key, json_string("auto"));

		bool is_taken = key->may_be_auto || has_default_for_auto(key);

		cr_expect_eq(r, is_taken ? 0 : -EINVAL, "%s: %d %s", key->path, r, why);
		if (!is_taken)
			cr_expect(strstr(why, "\"auto\""), "%s: %s", key->path, why);
	}
}

Test(deepspeed_keys, another_spelling_is_refused_with_the_nearest)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		const char *dot = strrchr(key->path, '.');
		json_t *root = context(key);
		char path[128];

		(void)snprintf(path, sizeof(path), "%sq", key->path);
		set(root, path, json_integer(1));
		char *json = json_dumps(root, 0);

		cr_expect_eq(parse(json), -EINVAL, "%s", path);
		cr_expect(strstr(why, "no key \""), "%s: %s", path, why);
		(void)snprintf(path, sizeof(path), "is \"%s\"", dot ? dot + 1 : key->path);
		cr_expect(strstr(why, path), "%s: %s", path, why);
		free(json);
		json_decref(root);
	}
}

Test(deepspeed_keys, of_another_type_of_optimizer_or_scheduler_is_refused_with_both)
{
	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		const char *type = "lion";
		bool is_scheduler = !strncmp(key->path, "scheduler", 9);

		if (!key->only || !strcmp(key->path, "optimizer.params.lr") ||
		    !strcmp(key->path, "optimizer.params.weight_decay"))
			continue; /* All have these two. */
		if (is_scheduler)
			type = deepspeed_has_word(key->only, "LRRangeTest") ? "WarmupLR"
			                                                    : "LRRangeTest";
		else if (deepspeed_has_word(key->only, "lion"))
			type = "sgd";
		json_t *root = context(key);

		json_object_del(root, "optimizer");
		json_object_del(root, "scheduler");
		set(root, is_scheduler ? "scheduler.type" : "optimizer.type", json_string(type));
		if (!strcmp(type, "sgd"))
			set(root, "optimizer.params.lr", json_real(1));
		set(root, key->path, other_value(key));
		char *json = json_dumps(root, 0);
		int r = parse(json);

		cr_expect_eq(r, -EINVAL, "%s of %s: %d %s", key->path, type, r, why);
		cr_expect(strstr(why, type), "%s: %s", key->path, why);
		free(json);
		json_decref(root);
	}
}

Test(deepspeed_keys, other_names_are_taken_but_not_beside_the_first)
{
	uint32_t alias_count = 0;

	for (uint32_t i = 0; i < deepspeed_key_count(); i++) {
		const struct deepspeed_key *key = deepspeed_key(i);
		const char *dot = strrchr(key->path, '.');
		char path[128];

		if (!key->alias)
			continue;
		alias_count++;
		(void)snprintf(path, sizeof(path), "%.*s%s", dot ? (int)(dot - key->path) + 1 : 0,
		               key->path, key->alias);
		json_t *root = context(key);

		set(root, path, other_value(key));
		char *json = json_dumps(root, 0);

		cr_expect_eq(parse(json), 0, "%s: %s", path, why);
		cr_expect_eq(note_on(key->path) != NULL, key->reason != NULL, "%s", path);
		free(json);
		set(root, key->path, other_value(key));
		json = json_dumps(root, 0);
		cr_expect_eq(parse(json), -EINVAL, "%s", path);
		cr_expect(strstr(why, "given twice"), "%s: %s", path, why);
		free(json);
		json_decref(root);
	}
	cr_assert_geq(alias_count, 10);
}

Test(deepspeed_keys, needed_ones_are_missed_by_name)
{
	refused("{'train_batch_size': 2, 'optimizer': {'type': 'SGD'}}", -EINVAL,
	        "optimizer.params.lr is missing");
	refused("{'train_batch_size': 2, 'scheduler': {'type': 'OneCycle', 'params': "
	        "{'cycle_min_lr': 1}}}",
	        -EINVAL, "scheduler.params.cycle_max_lr is missing");
	refused("{'train_batch_size': 2, 'scheduler': {'type': 'WarmupDecayLR'}}", -EINVAL,
	        "scheduler.params.total_num_steps is missing");
	refused("{'train_batch_size': 2, 'optimizer': {}}", -EINVAL, "optimizer.type is missing");
	refused("{'train_batch_size': 2, 'scheduler': {}}", -EINVAL, "scheduler.type is missing");
}
