/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing "KEY=VALUE,…" of the fault injector. Floor 2, any thread. */
#include "nvme/faulty_spec.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/err.h"

#define SPEC_ERRNO_MAX 133 /* of Linux: EHWPOISON */

static const struct {
	const char *key;
	size_t offset_bytes; /* of a uint64_t in struct nvme_faulty_spec */
} spec_keys[] = {
	{ "seed", offsetof(struct nvme_faulty_spec, seed) },
	{ "read_eio_at", offsetof(struct nvme_faulty_spec, read_eio_at) },
	{ "write_eio_at", offsetof(struct nvme_faulty_spec, write_eio_at) },
	{ "read_eio_from", offsetof(struct nvme_faulty_spec, read_eio_from) },
	{ "write_eio_from", offsetof(struct nvme_faulty_spec, write_eio_from) },
	{ "write_lost_at", offsetof(struct nvme_faulty_spec, write_lost_at) },
	{ "read_short_every", offsetof(struct nvme_faulty_spec, read_short_every) },
	{ "write_short_every", offsetof(struct nvme_faulty_spec, write_short_every) },
	{ "eagain_every", offsetof(struct nvme_faulty_spec, eagain_every) },
	{ "overlong_at", offsetof(struct nvme_faulty_spec, overlong_at) },
	{ "bitflip_at", offsetof(struct nvme_faulty_spec, bitflip_at) },
	{ "enospc_after_bytes", offsetof(struct nvme_faulty_spec, enospc_after_bytes) },
	{ "stall_at", offsetof(struct nvme_faulty_spec, stall_at) },
	{ "stall_ms", offsetof(struct nvme_faulty_spec, stall_ms) },
	{ "bytes_per_s", offsetof(struct nvme_faulty_spec, bytes_per_s) },
	{ "reorder", offsetof(struct nvme_faulty_spec, is_reordering) },
};

static int spec_parse_errno(const char *value, struct zi_text *text, uint64_t *ret_error)
{
	for (int error = 1; error <= SPEC_ERRNO_MAX; error++) {
		if (strcmp(zi_err_name(error), value))
			continue;
		*ret_error = (uint64_t)error;
		return 0;
	}
	return err_origin(zi_text_error(text, -EINVAL, "faulty: error=%s is no errno", value));
}

/* Return: 0; -ENOENT no rule; -EINVAL. */
static int spec_parse_rule(const char *key, const char *value, struct zi_text *text,
                           struct nvme_faulty_spec *spec)
{
	struct nvme_faulty_rule rule;
	int r = nvme_faulty_rule_parse(key, value, text, &rule);

	if (r)
		return r;
	if (spec->rule_count == NVME_FAULTY_RULES_MAX)
		return err_origin(zi_text_error(text, -EINVAL, "faulty: more than %u rules",
		                                NVME_FAULTY_RULES_MAX));
	spec->rules[spec->rule_count++] = rule;
	return 0;
}

static int spec_parse_pair(const char *key, const char *value, struct zi_text *text,
                           struct nvme_faulty_spec *spec)
{
	uint64_t number;
	char *end;
	int r;

	if (!strcmp(key, "over")) {
		if (!strncmp(value, "faulty", strlen("faulty")) ||
		    zi_copy_name(spec->over, sizeof(spec->over), value))
			return err_origin(zi_text_error(
				text, -EINVAL, "faulty: over=%s is auto, io_uring or threads",
				value));
		return 0;
	}
	if (!strcmp(key, "path")) {
		if (zi_check_name(value, sizeof(spec->path)))
			return err_origin(zi_text_error(
				text, -EINVAL, "faulty: path=%.60s is no name of a store", value));
		return err_trace(zi_copy_name(spec->path, sizeof(spec->path), value));
	}
	if (!strcmp(key, "error"))
		return err_trace(spec_parse_errno(value, text, &spec->error));
	r = spec_parse_rule(key, value, text, spec);
	if (r != -ENOENT)
		return r;
	errno = 0;
	number = strtoull(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end || errno)
		return err_origin(
			zi_text_error(text, -EINVAL, "faulty: %s=%s is no number", key, value));
	for (size_t i = 0; i < ZI_COUNT_OF(spec_keys); i++) {
		if (strcmp(spec_keys[i].key, key))
			continue;
		memcpy((char *)spec + spec_keys[i].offset_bytes, &number, sizeof(number));
		if (!strcmp(key, "enospc_after_bytes"))
			spec->has_enospc_after_bytes = true;
		return 0;
	}
	return err_origin(zi_text_error(text, -EINVAL, "faulty: '%s' is no key", key));
}

/* @text: without "faulty:"; empty pairs are ignored, of a key given twice the last one counts. */
int nvme_faulty_parse(const char *text, struct zi_text *error_text,
                      struct nvme_faulty_spec *ret_spec)
{
	struct nvme_faulty_spec spec = { .over = "auto", .error = EIO, .stall_ms = 10000 };
	_cleanup_(zi_freep) char *copy = strdup(text);
	char *rest = copy;
	char *pair;

	if (!copy)
		return err_origin(-ENOMEM);
	while ((pair = strsep(&rest, ","))) {
		char *value = strchr(pair, '=');
		int r;

		if (!*pair)
			continue;
		if (!value)
			return err_origin(zi_text_error(error_text, -EINVAL,
			                                "faulty: '%s' is not KEY=VALUE", pair));
		*value++ = '\0';
		r = spec_parse_pair(pair, value, error_text, &spec);
		if (r)
			return err_trace(r);
	}
	*ret_spec = spec;
	return 0;
}
