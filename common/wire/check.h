/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an untrusted slot to a checked request: opcode known, flags and unused words zero, blob
 * within bounds, options finite and in range. The caller passes a *copy*. Floor 1, pure.
 */
#pragma once

#include "common/base/text.h"
#include "common/wire/control.h"
#include "common/wire/layout.h"

/* @unit_count: of the job's layout, 0 before it is materialised. 0; -EINVAL (bad argument: the
 * operation fails); -EPROTO (malformed: the session ends). */
int zi_check_sqe(const struct zi_sqe *sqe, uint32_t unit_count, struct zi_text *text);
int zi_check_step_options(const struct zi_step_options *options, struct zi_text *text);
int zi_check_step_groups(const struct zi_step_group *groups, uint32_t count, struct zi_text *text);
int zi_check_step_betas(const struct zi_step_betas *betas, uint32_t count, struct zi_text *text);
/* What a good value may ask for and this daemon does not do: -EOPNOTSUPP, naming it. */
int zi_check_job_config(const struct zi_job_config *config, struct zi_text *text);
int zi_check_attach(const struct zi_attach *attach, struct zi_text *text);
int zi_check_layout_entry(const struct zi_layout_entry *entry, struct zi_text *text);
