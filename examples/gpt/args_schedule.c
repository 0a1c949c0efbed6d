/* SPDX-License-Identifier: Apache-2.0 */
/* See args_schedule.h. Each flag has the meaning that it has with --lr-schedule of that name
 * (args_lr.c), so that a file and flags say the same in the same words. */
#include "examples/gpt/args_schedule.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

enum number_kind { NUMBER_COUNT, NUMBER_REAL, NUMBER_SHAPE };

#define KEY(name)     "scheduler.params." name
#define OF(kind)      (1u << ZINF_LR_##kind)
#define OF_WARMUPS    (OF(WARMUP) | OF(WARMUP_DECAY) | OF(WARMUP_COSINE))
#define AT(member)    offsetof(struct zinf_lr_options, member)
#define GIVEN(member) offsetof(struct gpt_args, member)

static const struct weft {
	const char *flag;
	uint32_t kinds; /* of a file's scheduler */
	const char *key;
	enum number_kind number;
	size_t given, target; /* in the flags, and among the schedule's numbers */
} wefts[] = {
	{ "warmup", OF_WARMUPS, KEY("warmup_num_steps"), NUMBER_COUNT, GIVEN(warmup_count),
	  AT(warmup_count) },
	{ "warmup", OF(ONE_CYCLE), KEY("cycle_first_step_size"), NUMBER_COUNT, GIVEN(warmup_count),
	  AT(first_count) },
	{ "warmup", OF(RANGE_TEST), KEY("lr_range_test_step_size"), NUMBER_COUNT,
	  GIVEN(warmup_count), AT(step_count) },
	{ "lr-total", OF(WARMUP_DECAY) | OF(WARMUP_COSINE), KEY("total_num_steps"), NUMBER_COUNT,
	  GIVEN(lr_total_count), AT(total_count) },
	{ "lr", OF(WARMUP) | OF(WARMUP_DECAY), KEY("warmup_max_lr"), NUMBER_REAL, GIVEN(lr),
	  AT(max_lr) },
	{ "lr", OF(ONE_CYCLE), KEY("cycle_max_lr"), NUMBER_REAL, GIVEN(lr), AT(max_lr) },
	{ "lr", OF(RANGE_TEST), KEY("lr_range_test_min_lr"), NUMBER_REAL, GIVEN(lr), AT(min_lr) },
	{ "min-lr", OF(ONE_CYCLE), KEY("cycle_min_lr"), NUMBER_REAL, GIVEN(min_lr), AT(min_lr) },
	{ "lr-min-ratio", OF(WARMUP_COSINE), KEY("cos_min_ratio"), NUMBER_REAL, GIVEN(lr_min_ratio),
	  AT(min_ratio) },
	{ "lr-warmup-shape", OF_WARMUPS, KEY("warmup_type"), NUMBER_SHAPE, GIVEN(lr_warmup_shape),
	  AT(warmup_shape) },
};

static const char *shape_name(uint32_t shape)
{
	static const char *const names[] = { "?", "linear", "cosine", "1-sqrt", "log" };

	return shape < sizeof(names) / sizeof(names[0]) ? names[shape] : "?";
}

static void tell_real(const struct gpt_args *args, const char *flag, const char *key, FILE *notes,
                      double given, double read)
{
	if (notes && given != read && read >= 0) /* Below 0: the optimizer's. */
		(void)fprintf(notes,
		              "zinf-gpt: note: --%s %.9g overrides %s of %s, which is %.9g\n", flag,
		              given, key, args->deepspeed, read);
}

static void tell_count(const struct gpt_args *args, const char *flag, const char *key, FILE *notes,
                       uint64_t given, uint64_t read)
{
	if (notes && given != read)
		(void)fprintf(notes,
		              "zinf-gpt: note: --%s %" PRIu64 " overrides %s of %s, which is "
		              "%" PRIu64 "\n",
		              flag, given, key, args->deepspeed, read);
}

/* One flag that was given. */
static void weave(const struct weft *weft, const struct gpt_args *args, FILE *notes,
                  struct zinf_lr_options *lr)
{
	const void *given = (const char *)args + weft->given;
	void *target = (char *)lr + weft->target;
	uint32_t shape;

	switch (weft->number) {
	case NUMBER_COUNT:
		tell_count(args, weft->flag, weft->key, notes, *(const uint64_t *)given,
		           *(uint64_t *)target);
		*(uint64_t *)target = *(const uint64_t *)given;
		break;
	case NUMBER_REAL:
		tell_real(args, weft->flag, weft->key, notes, *(const double *)given,
		          *(double *)target);
		*(double *)target = *(const double *)given;
		break;
	case NUMBER_SHAPE:
		shape = *(const uint32_t *)given;
		if (notes && shape != *(enum zinf_lr_shape *)target)
			(void)fprintf(notes,
			              "zinf-gpt: note: --%s %s overrides %s of %s, which is %s\n",
			              weft->flag, shape_name(shape), weft->key, args->deepspeed,
			              shape_name(*(enum zinf_lr_shape *)target));
		*(enum zinf_lr_shape *)target = (enum zinf_lr_shape)shape;
		break;
	}
}

/* The second half of a cycle is what is left behind the first. */
static int weave_total(const struct gpt_args *args, FILE *notes, struct zinf_lr_options *lr,
                       struct gpt_problem *problem)
{
	uint64_t total = args->lr_total_count;

	if (lr->kind != ZINF_LR_ONE_CYCLE || !gpt_args_is_given(args, "lr-total"))
		return 0;
	if (total <= lr->first_count)
		return gpt_problem_set(problem, -EINVAL,
		                       "--lr-total %" PRIu64 " leaves nothing behind the first "
		                       "half of the cycle, %" PRIu64 " steps (--warmup, or "
		                       "cycle_first_step_size of %s)",
		                       total, lr->first_count, args->deepspeed);
	tell_count(args, "lr-total", KEY("cycle_second_step_size") " (with the first half)", notes,
	           total,
	           lr->first_count + (lr->second_count ? lr->second_count : lr->first_count));
	lr->second_count = total - lr->first_count;
	return 0;
}

int gpt_schedule_weave(const struct gpt_args *args, FILE *notes, struct gpt_args *file,
                       struct gpt_problem *problem)
{
	struct zinf_lr_options *lr = &file->lr_options;

	lr->lr = file->lr;
	/* As there, with an optimizer that has no betas. */
	if (file->optimizer == ZINF_SGD || file->optimizer == ZINF_ADAGRAD)
		lr->cycles_momentum = false;
	for (size_t i = 0; i < sizeof(wefts) / sizeof(wefts[0]); i++)
		if (wefts[i].kinds >> lr->kind & 1 && gpt_args_is_given(args, wefts[i].flag))
			weave(&wefts[i], args, notes, lr);
	/* As in the file, where 0 is the least there is. */
	if (OF_WARMUPS >> lr->kind & 1 && !lr->warmup_count)
		lr->warmup_count = 1;
	return weave_total(args, notes, lr, problem);
}
