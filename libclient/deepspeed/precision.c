/* SPDX-License-Identifier: Apache-2.0 */
/* fp16, bf16, data types and loss scale. Floor 2. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

#define GRAD_ACCUM    "data_types.grad_accum_dtype"
#define COMMUNICATION "communication_data_type"

/* "auto" follows the type that the trainer computes in. */
static int read_switch(struct zinf_deepspeed *reader, const char *path, enum zinf_dtype dtype,
                       bool *ret_is_on)
{
	if (!deepspeed_is_auto(reader, path)) {
		*ret_is_on = deepspeed_bool(reader, path);
		return 0;
	}
	if (!reader->facts.dtype)
		return zi_text_error(
			&reader->text, err_origin(-EINVAL),
			"%s is \"auto\", and the trainer does not say what it computes "
			"in (zinf_deepspeed_facts.dtype): write true or false, or fill "
			"that in",
			path);
	*ret_is_on = reader->facts.dtype == dtype;
	return 0;
}

/* Of the choices of the table: 0 is none. */
static enum zinf_dtype dtype_of(const char *name)
{
	if (!name)
		return 0;
	if (deepspeed_has_word("fp16 float16 half", name))
		return ZINF_F16;
	return deepspeed_has_word("bf16 bfloat16", name) ? ZINF_BF16 : ZINF_F32;
}

static int read_dtypes(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	bool is_f16, is_bf16;
	int r = read_switch(reader, "fp16.enabled", ZINF_F16, &is_f16);

	if (!r)
		r = read_switch(reader, "bf16.enabled", ZINF_BF16, &is_bf16);
	if (r)
		return err_trace(r);
	if (is_f16 && is_bf16)
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "fp16.enabled and bf16.enabled are both true: parameters are "
		                     "of one of the two");
	config->param_dtype = is_f16 ? ZINF_F16 : is_bf16 ? ZINF_BF16 : ZINF_F32;
	config->grad_dtype = dtype_of(deepspeed_text(reader, GRAD_ACCUM));
	if (config->grad_dtype && config->grad_dtype != ZINF_F32 &&
	    config->grad_dtype != config->param_dtype) {
		r = deepspeed_note_value(reader, GRAD_ACCUM,
		                         "gradients are of the parameters' type, or fp32 as here, "
		                         "which is more exact");
		if (r)
			return err_trace(r);
		config->grad_dtype = ZINF_F32;
	}
	/* The stage is known by then: see read.c. */
	if (!config->grad_dtype)
		config->grad_dtype =
			is_bf16 && !config->zero_stage ? ZINF_F32 : config->param_dtype;
	config->reduce_dtype = dtype_of(deepspeed_text(reader, COMMUNICATION));
	if (config->reduce_dtype && config->reduce_dtype != ZINF_F32 &&
	    config->reduce_dtype != config->grad_dtype && config->grad_dtype != ZINF_F32) {
		r = deepspeed_note_value(reader, COMMUNICATION,
		                         "sums are of the gradients' type, or fp32 as here, which "
		                         "is more exact");
		config->reduce_dtype = ZINF_F32;
	}
	return err_trace(r);
}

static int read_scaler(struct zinf_deepspeed *reader)
{
	struct zinf_scaler_options *scaler = &reader->config.scaler;
	double fixed = deepspeed_number(reader, "fp16.loss_scale");
	char text[ZI_TEXT_BYTES];

	if (reader->config.param_dtype != ZINF_F16)
		return 0; /* Kind NONE. */
	(void)zinf_scaler_defaults(fixed > 0 ? ZINF_SCALER_STATIC : ZINF_SCALER_DEEPSPEED,
	                           scaler); /* There are both kinds. */
	if (fixed > 0) {
		scaler->init = fixed;
	} else {
		scaler->init = exp2((double)deepspeed_count(reader, "fp16.initial_scale_power"));
		scaler->window = (uint32_t)deepspeed_count(reader, "fp16.loss_scale_window");
		scaler->hysteresis = (uint32_t)deepspeed_count(reader, "fp16.hysteresis");
		scaler->is_consecutive = deepspeed_bool(reader, "fp16.consecutive_hysteresis");
		scaler->min = deepspeed_number(reader, "fp16.min_loss_scale");
	}
	if (zinf_scaler_check(scaler, text, sizeof(text)))
		return zi_text_error(&reader->text, err_origin(-EINVAL), "fp16: %s", text);
	return 0;
}

/* As in the header. */
int deepspeed_precision(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	int r = read_dtypes(reader);

	if (!r)
		r = read_scaler(reader);
	if (r)
		return err_trace(r);
	/* There f16 always looks for overflows, bf16 as it is told, f32 where ZeRO steps. */
	config->step.skip_nonfinite = config->param_dtype == ZINF_F16 ? true
	                              : config->param_dtype == ZINF_BF16
	                                      ? deepspeed_bool(reader, "bf16.check_grad_overflow")
	                                      : config->zero_stage > 0;
	return 0;
}
