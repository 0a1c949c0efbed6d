/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reduce_lr_on_plateau: torch's ReduceLROnPlateau, with its state in the caller's hands. Floor 2,
 * any thread.
 */
#include <errno.h>
#include <math.h>

#include "common/base/err.h"
#include "libclient/lr_private.h"

static bool are_sane(const struct zinf_plateau_options *options)
{
	if (options->bytes != sizeof(*options))
		return false;
	if (!(options->factor >= 0 && options->factor < 1))
		return false;
	if (!isfinite(options->threshold) || !isfinite(options->min_lr))
		return false;
	return options->min_lr >= 0 && options->eps >= 0 && isfinite(options->eps);
}

int zinf_plateau_init(struct zinf_plateau *ret_plateau, const struct zinf_plateau_options *options,
                      double lr)
{
	if (!ret_plateau || !options)
		return err_origin(-EINVAL);
	if (!are_sane(options) || !isfinite(lr) || lr < 0)
		return err_origin(-EINVAL);
	*ret_plateau = (struct zinf_plateau){
		.lr = lr,
		.best = options->is_max ? -INFINITY : INFINITY,
	};
	return 0;
}

/* False for a NaN on either side. */
static bool is_better(const struct zinf_plateau *plateau,
                      const struct zinf_plateau_options *options, double metric)
{
	double best = plateau->best, threshold = options->threshold;

	if (options->is_max)
		return metric > (options->is_absolute ? best + threshold : best * (threshold + 1));
	return metric < (options->is_absolute ? best - threshold : best * (1 - threshold));
}

void zinf_plateau_step(struct zinf_plateau *plateau, const struct zinf_plateau_options *options,
                       double metric)
{
	double lower;

	if (is_better(plateau, options, metric)) {
		plateau->best = metric;
		plateau->bad_count = 0;
	} else if (plateau->bad_count < UINT32_MAX) {
		plateau->bad_count++;
	}
	if (plateau->cooldown_count > 0) {
		plateau->cooldown_count--;
		plateau->bad_count = 0;
	}
	if (plateau->bad_count <= options->patience)
		return;
	lower = zi_lr_max(plateau->lr * options->factor, options->min_lr);
	if (plateau->lr - lower > options->eps)
		plateau->lr = lower;
	plateau->cooldown_count = options->cooldown;
	plateau->bad_count = 0;
}
