/* SPDX-License-Identifier: Apache-2.0 */
/* What a file may ask for, and zinfd or libzinf cannot do yet: said by name, so that nothing that
 * changes results is dropped in silence. Each is taken out here when it is built. Floor 2. */
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

struct missing {
	bool is_asked;
	const char *key;
	const char *what;
};

/* As in the header. */
int deepspeed_yet(struct zinf_deepspeed *reader)
{
	const struct zinf_deepspeed_config *config = &reader->config;
	enum zinf_dtype reduce = config->reduce_dtype ? config->reduce_dtype : config->grad_dtype;
	const struct missing missing[] = {
		{ config->grad_dtype != ZINF_F32 && config->grad_dtype != config->param_dtype,
		  "data_types.grad_accum_dtype",
		  "gradients that are neither fp32 nor of the parameters' type" },
		{ reduce != config->grad_dtype && reduce != ZINF_F32 &&
		          config->grad_dtype != ZINF_F32,
		  "communication_data_type",
		  "sums of a type of 16 bits that gradients of the other one have no room for (use "
		  "fp32, or data_types.grad_accum_dtype fp32)" },
		{ config->shard_ranks > 0, "mics_shard_size, zero_hpz_partition_size",
		  "dividing parameters over groups of fewer ranks" },
		{ config->offload_param == ZINF_OFFLOAD_NVME &&
		          config->offload_optimizer != ZINF_OFFLOAD_NVME,
		  "zero_optimization.offload_param.device",
		  "parameters on NVMe without optimizer state there (offload_optimizer.device)" },
	};

	for (uint32_t i = 0; i < ZI_COUNT_OF(missing); i++)
		if (missing[i].is_asked)
			return zi_text_error(&reader->text, err_origin(-EOPNOTSUPP),
			                     "%s: not supported yet: %s", missing[i].key,
			                     missing[i].what);
	return 0;
}
