/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a step, of any version of the header: checked, and put where the daemon reads them.
 * Floor 2.
 */
#include <float.h>
#include <string.h>

#include "common/base/err.h"
#include "common/wire/check.h"
#include "libclient/client.h"
#include "libclient/sized.h"

static_assert(sizeof(struct zinf_step_options) == 112, "it grows at its end only");
static_assert(offsetof(struct zinf_step_options, no_bias_correction) == 76, "as above");
static_assert(offsetof(struct zinf_step_options, is_deferred) == 73, "as above");
static_assert(offsetof(struct zinf_step_options, group_betas) == 104, "as above");

/* What a deferred step has from its begin on. */
#define OPTIONS_BEGUN (ZI_STEP_SUM | ZI_STEP_SKIP_NONFINITE)

/* Every version's becomes this one's. */
static int take_options(struct zinf *zinf, const struct zinf_step_options *given,
                        struct zinf_step_options *ret_options)
{
	const struct zi_sized sized = {
		.name = "step options",
		.initialiser = "ZINF_STEP_OPTIONS_INIT",
		.least_bytes = offsetof(struct zinf_step_options, group_betas),
		.known_bytes = sizeof(*given),
	};
	int r = zi_client_check_sized(&sized, given, &zinf->text);

	if (r)
		return err_trace(zi_client_tell(zinf, r, &zinf->text));
	*ret_options = (struct zinf_step_options){ 0 };
	memcpy(ret_options, given, ZI_MIN(given->bytes, sizeof(*given)));
	return 0;
}

/* Zeros that have no meaning yet, and what goes together. */
static int check_fields(struct zinf *zinf, const struct zinf_step_options *options)
{
	uint32_t reserved = options->reserved_end;

	for (size_t i = 0; i < ZI_COUNT_OF(options->reserved); i++)
		reserved |= options->reserved[i];
	if (reserved)
		return zi_client_error(zinf, -EINVAL, "reserved step options are set");
	if (!options->groups != !options->group_count)
		return zi_client_error(zinf, -EINVAL,
		                       "group_count of a step is %u, but groups is %s",
		                       options->group_count, options->groups ? "set" : "NULL");
	if (options->group_betas && !options->groups)
		return zi_client_error(zinf, -EINVAL,
		                       "group_betas of a step is set, but groups is NULL: give lr "
		                       "and weight_decay of each group as well");
	return 0;
}

/* What an older daemon would not read. */
static int check_daemon(struct zinf *zinf, const struct zinf_step_options *options)
{
	if (options->group_betas && !(zinf->features & ZI_FEATURE_STEPS))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "group_betas of a step: zinfd at %s does not support them: "
		                       "use a newer zinfd",
		                       zinf->path);
	if (zinf->features & ZI_FEATURE_TRAINING)
		return 0;
	if (options->no_bias_correction || options->lr_decay != 0 || options->group_count)
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "no_bias_correction, lr_decay or groups of a step: the "
		                       "daemon at %s knows none of them, use a newer zinfd",
		                       zinf->path);
	return 0;
}

/* See client.h, as are the next two. */
int zi_client_check_late_steps(struct zinf *zinf, const char *call)
{
	if (zinf->features & ZI_FEATURE_STEPS)
		return 0;
	return zi_client_error(zinf, -EOPNOTSUPP,
	                       "%s: zinfd at %s does not support it: use a newer zinfd", call,
	                       zinf->path);
}

/* @options: their count is within bounds, and betas are those of groups. */
static int take_groups(struct zinf *zinf, const struct zinf_step_options *options,
                       struct zi_step_group *groups, struct zi_step_betas *betas)
{
	uint32_t count = options->group_count;
	int r;

	for (uint32_t i = 0; i < count; i++)
		groups[i] =
			(struct zi_step_group){ .lr = options->groups[i].lr,
			                        .weight_decay = options->groups[i].weight_decay };
	r = zi_check_step_groups(groups, count, &zinf->text);
	for (uint32_t i = 0; !r && options->group_betas && i < count; i++)
		betas[i] = (struct zi_step_betas){ .beta1 = options->group_betas[i].beta1,
			                           .beta2 = options->group_betas[i].beta2,
			                           .eps = options->group_betas[i].eps };
	if (!r && options->group_betas)
		r = zi_check_step_betas(betas, count, &zinf->text);
	return r ? err_trace(zi_client_tell(zinf, r, &zinf->text)) : 0;
}

/* See client.h. The daemon may be about to read what an interrupted call has put there. */
int zi_client_put_options(struct zinf *zinf, enum zi_opcode opcode,
                          const struct zi_step_options *options, const struct zi_step_group *groups,
                          const struct zi_step_betas *betas)
{
	char *uplink = zinf->uplink;
	struct zi_step_options *options_there = &((struct zi_uplink_header *)uplink)->step_options;
	void *groups_there = uplink + zi_uplink_groups_offset(zinf->entries);
	void *betas_there = uplink + zi_uplink_betas_offset(zinf->entries);
	size_t groups_bytes = groups ? options->group_count * sizeof(*groups) : 0;
	size_t betas_bytes = betas ? options->group_count * sizeof(*betas) : 0;

	if (!zi_client_open_call(zinf, opcode)) {
		*options_there = *options;
		if (groups_bytes)
			memcpy(groups_there, groups, groups_bytes);
		if (betas_bytes)
			memcpy(betas_there, betas, betas_bytes);
		return 0;
	}
	if (memcmp(options_there, options, sizeof(*options)) == 0 &&
	    (!groups_bytes || memcmp(groups_there, groups, groups_bytes) == 0) &&
	    (!betas_bytes || memcmp(betas_there, betas, betas_bytes) == 0))
		return 0;
	return zi_client_error(zinf, -EBUSY,
	                       "%s was interrupted: repeat that call with the same arguments first",
	                       opcode == ZI_OP_STEP_BEGIN ? "zinf_step_begin() or zinf_join()"
	                                                  : "zinf_step_with()");
}

static uint32_t flags_of(const struct zinf *zinf, const struct zinf_step_options *options)
{
	/* To a daemon that does not know of it this permission is of no use. */
	bool is_early = options->update_early && zinf->features & ZI_FEATURE_EARLY;

	return (options->nesterov ? ZI_STEP_NESTEROV : 0) | (options->sum ? ZI_STEP_SUM : 0) |
	       (options->skip_nonfinite ? ZI_STEP_SKIP_NONFINITE : 0) |
	       (options->want_norm ? ZI_STEP_WANT_NORM : 0) |
	       (is_early ? ZI_STEP_UPDATE_EARLY : 0) |
	       (options->no_bias_correction ? ZI_STEP_NO_BIAS_CORRECTION : 0) |
	       (options->group_betas ? ZI_STEP_BETAS : 0);
}

static struct zi_step_options wire_of(const struct zinf *zinf,
                                      const struct zinf_step_options *options)
{
	return (struct zi_step_options){
		.lr = options->lr,
		.beta1 = options->beta1,
		.beta2 = options->beta2,
		.eps = options->eps,
		.weight_decay = options->weight_decay,
		.max_norm = options->max_norm,
		.unscale = options->unscale,
		.micro_batches = options->micro_batches,
		.flags = flags_of(zinf, options),
		.lr_decay = options->lr_decay,
		.group_count = options->group_count,
	};
}

/* Checks @wire and the groups of @options, and puts them into the uplink for @opcode. */
static int put(struct zinf *zinf, enum zi_opcode opcode, const struct zinf_step_options *options,
               const struct zi_step_options *wire)
{
	struct zi_step_group groups[ZI_PARAM_GROUPS_MAX];
	struct zi_step_betas betas[ZI_PARAM_GROUPS_MAX];
	int r = zi_check_step_options(wire, &zinf->text);

	if (r)
		return err_trace(zi_client_tell(zinf, r, &zinf->text));
	if (wire->group_count)
		r = take_groups(zinf, options, groups, betas);
	if (r)
		return err_trace(r);
	if (wire->micro_batches > 1 && zinf->attach.config.schedule == ZI_SCHEDULE_LOCAL)
		return zi_client_error(zinf, -EINVAL,
		                       "micro_batches is %u, but with grad_reduction per_step a "
		                       "rank accumulates by itself: give 1",
		                       wire->micro_batches);
	return err_trace(zi_client_put_options(zinf, opcode, wire,
	                                       wire->group_count ? groups : NULL,
	                                       wire->flags & ZI_STEP_BETAS ? betas : NULL));
}

/* What counts of a step whose hyperparameters come later. Others may be anything. */
static int defer(struct zinf *zinf, const struct zinf_step_options *options,
                 struct zi_step_options *wire)
{
	int r = zi_client_check_late_steps(zinf, "is_deferred of zinf_step_begin()");

	if (r)
		return err_trace(r);
	if (options->update_early)
		return zi_client_error(
			zinf, -EINVAL,
			"is_deferred and update_early are set: an update that begins "
			"during backward needs its hyperparameters in "
			"zinf_step_begin()");
	*wire = (struct zi_step_options){
		.unscale = options->unscale,
		.micro_batches = options->micro_batches,
		.flags = ZI_STEP_DEFERRED | (wire->flags & OPTIONS_BEGUN),
	};
	return 0;
}

int zi_client_put_step_begin(struct zinf *zinf, const struct zinf_step_options *given,
                             struct zi_step_options *ret_wire)
{
	struct zinf_step_options options;
	struct zi_step_options wire;
	int r = take_options(zinf, given, &options);

	if (!r)
		r = check_fields(zinf, &options);
	if (r)
		return err_trace(r);
	wire = wire_of(zinf, &options);
	r = options.is_deferred ? defer(zinf, &options, &wire) : check_daemon(zinf, &options);
	if (!r)
		r = put(zinf, ZI_OP_STEP_BEGIN, &options, &wire);
	if (r)
		return err_trace(r);
	*ret_wire = wire;
	return 0;
}

/* Gradients were summed by these. */
static int check_begun(struct zinf *zinf, const struct zi_step_options *wire)
{
	const struct zi_step_options *begun = &zinf->begun;
	uint32_t differs = (wire->flags ^ begun->flags) & OPTIONS_BEGUN;

	if (wire->micro_batches != begun->micro_batches)
		return zi_client_error(zinf, -EINVAL,
		                       "micro_batches is %u in zinf_step_with(), but %u in "
		                       "zinf_step_begin()",
		                       wire->micro_batches, begun->micro_batches);
	if (memcmp(&wire->unscale, &begun->unscale, sizeof(double)) != 0)
		return zi_client_error(zinf, -EINVAL,
		                       "unscale is %.17g in zinf_step_with(), but %.17g in "
		                       "zinf_step_begin()",
		                       wire->unscale, begun->unscale);
	if (differs)
		return zi_client_error(zinf, -EINVAL,
		                       "%s is %s in zinf_step_with(), but %s in zinf_step_begin()",
		                       differs & ZI_STEP_SUM ? "sum" : "skip_nonfinite",
		                       wire->flags & differs & -differs ? "true" : "false",
		                       wire->flags & differs & -differs ? "false" : "true");
	return 0;
}

int zi_client_put_step_with(struct zinf *zinf, const struct zinf_step_options *given)
{
	struct zinf_step_options options;
	struct zi_step_options wire;
	int r = take_options(zinf, given, &options);

	if (!r)
		r = check_fields(zinf, &options);
	if (!r)
		r = check_daemon(zinf, &options);
	if (r)
		return err_trace(r);
	if (options.update_early)
		return zi_client_error(zinf, -EINVAL,
		                       "update_early is set in zinf_step_with(): only "
		                       "zinf_step_begin() has it");
	wire = wire_of(zinf, &options);
	r = check_begun(zinf, &wire);
	return r ? err_trace(r) : err_trace(put(zinf, ZI_OP_STEP_OPTIONS, &options, &wire));
}
