/* SPDX-License-Identifier: Apache-2.0 */
/* Values of zctl launch's options that are more than a number: lists by rank, signals, counts. All
 * return 0, or -EINVAL with a sentence that begins with @name, the option. */
#pragma once

#include <stdint.h>

#include "zctl/launch/options.h"

/* A whole number of @least to @most. */
int launch_value_count(const char *name, const char *value, uint32_t least, uint32_t most,
                       uint32_t *ret_count, struct zi_text *text);
/* Seconds, 0 to 10^9. */
int launch_value_seconds(const char *name, const char *value, double *ret_seconds,
                         struct zi_text *text);
/* --nproc-per-node: a number, "auto" or "cpu" (the CPUs this process may use). */
int launch_value_ranks(const char *name, const char *value, uint32_t *ret_count, bool *ret_is_cut,
                       struct zi_text *text);
/* -r, -t: "3" for every rank, or "0:1,2:3" for some. @stds: (LAUNCH_RANKS_MAX,). */
int launch_value_stds(const char *name, const char *value, uint8_t *stds, struct zi_text *text);
/* --local-ranks-filter: "0,3". @is_shown: (LAUNCH_RANKS_MAX,). */
int launch_value_filter(const char *name, const char *value, bool *is_shown, struct zi_text *text);
/* --signals-to-handle: "SIGTERM,SIGINT". @signals: (LAUNCH_SIGNALS_MAX,), ended by 0. */
int launch_value_signals(const char *name, const char *value, int *signals, struct zi_text *text);
