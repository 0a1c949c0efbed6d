/* SPDX-License-Identifier: Apache-2.0 */
/* A case of check_coll as words and back; see script.h. */
#include "tests/coll/script.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"

static const char *const operation_names[_SCRIPT_OPERATION_COUNT] = {
	[SCRIPT_BARRIER] = "barrier",
	[SCRIPT_ALL_REDUCE] = "all_reduce",
	[SCRIPT_REDUCE] = "reduce",
	[SCRIPT_REDUCE_SCATTER] = "reduce_scatter",
	[SCRIPT_ALL_GATHER] = "all_gather",
	[SCRIPT_BROADCAST] = "broadcast",
	[SCRIPT_GATHER] = "gather",
	[SCRIPT_SCATTER] = "scatter",
	[SCRIPT_ALL_TO_ALL] = "all_to_all",
	[SCRIPT_ALL_TO_ALLV] = "all_to_allv",
	[SCRIPT_SEND] = "send",
	[SCRIPT_BATCH] = "batch",
};

static const char *const style_names[_SCRIPT_STYLE_COUNT] = {
	[SCRIPT_ORDINARY] = "ordinary",
	[SCRIPT_EDGE] = "edge",
	[SCRIPT_ANY] = "any",
};

bool script_is_joining(enum script_operation operation)
{
	return operation == SCRIPT_ALL_REDUCE || operation == SCRIPT_REDUCE ||
	       operation == SCRIPT_REDUCE_SCATTER;
}

bool script_has_in_place(enum script_operation operation)
{
	return operation >= SCRIPT_ALL_REDUCE && operation <= SCRIPT_SCATTER &&
	       operation != SCRIPT_BROADCAST;
}

uint32_t script_member_count(const struct script *script, const struct script_call *call)
{
	return (uint32_t)__builtin_popcount(script->groups[call->group]);
}

uint32_t script_member_of(const struct script *script, const struct script_call *call,
                          uint32_t rank)
{
	uint32_t group = script->groups[call->group];

	if (!(group >> rank & 1u))
		return UINT32_MAX;
	return (uint32_t)__builtin_popcount(group & ((1u << rank) - 1));
}

/* ---- to words ---- */

void script_print(const struct script *script, FILE *file)
{
	fprintf(file, "ranks=%u arena=%" PRIu64, script->ranks, script->arena_bytes);
	if (script->nodes)
		fprintf(file, " nodes=0x%x", script->nodes);
	if (script->numa)
		fprintf(file, " numa=0x%x", script->numa);
	if (script->cma)
		fprintf(file, " cma=0x%x", script->cma);
	for (uint32_t i = 1; i < script->group_count; i++)
		fprintf(file, " group=0x%x", script->groups[i]);
	for (uint32_t i = 0; i < script->call_count; i++) {
		const struct script_call *call = &script->calls[i];

		fprintf(file, " call=%s,%s,%s,%s,%u,%u,%" PRIu64 ",%" PRIu64 ",0x%x,0x%x,%u%s%s",
		        operation_names[call->operation], zi_dtype_name(call->dtype),
		        call->reduce_op ? zi_reduce_op_name(call->reduce_op) : "-",
		        style_names[call->style], call->group, call->root, call->element_count,
		        call->seed, call->sources_outside, call->targets_outside, call->skew,
		        call->is_in_place ? ",in_place" : "", call->is_async ? ",async" : "");
	}
	fputc('\n', file);
}

/* ---- from words ---- */

static bool read_number(const char *word, uint64_t *ret_number)
{
	char *end;

	if (!word || !*word)
		return false;
	errno = 0;
	*ret_number = strtoull(word, &end, 0);
	return *end == '\0' && errno == 0;
}

static uint32_t index_of(const char *word, const char *const *names, uint32_t name_count)
{
	for (uint32_t i = 0; word && i < name_count; i++)
		if (strcmp(word, names[i]) == 0)
			return i;
	return UINT32_MAX;
}

/* Of the plain types, whose names are functions. */
static uint32_t type_of(const char *word, uint32_t type_count, bool is_dtype)
{
	for (uint32_t i = 1; word && i < type_count; i++)
		if (strcmp(word, is_dtype ? zi_dtype_name(i) : zi_reduce_op_name(i)) == 0)
			return i;
	return 0;
}

static int read_call(struct script_call *call, char *words)
{
	uint64_t numbers[7];
	char *rest = words;
	uint32_t operation, style;

	operation = index_of(strsep(&rest, ","), operation_names, _SCRIPT_OPERATION_COUNT);
	*call = (struct script_call){ .dtype = type_of(strsep(&rest, ","), _ZI_DTYPE_COUNT, true) };
	call->reduce_op = type_of(strsep(&rest, ","), _ZI_REDUCE_COUNT, false);
	style = index_of(strsep(&rest, ","), style_names, _SCRIPT_STYLE_COUNT);
	for (uint32_t i = 0; i < ZI_COUNT_OF(numbers); i++)
		if (!read_number(strsep(&rest, ","), &numbers[i]))
			return -EINVAL;
	if (operation == UINT32_MAX || style == UINT32_MAX || !call->dtype)
		return -EINVAL;
	call->operation = operation;
	call->style = style;
	call->group = (uint32_t)numbers[0];
	call->root = (uint32_t)numbers[1];
	call->element_count = numbers[2];
	call->seed = numbers[3];
	call->sources_outside = (uint32_t)numbers[4];
	call->targets_outside = (uint32_t)numbers[5];
	call->skew = (uint32_t)numbers[6];
	while (rest) {
		const char *word = strsep(&rest, ",");

		if (strcmp(word, "in_place") == 0)
			call->is_in_place = true;
		else if (strcmp(word, "async") == 0)
			call->is_async = true;
		else
			return -EINVAL;
	}
	return 0;
}

int script_read_word(struct script *script, const char *word)
{
	const char *value = strchr(word, '=');
	char words[256];
	uint64_t number;

	if (!value || strlen(++value) >= sizeof words)
		return -EINVAL;
	if (strncmp(word, "call=", 5) == 0) {
		if (script->call_count == SCRIPT_CALLS_MAX)
			return -EINVAL;
		(void)snprintf(words, sizeof words, "%s", value);
		return read_call(&script->calls[script->call_count++], words);
	}
	if (!read_number(value, &number))
		return -EINVAL;
	if (strncmp(word, "ranks=", 6) == 0 && number >= 1 && number <= SCRIPT_RANKS_MAX) {
		script->ranks = (uint32_t)number;
		script->groups[0] = (1u << number) - 1;
		script->group_count = 1;
		return 0;
	}
	if (strncmp(word, "arena=", 6) == 0) {
		script->arena_bytes = number;
		return 0;
	}
	if (strncmp(word, "nodes=", 6) == 0) {
		script->nodes = (uint32_t)number;
		return 0;
	}
	if (strncmp(word, "cma=", 4) == 0) {
		script->cma = (uint32_t)number;
		return 0;
	}
	if (strncmp(word, "numa=", 5) == 0) {
		script->numa = (uint32_t)number;
		return 0;
	}
	if (strncmp(word, "group=", 6) != 0 || script->group_count == 0 ||
	    script->group_count == SCRIPT_GROUPS_MAX)
		return -EINVAL;
	script->groups[script->group_count++] = (uint32_t)number;
	return 0;
}

bool script_is_sound(const struct script *script)
{
	if (!script->ranks || !script->arena_bytes)
		return false;
	for (uint32_t i = 0; i < script->group_count; i++)
		if (!script->groups[i] || script->groups[i] >> script->ranks)
			return false;
	for (uint32_t i = 0; i < script->call_count; i++) {
		const struct script_call *call = &script->calls[i];

		if (call->group >= script->group_count ||
		    call->root >= script_member_count(script, call) ||
		    script_is_joining(call->operation) != (call->reduce_op != 0) ||
		    (call->reduce_op && !zi_reduce_op_is_for(call->reduce_op, call->dtype)) ||
		    (call->is_in_place && !script_has_in_place(call->operation)))
			return false;
	}
	return true;
}
