/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no value that the daemon cannot stand passes a check, a caller's mistake (-EINVAL) is told
 * apart from what no libzinf sends (-EPROTO), and the sentence names the field. Method: a good
 * value of each kind; then one rule broken at a time. */
#include <criterion/criterion.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/wire/check.h"

static struct zi_text text;

static void expect_text(const char *word)
{
	cr_expect_not_null(strstr(text.chars, word), "'%s' in '%s'", word, text.chars);
}

/* ---- submission slots ---- */

Test(check, every_opcode_passes_with_what_it_takes)
{
	for (uint16_t opcode = 0; opcode < _ZI_OP_COUNT; opcode++) {
		struct zi_sqe sqe = { .user_data = UINT64_MAX, .opcode = opcode };

		cr_expect_eq(zi_check_sqe(&sqe, 1, &text), 0, "%s", zi_opcode_name(opcode));
	}
}

Test(check, unit_must_be_of_the_layout)
{
	for (uint16_t opcode = ZI_OP_UNSHARD; opcode <= ZI_OP_REDUCE; opcode++) {
		struct zi_sqe sqe = { .opcode = opcode, .unit = 7 };

		cr_expect_eq(zi_check_sqe(&sqe, 8, &text), 0);
		cr_expect_eq(zi_check_sqe(&sqe, 7, &text), -EINVAL);
		expect_text("unit 7 of 7");
		sqe.unit = 0;
		cr_expect_eq(zi_check_sqe(&sqe, 0, &text), -EINVAL, "before materialise");
		sqe.unit = UINT32_MAX;
		cr_expect_eq(zi_check_sqe(&sqe, 8, NULL), -EINVAL);
	}
}

Test(check, blob_must_fit_its_area)
{
	const uint16_t opcodes[] = { ZI_OP_STEP, ZI_OP_COMMIT };

	for (size_t i = 0; i < 2; i++) {
		struct zi_sqe sqe = { .opcode = opcodes[i], .args = { ZI_BLOB_BYTES } };

		cr_expect_eq(zi_check_sqe(&sqe, 1, &text), 0);
		sqe.args[0] = ZI_BLOB_BYTES + 1;
		cr_expect_eq(zi_check_sqe(&sqe, 1, &text), -EINVAL);
		expect_text("65537");
		sqe.args[0] = UINT64_MAX;
		cr_expect_eq(zi_check_sqe(&sqe, 1, &text), -EINVAL);
	}
}

Test(check, malformed_slot_is_eproto)
{
	const struct zi_sqe cases[] = {
		{ .opcode = _ZI_OP_COUNT },
		{ .opcode = UINT16_MAX },
		{ .opcode = ZI_OP_NOP, .flags = 1 },
		{ .opcode = ZI_OP_NOP, .unit = 1 },
		{ .opcode = ZI_OP_NOP, .args = { 1 } },
		{ .opcode = ZI_OP_BARRIER, .args = { 1 } },
		{ .opcode = ZI_OP_STEP_BEGIN, .unit = 1 },
		{ .opcode = ZI_OP_UNSHARD, .args = { 1 } },
		{ .opcode = ZI_OP_UNSHARD, .flags = 0x8000 },
		{ .opcode = ZI_OP_REDUCE, .args = { [5] = 1 } },
		{ .opcode = ZI_OP_STEP, .unit = 1 },
		{ .opcode = ZI_OP_STEP, .args = { 0, 1 } },
		{ .opcode = ZI_OP_COMMIT, .args = { [3] = UINT64_MAX } },
		{ .opcode = ZI_OP_TENSOR_PUT, .unit = 1 },
		{ .opcode = ZI_OP_TENSOR_PUT, .args = { 1, 2, 3 } },
		{ .opcode = ZI_OP_TENSOR_GET, .args = { 1, 2 } },
		{ .opcode = ZI_OP_CANCEL, .args = { 1, 2 } },
		{ .opcode = ZI_OP_GRAD_UNUSED, .flags = 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		cr_expect_eq(zi_check_sqe(&cases[i], 10, &text), -EPROTO, "%zu", i);
}

/* ---- step options ---- */

static struct zi_step_options good_options(void)
{
	return (struct zi_step_options){
		.lr = 1e-3,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.weight_decay = 0.1,
		.max_norm = 1,
		.unscale = 1,
		.micro_batches = 1,
	};
}

Test(check, ordinary_step_options_pass)
{
	struct zi_step_options options = good_options();

	cr_assert_eq(zi_check_step_options(&options, &text), 0);
	options.flags = ZI_STEP_FLAGS_ALL & ~ZI_STEP_DEFERRED;
	options.group_count = ZI_PARAM_GROUPS_MAX;
	options.micro_batches = 65536;
	options.lr = options.beta1 = options.beta2 = options.eps = 0;
	options.weight_decay = options.max_norm = 0;
	options.unscale = 1.0 / 65536;
	cr_assert_eq(zi_check_step_options(&options, &text), 0, "%s", text.chars);
}

Test(check, step_options_that_cannot_be_are_refused)
{
	struct zi_step_options options = good_options();

	options.flags = ZI_STEP_DIVIDES_BY_LIVE;
	cr_assert_eq(zi_check_step_options(&options, &text), -EPROTO);
	expect_text("divides_by_live is joined ranks' alone");
	options = good_options();
	options.group_count = ZI_PARAM_GROUPS_MAX + 1;
	cr_assert_eq(zi_check_step_options(&options, &text), -EINVAL);
	expect_text("group_count is 65: 0 to 64 are allowed");
	options = good_options();
	options.reserved0 = 1;
	cr_assert_eq(zi_check_step_options(&options, &text), -EPROTO);
	options = good_options();
	options.flags = ZI_STEP_DEFERRED;
	cr_assert_eq(zi_check_step_options(&options, &text), 0, "%s", text.chars);
	options.group_count = 1;
	cr_assert_eq(zi_check_step_options(&options, &text), -EPROTO);
	expect_text("a deferred step has its groups later");
	options.group_count = 0;
	options.flags = ZI_STEP_DEFERRED | ZI_STEP_JOINED;
	cr_assert_eq(zi_check_step_options(&options, &text), -EPROTO);
	options.flags = ZI_STEP_BETAS;
	cr_assert_eq(zi_check_step_options(&options, &text), -EPROTO);
	options.flags = ZI_STEP_DEFERRED | ZI_STEP_UPDATE_EARLY;
	cr_assert_eq(zi_check_step_options(&options, &text), -EINVAL);
	expect_text("is_deferred and update_early are set");
}

Test(check, betas_of_groups_are_in_range)
{
	const struct zi_step_betas good = { 0.9, 0.999, 1e-8 };
	struct zi_step_betas betas[2] = { good, good };

	cr_assert_eq(zi_check_step_betas(betas, 2, &text), 0);
	betas[1].beta1 = 1;
	cr_assert_eq(zi_check_step_betas(betas, 2, &text), -EINVAL);
	expect_text("group 1 of a step has beta1 1, beta2 0.999");
	cr_assert_eq(zi_check_step_betas(betas, 1, &text), 0, "it is not looked at");
	betas[1] = good;
	betas[1].beta2 = -0.5;
	cr_assert_eq(zi_check_step_betas(betas, 2, &text), -EINVAL);
	betas[1] = good;
	betas[1].eps = (double)NAN;
	cr_assert_eq(zi_check_step_betas(betas, 2, &text), -EINVAL);
}

Test(check, every_hyperparameter_is_finite_and_in_range)
{
	const struct {
		size_t offset;
		const char *name;
		bool is_fraction; /* below 1 */
		bool is_positive;
	} fields[] = {
		{ offsetof(struct zi_step_options, lr), "lr", false, false },
		{ offsetof(struct zi_step_options, beta1), "beta1", true, false },
		{ offsetof(struct zi_step_options, beta2), "beta2", true, false },
		{ offsetof(struct zi_step_options, eps), "eps", false, false },
		{ offsetof(struct zi_step_options, weight_decay), "weight_decay", false, false },
		{ offsetof(struct zi_step_options, max_norm), "max_norm", false, false },
		{ offsetof(struct zi_step_options, unscale), "unscale", false, true },
		{ offsetof(struct zi_step_options, lr_decay), "lr_decay", false, false },
	};
	const double bad[] = { NAN, INFINITY, -INFINITY, -1e-30, -1, 1e39, DBL_MAX };

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct zi_step_options options = good_options();
		double *field = (double *)((char *)&options + fields[i].offset);

		for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
			*field = bad[k];
			cr_expect_eq(zi_check_step_options(&options, &text), -EINVAL, "%s = %g",
			             fields[i].name, bad[k]);
			expect_text(fields[i].name);
		}
		*field = 1;
		cr_expect_eq(zi_check_step_options(&options, &text),
		             fields[i].is_fraction ? -EINVAL : 0);
		*field = 0;
		cr_expect_eq(zi_check_step_options(&options, &text),
		             fields[i].is_positive ? -EINVAL : 0);
	}
}

Test(check, micro_batches_flags_and_reserved_words_of_a_step)
{
	struct zi_step_options options = good_options();

	options.micro_batches = 0;
	cr_expect_eq(zi_check_step_options(&options, &text), -EINVAL);
	expect_text("micro_batches is 0");
	options.micro_batches = 65537;
	cr_expect_eq(zi_check_step_options(&options, &text), -EINVAL);
	options.micro_batches = 1;
	options.flags = ZI_STEP_FLAGS_ALL + 1;
	cr_expect_eq(zi_check_step_options(&options, &text), -EPROTO);
	options.flags = 0;
	options.reserved[5] = 1;
	cr_expect_eq(zi_check_step_options(&options, &text), -EPROTO);
}

/* ---- configuration and attach ---- */

static struct zi_job_config good_config(void)
{
	return (struct zi_job_config){
		.param_dtype = ZI_DTYPE_BF16,
		.grad_dtype = ZI_DTYPE_F32,
		.optimizer = ZI_OPTIMIZER_ADAMW,
		.schedule = ZI_SCHEDULE_LOCAL,
		.offload_optimizer = ZI_OFFLOAD_NVME,
		.offload_param = ZI_OFFLOAD_CPU,
		.durability = ZI_DURABILITY_POWER,
		.resident_bytes = INT64_MAX,
		.staging_bytes = 1,
	};
}

Test(check, each_choice_of_a_job_is_one_of_those_allowed)
{
	const struct {
		size_t offset;
		const char *name;
		uint32_t low, end;
	} fields[] = {
		{ offsetof(struct zi_job_config, param_dtype), "param_dtype", 1,
		  _ZI_DTYPE_FLOAT_COUNT },
		{ offsetof(struct zi_job_config, grad_dtype), "grad_dtype", 1,
		  _ZI_DTYPE_FLOAT_COUNT },
		{ offsetof(struct zi_job_config, optimizer), "optimizer", 1, _ZI_OPTIMIZER_COUNT },
		{ offsetof(struct zi_job_config, schedule), "grad_reduction", 1,
		  _ZI_SCHEDULE_COUNT },
		{ offsetof(struct zi_job_config, offload_optimizer), "offload_optimizer", 0,
		  _ZI_OFFLOAD_COUNT },
		{ offsetof(struct zi_job_config, offload_param), "offload_param", 0,
		  _ZI_OFFLOAD_COUNT },
		{ offsetof(struct zi_job_config, durability), "durability", 0,
		  _ZI_DURABILITY_COUNT },
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		struct zi_job_config config = good_config();
		uint32_t *field = (uint32_t *)((char *)&config + fields[i].offset);

		cr_expect_eq(zi_check_job_config(&config, &text), 0, "%s", text.chars);
		*field = fields[i].low - 1; /* 2^32 - 1 where 0 is allowed */
		cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL, "%s", fields[i].name);
		expect_text(fields[i].name);
		*field = fields[i].end;
		cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL, "%s", fields[i].name);
		expect_text(fields[i].name);
	}
}

Test(check, gradients_are_of_the_parameters_type_or_f32)
{
	for (uint32_t param = 1; param < _ZI_DTYPE_FLOAT_COUNT; param++)
		for (uint32_t grad = 1; grad < _ZI_DTYPE_FLOAT_COUNT; grad++) {
			struct zi_job_config config = good_config();
			bool is_good = grad == param || grad == ZI_DTYPE_F32;

			config.param_dtype = param;
			config.grad_dtype = grad;
			cr_expect_eq(zi_check_job_config(&config, &text), is_good ? 0 : -EINVAL);
			if (!is_good)
				expect_text("gradients are of that type or f32");
		}
}

Test(check, parameters_on_nvme_need_their_state_there)
{
	struct zi_job_config config = good_config();

	config.offload_param = ZI_OFFLOAD_NVME;
	config.param_budget_bytes = 1 << 20;
	cr_expect_eq(zi_check_job_config(&config, &text), 0);
	config.offload_optimizer = ZI_OFFLOAD_CPU;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	expect_text("needs offload_optimizer nvme");
}

Test(check, sizes_and_reserved_words_of_a_job)
{
	struct zi_job_config config = good_config();

	config.resident_bytes = 1ull << 63;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	config = good_config();
	config.staging_bytes = UINT64_MAX;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	config = good_config();
	config.commit_interval = 65536;
	cr_expect_eq(zi_check_job_config(&config, &text), 0);
	config.commit_interval++;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	expect_text("commit_interval is 65537");
	config = good_config();
	config.io_weight = ZI_IO_WEIGHT_MAX;
	cr_assert_eq(zi_check_job_config(&config, &text), 0);
	config.io_weight++;
	cr_assert_eq(zi_check_job_config(&config, &text), -EINVAL);
	cr_assert_not_null(strstr(text.chars, "io_weight"));

	config = good_config();
	config.reserved0 = 1;
	cr_expect_eq(zi_check_job_config(&config, &text), -EPROTO);
	config = good_config();
	config.param_budget_bytes = 1ull << 63;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	config = good_config();
	config.reserved[0] = 1;
	cr_expect_eq(zi_check_job_config(&config, &text), -EPROTO);
	config = good_config();
	config.snapshot_keep = 3;
	cr_expect_eq(zi_check_job_config(&config, &text), -EINVAL);
	expect_text("snapshot_keep is 3");
	config.snapshot_interval = UINT32_MAX;
	cr_expect_eq(zi_check_job_config(&config, &text), 0);
}

static struct zi_attach good_attach(void)
{
	return (struct zi_attach){
		.job = "gpt",
		.incarnation = "",
		.rank = 63,
		.world_size = 64,
		.flags = ZI_ATTACH_TAKEOVER,
		.timeout_ms = 1,
		.config = good_config(),
	};
}

Test(check, attach_has_a_name_a_place_and_a_deadline)
{
	struct zi_attach attach = good_attach();

	cr_expect_eq(zi_check_attach(&attach, &text), 0, "%s", text.chars);
	(void)snprintf(attach.incarnation, sizeof(attach.incarnation), "%s", "run:1.0");
	cr_expect_eq(zi_check_attach(&attach, &text), 0);
	(void)snprintf(attach.incarnation, sizeof(attach.incarnation), "%s", "run 1");
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	expect_text("incarnation 'run 1'");
	attach = good_attach();
	(void)snprintf(attach.job, sizeof(attach.job), "%s", "../etc");
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	expect_text("job name");
	attach.job[0] = '\0';
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	memset(attach.job, 'a', sizeof(attach.job));
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL, "no end");
	attach = good_attach();
	attach.world_size = 65;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	expect_text("world size 65");
	attach.world_size = 0;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	attach = good_attach();
	attach.rank = 64;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	expect_text("rank 64");
	attach = good_attach();
	attach.local_world_size = attach.world_size;
	cr_expect_eq(zi_check_attach(&attach, &text), 0, "%s", text.chars);
	attach.local_world_size++;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	expect_text("ranks of this node in a world of");
	attach = good_attach();
	attach.timeout_ms = 0;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
	attach = good_attach();
	attach.config.optimizer = 9;
	cr_expect_eq(zi_check_attach(&attach, &text), -EINVAL);
}

Test(check, malformed_attach_is_eproto)
{
	struct zi_attach attach = good_attach();

	attach.flags = ZI_ATTACH_FLAGS_ALL;
	cr_expect_eq(zi_check_attach(&attach, &text), 0, "%s", text.chars);
	attach.flags = 4;
	cr_expect_eq(zi_check_attach(&attach, &text), -EPROTO);
	attach = good_attach();
	attach.reserved[0] = 1;
	cr_expect_eq(zi_check_attach(&attach, &text), -EPROTO);
}

/* ---- layout entries ---- */

static struct zi_layout_entry good_param(void)
{
	return (struct zi_layout_entry){
		.kind = ZI_LAYOUT_PARAM,
		.dim_count = 2,
		.name = "h.0/attn[c]~weight",
		.shape = { 3, 5 },
	};
}

Test(check, units_and_parameters_pass)
{
	struct zi_layout_entry entry = good_param();

	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0, "%s", text.chars);
	entry = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .name = "h.0" };
	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0);
	entry.kind = ZI_LAYOUT_PARAM;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0, "a scalar");
}

Test(check, names_of_the_model_are_visible_ascii)
{
	const char *const bad[] = { "", "a b", "a\n", "\x7f", "\xc3\xa9", "\x01" };
	struct zi_layout_entry entry = good_param();

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		(void)snprintf(entry.name, sizeof(entry.name), "%s", bad[i]);
		cr_expect_eq(zi_check_layout_entry(&entry, &text), -EINVAL, "%zu", i);
	}
	memset(entry.name, 'a', sizeof(entry.name));
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO, "no end");
	entry.name[sizeof(entry.name) - 1] = '\0';
	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0);
}

Test(check, shapes_have_elements_and_not_too_many)
{
	struct zi_layout_entry entry = good_param();

	entry.shape[1] = 0;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EINVAL);
	expect_text("dimension of 0");
	entry.shape[0] = entry.shape[1] = 1ull << 32;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EINVAL);
	expect_text("2^48");
}

Test(check, malformed_entry_is_eproto)
{
	struct zi_layout_entry entry = good_param();

	entry.kind = 0;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry.kind = 4;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry = good_param();
	entry.dim_count = 9;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry.dim_count = UINT32_MAX;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry = good_param();
	entry.shape[2] = 1; /* beyond dim_count */
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .dim_count = 1, .name = "u" };
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .name = "u", .shape = { 1 } };
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
}

Test(check, a_group_is_a_parameters_and_below_the_limit)
{
	struct zi_layout_entry entry = good_param();

	entry.group = ZI_PARAM_GROUPS_MAX - 1;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0, "%s", text.chars);
	entry.group = ZI_LAYOUT_FROZEN;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0);
	entry.group = ZI_PARAM_GROUPS_MAX;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EINVAL);
	expect_text("is of group 64: 0 to 63 are allowed, or 65535 (frozen)");
	entry = (struct zi_layout_entry){ .kind = ZI_LAYOUT_UNIT, .group = 1, .name = "u" };
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
}

Test(check, a_set_is_a_mask_of_ranks)
{
	struct zi_layout_entry entry = {
		.kind = ZI_LAYOUT_SET, .dim_count = 1, .name = "stage", .shape = { 0x3 }
	};

	cr_expect_eq(zi_check_layout_entry(&entry, &text), 0, "%s", text.chars);
	entry.shape[0] = 0;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EINVAL);
	expect_text("data-parallel group 'stage' has no ranks");
	entry.shape[0] = UINT64_MAX;
	entry.dim_count = 0;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry.dim_count = 2;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	entry.dim_count = 1;
	entry.shape[1] = 1;
	cr_expect_eq(zi_check_layout_entry(&entry, &text), -EPROTO);
	expect_text("1 dimensions, 1 to 1 expected, or unused ones set");
}
