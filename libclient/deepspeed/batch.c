/* SPDX-License-Identifier: Apache-2.0 */
/* How large a step is: train_batch_size = micro batch x accumulation x ranks, of which the file may
 * leave out what follows from the rest. Unlike there, a division must come out even: a batch that
 * is quietly smaller than written trains something else. Floor 2. */
#include "common/base/err.h"
#include "libclient/deepspeed/private.h"

#define TRAIN "train_batch_size"
#define MICRO "train_micro_batch_size_per_gpu"
#define ACCUM "gradient_accumulation_steps"

/* 0 for what is not known. */
struct batch {
	uint64_t train, micro, accum, world;
};

static int read_sizes(struct zinf_deepspeed *reader, struct batch *batch)
{
	const struct zinf_deepspeed_facts *facts = &reader->facts;
	int r;

	batch->world = facts->world_size;
	r = deepspeed_count_or(reader, MICRO, facts->micro_batch, "micro_batch", &batch->micro);
	if (r)
		return err_trace(r);
	r = deepspeed_count_or(reader, ACCUM, facts->accumulation_count, "accumulation_count",
	                       &batch->accum);
	if (r)
		return err_trace(r);
	/* "auto" is what follows from the other two. */
	batch->train = (uint64_t)deepspeed_count(reader, TRAIN);
	if (batch->train || batch->micro || !facts->micro_batch)
		return 0;
	/* Accelerate takes an absent size for "auto". */
	batch->micro = facts->micro_batch;
	if (!batch->accum)
		batch->accum = facts->accumulation_count;
	return err_trace(deepspeed_note_value(
		reader, MICRO, "no batch size is in the file: the trainer's own is used"));
}

static int refuse_division(struct zinf_deepspeed *reader, const struct batch *batch,
                           const char *wanted, uint64_t divisor)
{
	return zi_text_error(&reader->text, err_origin(-EINVAL),
	                     TRAIN " = %llu does not divide by %llu (%llu rank(s), of the other "
	                           "two what is given): " MICRO " x " ACCUM
	                           " x ranks must be it, and no whole %s makes it so",
	                     (unsigned long long)batch->train, (unsigned long long)divisor,
	                     (unsigned long long)batch->world, wanted);
}

/* Whichever is missing, from the others. Products are below 2^31 x 2^31 x 64, so 128 bits. */
static int complete(struct zinf_deepspeed *reader, struct batch *batch)
{
	uint64_t divisor;

	if (!batch->train && !batch->micro)
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "neither " TRAIN " nor " MICRO " is given, and the trainer "
		                     "gives no batch size (zinf_deepspeed_facts.micro_batch): "
		                     "write one of them");
	if (!batch->accum && !(batch->train && batch->micro))
		batch->accum = 1;
	if (!batch->train)
		return 0;
	if (batch->micro && batch->accum)
		return 0;
	divisor = batch->world * (batch->micro ? batch->micro : batch->accum);
	if (batch->train % divisor)
		return refuse_division(reader, batch, batch->micro ? ACCUM : MICRO, divisor);
	if (batch->micro)
		batch->accum = batch->train / divisor;
	else
		batch->micro = batch->train / divisor;
	return 0;
}

static int refuse_product(struct zinf_deepspeed *reader, const struct batch *batch, bool is_large)
{
	zi_text_set(&reader->text, MICRO " = %llu x " ACCUM " = %llu x %llu rank(s) ",
	            (unsigned long long)batch->micro, (unsigned long long)batch->accum,
	            (unsigned long long)batch->world);
	if (is_large)
		zi_text_append(&reader->text, "is more than 2147483647: make one of them smaller");
	else
		zi_text_append(&reader->text, "is not " TRAIN " = %llu: change one of them",
		               (unsigned long long)batch->train);
	return err_origin(-EINVAL);
}

/* As in the header. */
int deepspeed_batch(struct zinf_deepspeed *reader)
{
	struct batch batch;
	unsigned __int128 product;
	int r = read_sizes(reader, &batch);

	if (!r)
		r = complete(reader, &batch);
	if (r)
		return err_trace(r);
	product = (unsigned __int128)batch.micro * batch.accum * batch.world;
	if (product > INT32_MAX)
		return refuse_product(reader, &batch, true);
	if (batch.train && product != batch.train)
		return refuse_product(reader, &batch, false);
	reader->config.train_batch = (uint32_t)product;
	reader->config.micro_batch = (uint32_t)batch.micro;
	reader->config.accumulation_count = (uint32_t)batch.accum;
	return 0;
}
