/* SPDX-License-Identifier: Apache-2.0 */
/* What is done without training, and how it is shown. */
#include "examples/gpt/use.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "examples/gpt/arena.h"
#include "examples/gpt/console.h"
#include "examples/gpt/generate.h"
#include "examples/gpt/measure.h"
#include "examples/gpt/share.h"
#include "examples/gpt/terminal.h"

struct user {
	const struct gpt_run *run;
	struct gpt_backend *backend;
	struct gpt_problem *problem;
	struct gpt_units units;
	struct gpt_activations acts;
	uint64_t step; /* that the job stands at */
};

/* ---- --eval ---- */

static void show_loss(const struct user *user, double loss, uint64_t byte_count)
{
	const struct gpt_args *args = user->run->args;

	if (user->backend->rank_first != 0)
		return;
	if (args->is_json && isfinite(loss))
		(void)printf("{\"event\":\"eval_text\",\"step\":%" PRIu64 ",\"bytes\":%" PRIu64
		             ",\"loss\":%.17g}\n",
		             user->step, byte_count, loss);
	else if (args->is_json)
		(void)printf("{\"event\":\"eval_text\",\"step\":%" PRIu64 ",\"bytes\":%" PRIu64
		             ",\"loss\":null}\n",
		             user->step, byte_count);
	else
		(void)printf("%s: loss %.6f (%.4f bits per byte) over %" PRIu64
		             " bytes, parameters of step %" PRIu64 "\n",
		             args->eval, loss, loss / M_LN2, byte_count, user->step);
}

static int evaluate(struct user *user)
{
	const struct gpt_corpus *corpus = user->run->corpus;
	uint32_t sequence = user->run->model->config.sequence_count;
	uint64_t byte_count = gpt_measure_windows(corpus, sequence) * sequence;
	volatile double *sums = user->run->board->eval_losses;
	uint32_t world = user->backend->world_count;
	double own = 0;
	int r;

	if (!byte_count)
		return gpt_problem_set(
			user->problem, -EINVAL,
			"--eval %s holds %" PRIu64 " bytes; --seq-len %u needs at least %u",
			user->run->args->eval, corpus->byte_count, sequence, sequence + 1);
	r = gpt_measure(&user->units, &user->acts, corpus, (uint32_t)user->backend->rank_first,
	                world, &own, user->problem);
	if (r)
		return r;
	sums[user->backend->rank_first] = own;
	r = gpt_share(user->run, user->backend, sums);
	if (!r)
		r = user->backend->ops->barrier(user->backend);
	if (r)
		return gpt_backend_problem(user->backend, r, user->problem);
	show_loss(user, gpt_board_mean(sums, world) * world / (double)byte_count, byte_count);
	return gpt_console_flush(user->problem);
}

/* ---- --generate ---- */

struct emitter {
	struct gpt_terminal terminal;
	struct gpt_problem *problem;
};

/* A byte of JSON's text: beyond ASCII the code point of its number, as any byte may come. */
static int emit_json(uint8_t byte, void *arg)
{
	struct emitter *emitter = arg;

	if (byte < 0x20 || byte >= 0x7f)
		(void)printf("\\u%04x", byte);
	else
		(void)printf("%s%c", byte == '"' || byte == '\\' ? "\\" : "", byte);
	return gpt_console_flush(emitter->problem);
}

static int emit_plain(uint8_t byte, void *arg)
{
	struct emitter *emitter = arg;

	gpt_terminal_put(&emitter->terminal, byte);
	return gpt_console_flush(emitter->problem);
}

static int generate(struct user *user)
{
	const struct gpt_args *args = user->run->args;
	const struct gpt_sampling sampling = { .temperature = args->temperature,
		                               .top_k = args->top_k,
		                               .seed = args->seed };
	struct emitter emitter = { .terminal = { .file = stdout }, .problem = user->problem };
	gpt_emit_fn emit = args->is_json ? emit_json : emit_plain;
	size_t prompt_bytes = strlen(args->prompt);
	uint8_t *text = malloc(prompt_bytes + args->generate_count);
	int r = 0;

	if (!text)
		return gpt_problem_set(user->problem, -ENOMEM,
		                       "No memory for %" PRIu64 " bytes of text",
		                       args->generate_count);
	memcpy(text, args->prompt, prompt_bytes);
	if (args->is_json)
		(void)printf("{\"event\":\"text\",\"step\":%" PRIu64 ",\"text\":\"", user->step);
	for (size_t i = 0; !r && i < prompt_bytes; i++)
		r = emit(text[i], &emitter);
	if (!r)
		r = gpt_generate(&user->units, &user->acts, &sampling, text, prompt_bytes,
		                 args->generate_count, emit, &emitter, user->problem);
	gpt_terminal_end(&emitter.terminal);
	(void)printf(args->is_json ? "\"}\n" : "\n"); /* Also behind half a text. */
	free(text);
	return r ? r : gpt_console_flush(user->problem);
}

/* ---- flags that the job knows ---- */

/**
 * gpt_use_guess() - flags under which a stored job may have been trained
 * @given: by the user, or by default
 * @index: of the guess, from 0
 * @ret_args: @given, with another type of parameters or another tier of the optimizer's state. What
 *	was given stays
 *
 * Return: false when there are no more guesses, or when the run trains.
 */
bool gpt_use_guess(const struct gpt_args *given, uint32_t index, struct gpt_args *ret_args)
{
	static const enum zinf_dtype dtypes[] = { ZINF_F32, ZINF_BF16, ZINF_F16 };
	static const enum zinf_offload offloads[] = { ZINF_OFFLOAD_NVME, ZINF_OFFLOAD_CPU };
	bool has_type = given->deepspeed || given->is_bf16 || given->is_fp16;
	bool has_tier = given->deepspeed || gpt_args_is_given(given, "offload-optimizer");
	uint32_t type_count = has_type ? 1 : sizeof(dtypes) / sizeof(dtypes[0]);
	uint32_t tier_count = has_tier ? 1 : sizeof(offloads) / sizeof(offloads[0]);

	if (!gpt_is_using(given) || index >= type_count * tier_count)
		return false;
	*ret_args = *given;
	if (!has_type) {
		ret_args->is_bf16 = dtypes[index % type_count] == ZINF_BF16;
		ret_args->is_fp16 = dtypes[index % type_count] == ZINF_F16;
	}
	if (!has_tier)
		ret_args->offload_optimizer = offloads[index / type_count];
	return true;
}

/* ---- the whole ---- */

static int use(struct user *user)
{
	const struct gpt_args *args = user->run->args;
	struct gpt_args forward = *args;
	int64_t step = user->backend->ops->committed_step(user->backend);
	int r;

	if (step < 0)
		return gpt_problem_set(user->problem, -ENODATA, GPT_USE_UNTRAINED);
	if (args->generate_count && user->backend->world_count > 1)
		return gpt_problem_set(user->problem, -EINVAL,
		                       "--generate takes one rank, and %u were started",
		                       user->backend->world_count);
	user->step = (uint64_t)step;
	/* Nothing goes back: one block's arrays are enough. */
	forward.activations = GPT_ACTIVATIONS_RECOMPUTE;
	forward.checkpoint_every = 1;
	if (gpt_units_init(&user->units, args, user->run->model, user->backend))
		return gpt_problem_set(user->problem, -ENOMEM,
		                       "No memory%s for the largest unit in f32",
		                       gpt_arena_place(user->backend->device));
	r = gpt_activations_init(&user->acts, &forward, user->run->model, user->backend,
	                         user->problem);
	if (r)
		return r;
	return args->eval ? evaluate(user) : generate(user);
}

int gpt_use(const struct gpt_run *run, struct gpt_backend *backend, struct gpt_problem *problem)
{
	struct user user = { .run = run, .backend = backend, .problem = problem };
	int r = use(&user);

	gpt_activations_deinit(&user.acts);
	gpt_units_deinit(&user.units);
	return r;
}
