/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies by their names, ours and those of torch's FSDP. Floor 2. */
#include <string.h>

#include "common/base/err.h"
#include "common/base/nearest.h"
#include "libclient/client.h"

static const struct strategy_word {
	const char *name;
	enum zinf_strategy strategy;
	uint32_t shard_size;
} strategy_words[] = {
	{ "dp", ZINF_DP, 0 },
	{ "ddp", ZINF_DDP, 0 },
	{ "zero1", ZINF_ZERO1, 0 },
	{ "zero2", ZINF_ZERO2, 0 },
	{ "zero3", ZINF_ZERO3, 0 },
	{ "fsdp", ZINF_ZERO3, 0 },
	{ "full_shard", ZINF_ZERO3, 0 },
	{ "shard_grad_op", ZINF_ZERO2, 0 },
	{ "no_shard", ZINF_DDP, 0 },
	{ "hybrid_shard", ZINF_ZERO3, ZINF_SHARD_NODE },
};

/* Of options that have them. */
#define STRATEGY_BYTES_MIN (offsetof(struct zinf_options, shard_size) + sizeof(uint32_t))

static int refuse_name(const char *name, const struct zi_nearest *nearest, struct zi_text *text)
{
	const char *near = zi_nearest_name(nearest);
	int r = zi_text_error(text, -EINVAL, "no strategy '%.60s': ", name);

	if (near) {
		zi_text_append(text, "did you mean '%s'?", near);
		return r;
	}
	zi_text_append(text, "allowed are");
	for (size_t i = 0; i < ZI_COUNT_OF(strategy_words); i++)
		zi_text_append(text, "%s %s", i ? "," : "", strategy_words[i].name);
	return r;
}

int zinf_strategy_by_name(const char *name, struct zinf_options *options)
{
	ZI_CLIENT_NEED(NULL, name, name);
	ZI_CLIENT_NEED(NULL, options, options);
	struct zi_nearest nearest = { .wanted = name };
	struct zi_text text = { "" };
	int r;

	for (size_t i = 0; i < ZI_COUNT_OF(strategy_words); i++) {
		const struct strategy_word *word = &strategy_words[i];

		if (strcmp(word->name, name) != 0) {
			zi_nearest_offer(&nearest, word->name);
			continue;
		}
		if (options->bytes < STRATEGY_BYTES_MIN)
			break;
		options->strategy = word->strategy;
		options->shard_size = word->shard_size;
		zi_client_set_attach_error(&text);
		return 0;
	}
	if (options->bytes < STRATEGY_BYTES_MIN)
		r = zi_text_error(&text, -EINVAL,
		                  "options of %u bytes have no strategy: begin with "
		                  "ZINF_OPTIONS_INIT",
		                  options->bytes);
	else
		r = refuse_name(name, &nearest, &text);
	zi_client_set_attach_error(&text);
	return err_origin(r);
}
