/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal: a job goes on with the optimizer state of a snapshot exactly where that means the same, and
 * is refused by name where it only has the same width. Method: a job trains with one optimizer
 * beside the plain computation and is snapshotted; one with another optimizer begins there.
 */
#include "daemon/zero/snapshot/snapshot.h"
#include "tests/unit/zero/kept.h"

/* A job that begins with the snapshot of one with another optimizer. @words: NULL, or why not. */
static void load_across(enum zi_optimizer from, enum zi_optimizer to, const char *words)
{
	struct actor actors[4] = { 0 }, others[4] = { 0 };
	struct zi_job_config config = model_config(ZI_DTYPE_BF16, ZI_OFFLOAD_NVME);
	struct node node;
	struct plain plain;
	struct kept kept = { 0 };

	node_init(&node);
	node.store_bytes = 96 * MIB;
	node_start(&node);
	config.optimizer = from;
	plain_init(&plain, &config, 1);
	model_begin(&node, actors, 1, &(struct attach_options){ .config = config });
	model_train(actors, 1, 1, 2);
	plain_train(&plain, 1, 2);
	cr_assert_eq(kept_call(&node, &kept, zero_snapshot_create, "train", "a"), 0, "%s",
	             kept.op.text.chars);
	plain.config.optimizer = config.optimizer = to;
	model_attach(&node, others, 1,
	             &(struct attach_options){ .job = "other", .config = config });
	if (words) {
		cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), -EINVAL);
		cr_assert_not_null(strstr(others[0].text.chars, words), "%s", others[0].text.chars);
	} else {
		cr_assert_eq(zero_load(others[0].rank, "train", "a", &others[0].text), 0, "%s",
		             others[0].text.chars);
		cr_assert_eq(model_materialize(others, 1), 0, "%s", others[0].text.chars);
		model_train(others, 1, 3, 4);
		plain_train(&plain, 3, 4);
		cr_assert(plain_equals(&plain, &others[0]), "goes on with the same moments");
	}
	actors_leave(actors, 4, true);
	actors_leave(others, 4, true);
	plain_deinit(&plain);
	node_deinit(&node);
}

Test(zero_snapshot_kind, adam_and_adamw_go_on_with_each_others_state)
{
	load_across(ZI_OPTIMIZER_ADAMW, ZI_OPTIMIZER_ADAM, NULL);
	load_across(ZI_OPTIMIZER_ADAM, ZI_OPTIMIZER_ADAMW, NULL);
}

/* Equal widths are not equal meaning. */
Test(zero_snapshot_kind, one_moment_is_not_taken_for_another)
{
	load_across(ZI_OPTIMIZER_SGD, ZI_OPTIMIZER_LION, "optimizer is lion, but sgd there");
	load_across(ZI_OPTIMIZER_LION, ZI_OPTIMIZER_ADAGRAD,
	            "optimizer is adagrad, but lion there");
	load_across(ZI_OPTIMIZER_ADAGRAD, ZI_OPTIMIZER_SGD, "optimizer is sgd, but adagrad there");
	load_across(ZI_OPTIMIZER_LION, ZI_OPTIMIZER_ADAMW, "optimizer is adamw, but lion there");
}

Test(zero_snapshot_kind, one_moment_goes_on_in_a_job_of_its_kind)
{
	load_across(ZI_OPTIMIZER_ADAGRAD, ZI_OPTIMIZER_ADAGRAD, NULL);
	load_across(ZI_OPTIMIZER_LION, ZI_OPTIMIZER_LION, NULL);
}
