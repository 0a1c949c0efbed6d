/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: what steps over several nodes cannot do is refused by a sentence, and changes nothing: the
 * group trains on with the plain bits. Method: two nodes in one process (nodes.h).
 */
#include "tests/unit/zero/across_train.h"

static void refuse(uint32_t rank, const char *word, int got)
{
	const char *text = ranks.actors[rank].calls[0].op.text.chars;

	cr_assert_eq(got, -EOPNOTSUPP, "%d: %s", got, text);
	cr_assert_not_null(strstr(text, word), "'%s'", text);
}

static int begin_with(uint32_t rank, uint32_t flags)
{
	static const struct zi_step_group groups[1];
	static const struct zi_step_betas betas[1];
	struct zi_step_options options = model_options();

	options.flags = flags;
	options.group_count = flags & ZI_STEP_BETAS ? 1 : 0;
	actor_start(&ranks.actors[rank], 0, zero_step_begin,
	            &(struct zero_op){ .options = options, .groups = groups, .betas = betas });
	return nodes_wait(&ranks.actors[rank], 0);
}

Test(across_deferred, what_only_one_node_has_is_refused, .timeout = 120)
{
	struct train what = wanted("01", ZI_OFFLOAD_NVME);

	what.training.strategy = ZI_STRATEGY_ZERO1;
	begin_train(&what, 3);
	for (uint32_t rank = 0; rank < 2; rank++) {
		refuse(rank, "is_deferred of a step: a job over several nodes",
		       begin_with(rank, ZI_STEP_DEFERRED));
		refuse(rank, "group_betas of a step: a job over several nodes",
		       begin_with(rank, ZI_STEP_BETAS));
	}
	cr_assert_eq(train_gradients(1), 0, "%s", ranks.actors[0].text.chars);
	for (uint32_t rank = 0; rank < 2; rank++) {
		refuse(rank, "grad_norm: a job over several nodes",
		       train_call(rank, zero_grad_norm, 0));
		refuse(rank, "a job over several nodes cannot discard a step",
		       train_call(rank, zero_step_discard, 0));
	}
	train_step_start(1);
	cr_assert_eq(train_step_end(), 0, "%s", ranks.actors[0].text.chars);
	train_plain(1);
	train_check(1);
	end_train();
}
