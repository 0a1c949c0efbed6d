/* SPDX-License-Identifier: Apache-2.0 */
/* The public face of common/base/scaler.h. Floor 2, any thread: no state. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/scaler.h"
#include "common/base/text.h"
#include "libclient/client.h"
#include "libclient/sized.h"
#include "zinf/scaler.h"

static_assert((int)ZINF_SCALER_NONE == (int)ZI_SCALER_NONE, "the public values are the machine's");
static_assert((int)ZINF_SCALER_STATIC == (int)ZI_SCALER_STATIC, "as above");
static_assert((int)ZINF_SCALER_DEEPSPEED == (int)ZI_SCALER_DEEPSPEED, "as above");
static_assert((int)ZINF_SCALER_TORCH == (int)ZI_SCALER_TORCH, "as above");
static_assert((int)ZINF_SCALER_APEX == (int)ZI_SCALER_APEX, "as above");
static_assert(sizeof(struct zinf_scaler) == sizeof(struct zi_scaler), "the state is copied whole");
#define SAME_PLACE(field)                                                                       \
	static_assert(offsetof(struct zinf_scaler, field) == offsetof(struct zi_scaler, field), \
	              "as above")
SAME_PLACE(scale);
SAME_PLACE(iteration);
SAME_PLACE(last_overflow);
SAME_PLACE(clean_count);
SAME_PLACE(hysteresis);
SAME_PLACE(skipped_count);

static struct zi_scaler_options from_public(const struct zinf_scaler_options *options)
{
	return (struct zi_scaler_options){
		.kind = (enum zi_scaler_kind)options->kind,
		.window = options->window,
		.hysteresis = options->hysteresis,
		.is_consecutive = options->is_consecutive,
		.init = options->init,
		.growth = options->growth,
		.backoff = options->backoff,
		.min = options->min,
		.max = options->max,
	};
}

int zinf_scaler_defaults(enum zinf_scaler_kind kind, struct zinf_scaler_options *ret_options)
{
	if (!ret_options)
		return err_origin(-EINVAL);
	struct zi_scaler_options options;

	if ((unsigned)kind >= _ZI_SCALER_COUNT)
		return err_origin(-EINVAL);
	options = zi_scaler_defaults((enum zi_scaler_kind)kind);
	*ret_options = (struct zinf_scaler_options){
		.bytes = sizeof(*ret_options),
		.kind = kind,
		.init = options.init,
		.growth = options.growth,
		.backoff = options.backoff,
		.min = options.min,
		.max = options.max,
		.window = options.window,
		.hysteresis = options.hysteresis,
		.is_consecutive = options.is_consecutive,
	};
	return 0;
}

static int check(const struct zinf_scaler_options *options, struct zi_text *text)
{
	static const struct zi_sized sized = { "a loss scale", "zinf_scaler_defaults()",
		                               sizeof(*options), sizeof(*options) };
	struct zi_scaler_options plain;
	int r = zi_client_check_sized(&sized, options, text);

	if (r)
		return err_trace(r);
	plain = from_public(options);
	return zi_scaler_check(&plain, text);
}

/* See client.h. */
int zi_client_take_scaler(const struct zinf_scaler_options *options,
                          struct zi_scaler_options *ret_options, struct zi_text *text)
{
	int r = check(options, text);

	if (r)
		return err_origin(r);
	*ret_options = from_public(options);
	return 0;
}

int zinf_scaler_check(const struct zinf_scaler_options *options, char *text, size_t text_bytes)
{
	struct zi_text sentence = { "" };
	int r = check(options, &sentence);

	if (r && text)
		(void)snprintf(text, text_bytes, "%s", sentence.chars); /* Cut where it must be. */
	return r ? err_origin(r) : 0;
}

void zinf_scaler_init(struct zinf_scaler *ret_scaler, const struct zinf_scaler_options *options)
{
	struct zi_scaler_options plain = from_public(options);
	struct zi_scaler scaler;

	zi_scaler_init(&scaler, &plain);
	memcpy(ret_scaler, &scaler, sizeof(scaler));
}

int zinf_scaler_update(struct zinf_scaler *scaler, const struct zinf_scaler_options *options,
                       bool is_overflow)
{
	if (!scaler || !options)
		return err_origin(-EINVAL);
	struct zi_scaler_options plain = from_public(options);
	struct zi_scaler state;
	int r;

	memcpy(&state, scaler, sizeof(state));
	r = zi_scaler_update(&state, &plain, is_overflow);
	if (r)
		return err_trace(r);
	memcpy(scaler, &state, sizeof(state));
	return 0;
}
