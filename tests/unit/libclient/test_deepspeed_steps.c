/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: optimizers, schedules and clipping of a file of DeepSpeed are those of there, with their
 * defaults; what zinf does not have is refused by name. Method: small files with one thing each. */
#include "common/base/cleanup.h"
#include "tests/unit/libclient/deepspeed.h"

static void optimizer(const char *type, const char *params, enum zinf_optimizer kind)
{
	char json[256];

	(void)snprintf(json, sizeof(json),
	               "{" MICRO ", 'optimizer': {'type': '%s', 'params': {%s}}}", type, params);
	accepted(json);
	cr_expect(config.has_optimizer);
	cr_expect_eq(config.optimizer, kind, "%s", json);
}

Test(deepspeed_steps, optimizers_have_their_own_defaults)
{
	optimizer("Adam", "", ZINF_ADAMW);
	cr_expect_eq(config.step.lr, 1e-3);
	cr_expect_eq(config.step.beta1, 0.9);
	cr_expect_eq(config.step.beta2, 0.999);
	cr_expect_eq(config.step.eps, 1e-8);
	cr_expect_eq(config.step.weight_decay, 0);
	optimizer("adam", "'adam_w_mode': false, 'betas': [0.5, 0.75], 'eps': 1e-6", ZINF_ADAM);
	cr_expect_eq(config.step.beta1, 0.5);
	cr_expect_eq(config.step.beta2, 0.75);
	cr_expect_eq(config.step.eps, 1e-6);
	optimizer("AdamW", "'adam_w_mode': false", ZINF_ADAMW);
	cr_expect(strstr(note_on("optimizer.params.adam_w_mode"), "as there"));
	optimizer("AdamW", "'torch_adam': true", ZINF_ADAMW);
	cr_expect_eq(config.step.weight_decay, 0.01, "torch's own");
	optimizer("AdamW", "'torch_adam': true, 'weight_decay': 0.3", ZINF_ADAMW);
	cr_expect_eq(config.step.weight_decay, 0.3);
	optimizer("AdamW", "'bias_correction': false", ZINF_ADAMW);
	cr_expect(config.has_no_bias_correction);
	cr_expect(config.step.no_bias_correction);
	optimizer("SGD", "'lr': 0.5, 'momentum': 0.875, 'dampening': 0.25", ZINF_SGD);
	cr_expect_eq(config.step.lr, 0.5);
	cr_expect_eq(config.step.beta1, 0.875);
	cr_expect_eq(config.step.beta2, 0.25);
	optimizer("sgd", "'lr': 0.5, 'momentum': 0.5, 'nesterov': true", ZINF_SGD);
	cr_expect(config.step.nesterov);
	optimizer("Adagrad", "'lr_decay': 0.125", ZINF_ADAGRAD);
	cr_expect_eq(config.step.lr, 1e-2);
	cr_expect_eq(config.step.eps, 1e-10);
	cr_expect_eq(config.lr_decay, 0.125);
	cr_expect_eq(config.step.lr_decay, 0.125);
	optimizer("Lion", "", ZINF_LION);
	cr_expect_eq(config.step.lr, 1e-3);
	cr_expect_eq(config.step.beta2, 0.999);
	cr_expect(strstr(note_on("optimizer.type"), "paper"));
}

Test(deepspeed_steps, optimizers_that_are_not_there_are_refused_by_name)
{
	static const char *const names[] = { "Lamb", "OneBitAdam", "OneBitLamb", "ZeroOneAdam",
		                             "Muon", "MuAdam",     "MuSGD",      "Adamax" };

	for (size_t i = 0; i < ZI_COUNT_OF(names); i++) {
		char json[128];

		(void)snprintf(json, sizeof(json), "{" MICRO ", 'optimizer': {'type': '%s'}}",
		               names[i]);
		refused(json, -EOPNOTSUPP, names[i]);
	}
	refused("{" MICRO ", 'optimizer': {'type': 'AdanW'}}", -EINVAL, "the nearest is \"adamw\"");
	refused("{" MICRO ", 'optimizer': {'type': 3}}", -EINVAL, "optimizer.type is 3");
	refused("{" MICRO ", 'optimizer': {'type': 'sgd', 'params': {'lr': 1, 'nesterov': true}}}",
	        -EINVAL, "needs a momentum");
	refused("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'max_grad_norm': 1}}}",
	        -EOPNOTSUPP, "say gradient_clipping");
	refused("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'betas': [0.9, 1]}}}",
	        -EINVAL, "betas is [0.9,1]: two numbers");
	refused("{" MICRO ", 'optimizer': {'type': 'adam', 'params': {'lr': [0.1, 0.2]}}}", -EINVAL,
	        "zinf_param_group()");
	refused("{" MICRO ", 'gradient_allreduce_op': 'sum', 'zero_optimization': {'stage': 3}}",
	        -EINVAL, "at stage 3");
	accepted("{" MICRO ", 'gradient_allreduce_op': 'sum', 'gradient_clipping': 0}");
	cr_expect(config.step.sum);
	cr_expect_eq(config.step.max_norm, 0);
	cr_expect_null(note_on("gradient_clipping"));
}

static void schedule(const char *type, const char *params, enum zinf_lr_kind kind)
{
	char json[512];
	struct zinf_lr_value value;

	(void)snprintf(json, sizeof(json),
	               "{" MICRO ", 'optimizer': {'type': 'adamw', 'params': {'lr': 0.25}}, "
	               "'scheduler': {'type': '%s', 'params': {%s}}}",
	               type, params);
	accepted(json);
	cr_expect(config.has_lr);
	cr_expect_eq(config.lr.kind, kind, "%s", json);
	cr_expect_eq(config.lr.lr, 0.25);
	cr_expect_eq(zinf_lr_at(&config.lr, 7, &value), 0, "a curve that can be asked");
}

Test(deepspeed_steps, schedules_are_the_five_of_there)
{
	schedule("LRRangeTest",
	         "'lr_range_test_min_lr': 0.5, 'lr_range_test_step_size': 20, "
	         "'lr_range_test_step_rate': 3, 'lr_range_test_staircase': true",
	         ZINF_LR_RANGE_TEST);
	cr_expect_eq(config.lr.min_lr, 0.5);
	cr_expect_eq(config.lr.step_count, 20);
	cr_expect_eq(config.lr.step_rate, 3);
	cr_expect(config.lr.is_staircase);
	schedule("OneCycle",
	         "'cycle_min_lr': 0.1, 'cycle_max_lr': 0.2, 'cycle_first_step_size': 10, "
	         "'cycle_second_step_size': 20, 'cycle_first_stair_count': 5, "
	         "'cycle_second_stair_count': 4, 'decay_step_size': 3, 'decay_lr_rate': 0.5, "
	         "'cycle_min_mom': 0.6, 'cycle_max_mom': 0.7, 'decay_mom_rate': 0.01",
	         ZINF_LR_ONE_CYCLE);
	cr_expect_eq(config.lr.min_lr, 0.1);
	cr_expect_eq(config.lr.max_lr, 0.2);
	cr_expect_eq(config.lr.first_count, 10);
	cr_expect_eq(config.lr.second_count, 20);
	cr_expect_eq(config.lr.first_stairs, 5);
	cr_expect_eq(config.lr.second_stairs, 4);
	cr_expect_eq(config.lr.decay_step_count, 3);
	cr_expect_eq(config.lr.decay_lr_rate, 0.5);
	cr_expect(config.lr.cycles_momentum);
	cr_expect_eq(config.lr.min_momentum, 0.6);
	cr_expect_eq(config.lr.max_momentum, 0.7);
	cr_expect_eq(config.lr.decay_momentum_rate, 0.01);
	schedule("OneCycle", "'cycle_min_lr': 0.1, 'cycle_max_lr': 0.2", ZINF_LR_ONE_CYCLE);
	cr_expect_eq(config.lr.first_count, 2000);
	cr_expect_eq(config.lr.second_count, 0, "as many as up");
	cr_expect_eq(config.lr.second_stairs, -1, "as up");
	schedule("WarmupLR", "'warmup_num_steps': 0, 'warmup_type': 'linear'", ZINF_LR_WARMUP);
	cr_expect_eq(config.lr.warmup_count, 1, "0 and 1 are 2 there");
	cr_expect_eq(config.lr.warmup_shape, ZINF_LR_SHAPE_LINEAR);
	cr_expect_eq(config.lr.max_lr, -1);
	cr_expect(strstr(note_on("scheduler.params.warmup_max_lr"), "0.001"));
	schedule("WarmupLR", "'warmup_min_lr': 0.125, 'warmup_max_lr': 0.5", ZINF_LR_WARMUP);
	cr_expect_eq(config.lr.min_lr, 0.125);
	cr_expect_eq(config.lr.max_lr, 0.5);
	cr_expect_eq(config.lr.warmup_count, 1000);
	cr_expect_eq(config.lr.warmup_shape, ZINF_LR_SHAPE_LOG);
	schedule("WarmupDecayLR", "'total_num_steps': 5000", ZINF_LR_WARMUP_DECAY);
	cr_expect_eq(config.lr.max_lr, 1e-3);
	cr_expect_eq(config.lr.total_count, 5000);
	schedule("WarmupCosineLR",
	         "'total_num_steps': 5000, 'warmup_min_ratio': 0.5, 'cos_min_ratio': 0.25",
	         ZINF_LR_WARMUP_COSINE);
	cr_expect_eq(config.lr.warmup_ratio, 0.5);
	cr_expect_eq(config.lr.min_ratio, 0.25);
}

Test(deepspeed_steps, schedules_that_cannot_be_are_refused)
{
	refused("{" MICRO ", 'scheduler': {'type': 'WarmupCosinLR'}}", -EINVAL,
	        "the nearest is \"WarmupCosineLR\"");
	refused("{" MICRO ", 'scheduler': {'type': 'warmuplr'}}", -EINVAL, "\"WarmupLR\"");
	refused("{" MICRO ", 'scheduler': {'type': null}}", -EINVAL, "scheduler.type");
	refused("{" MICRO ", 'scheduler': {'type': 'OneCycle', 'params': {'cycle_min_lr': 0, "
	        "'cycle_max_lr': 0}}}",
	        -EINVAL, "scheduler: ");
	refused("{" MICRO
	        ", 'scheduler': {'type': 'WarmupLR', 'params': {'warmup_type': 'cubic'}}}",
	        -EINVAL, "one of log linear");
	accepted("{" MICRO ", 'optimizer': {'type': 'Adagrad'}, 'scheduler': {'type': 'OneCycle', "
	         "'params': {'cycle_min_lr': 1, 'cycle_max_lr': 2}}}");
	cr_expect_not(config.lr.cycles_momentum);
	cr_expect(strstr(note_on("scheduler.params.cycle_momentum"), "no betas"));
	accepted("{" MICRO ", 'scheduler': {'type': 'WarmupCosineLR', 'params': "
	         "{'total_num_steps': 5}}}");
	cr_expect_eq(config.lr.lr, 2e-4, "the trainer's own optimizer");
}
