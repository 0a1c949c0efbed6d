/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of DeepSpeed's says of memory: types, strategy, homes. */
#pragma once

#include "common/base/text.h"
#include "zctl/estimate/options.h"

/* Into @options, of which `rank_count`, `node_count` and `dtype` are known; "auto" is what Hugging
 * Face's trainer would fill in without a word: bf16, no accumulation. Return: 0; -EINVAL,
 * -EOPNOTSUPP, -ENOENT … with file and key. */
int estimate_deepspeed(struct estimate_options *options, struct zi_text *text);
