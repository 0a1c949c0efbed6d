/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer: which one, and its numbers; with them what else a step takes. Floor 2. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/assert.h"
#include "common/base/cleanup.h"
#include "common/base/err.h"
#include "common/base/nearest.h"
#include "libclient/deepspeed/private.h"

#define OP "optimizer.params."

/* Names in lower case; case does not count there either. */
static const struct {
	const char *name;
	enum zinf_optimizer kind;
} optimizer_types[] = {
	{ "adam", ZINF_ADAM },       { "adamw", ZINF_ADAMW }, { "sgd", ZINF_SGD },
	{ "adagrad", ZINF_ADAGRAD }, { "lion", ZINF_LION },
};

/* DeepSpeed has these, and hands other names on to torch. */
static const char missing_types[] =
	"lamb onebitadam zerooneadam onebitlamb muadam muadamw musgd muon adadelta adamax asgd "
	"lbfgs nadam radam rmsprop rprop sparseadam adafactor";

static const char *find_type(const char *name)
{
	for (uint32_t i = 0; i < ZI_COUNT_OF(optimizer_types); i++)
		if (!strcasecmp(optimizer_types[i].name, name))
			return optimizer_types[i].name;
	return NULL;
}

static int refuse_type(struct zinf_deepspeed *reader, const json_t *type)
{
	char lower[ZI_NEAREST_BYTES + 2]; /* One more: what is longer stays too long. */
	struct zi_nearest nearest = { .wanted = lower };

	(void)snprintf(lower, sizeof(lower), "%s", json_string_value(type));
	for (char *at = lower; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	if (deepspeed_has_word(missing_types, nearest.wanted))
		return zi_text_error(&reader->text, err_origin(-EOPNOTSUPP),
		                     "optimizer.type is %s, which zinf does not have: adam, adamw, "
		                     "sgd, adagrad, lion are there",
		                     deepspeed_show(type).chars);
	for (uint32_t i = 0; i < ZI_COUNT_OF(optimizer_types); i++)
		zi_nearest_offer(&nearest, optimizer_types[i].name);
	if (!zi_nearest_name(&nearest))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "optimizer.type is %s, which is no optimizer: adam, adamw, "
		                     "sgd, adagrad, lion are allowed",
		                     deepspeed_show(type).chars);
	return zi_text_error(&reader->text, err_origin(-EINVAL),
	                     "optimizer.type is %s, which is no optimizer; the nearest is \"%s\"",
	                     deepspeed_show(type).chars, nearest.name);
}

/* As in the header: a wrong JSON type is left to the walk. */
int deepspeed_find_optimizer(struct zinf_deepspeed *reader)
{
	const json_t *optimizer = json_object_get(reader->root, "optimizer");
	const json_t *type = json_object_get(optimizer, "type");

	reader->optimizer = "";
	if (!json_is_object(optimizer) || (type && !json_is_string(type) && !json_is_null(type)))
		return 0;
	if (!type || json_is_null(type))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     "optimizer.type is missing: it says which one");
	if (!find_type(json_string_value(type)))
		return refuse_type(reader, type);
	reader->optimizer = find_type(json_string_value(type));
	reader->config.has_optimizer = true;
	return 0;
}

static bool is_type(const struct zinf_deepspeed *reader, const char *name)
{
	return !strcmp(reader->optimizer, name);
}

/* The names "adam" and "adamw" are both AdamW there; only the first can be told not to be. */
static int read_adam(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	bool is_coupled = !deepspeed_bool(reader, OP "adam_w_mode");

	config->optimizer = is_type(reader, "adam") && is_coupled ? ZINF_ADAM : ZINF_ADAMW;
	config->has_no_bias_correction = !deepspeed_bool(reader, OP "bias_correction");
	config->step.no_bias_correction = config->has_no_bias_correction;
	/* torch.optim.AdamW's own default differs from DeepSpeed's kernels'. */
	if (deepspeed_bool(reader, OP "torch_adam") && config->optimizer == ZINF_ADAMW &&
	    !deepspeed_is_given(reader, OP "weight_decay"))
		config->step.weight_decay = 0.01;
	if (is_type(reader, "adamw") && is_coupled)
		return err_trace(deepspeed_note(reader, OP "adam_w_mode", "false",
		                                "the type AdamW decides, as there"));
	return 0;
}

static int read_betas(struct zinf_deepspeed *reader)
{
	struct zinf_step_options *step = &reader->config.step;
	const json_t *betas = reader->values[deepspeed_find(reader, OP "betas")];
	int r;

	step->beta1 = 0.9; /* As the table says. */
	step->beta2 = 0.999;
	if (deepspeed_is_auto(reader, OP "betas")) {
		r = deepspeed_number_or(reader, OP "betas", reader->facts.beta1, "beta1",
		                        &step->beta1);
		if (!r)
			r = deepspeed_number_or(reader, OP "betas", reader->facts.beta2, "beta2",
			                        &step->beta2);
		return err_trace(r);
	}
	if (betas) {
		step->beta1 = json_number_value(json_array_get(betas, 0));
		step->beta2 = json_number_value(json_array_get(betas, 1));
	}
	return 0;
}

static int read_sgd(struct zinf_deepspeed *reader)
{
	struct zinf_step_options *step = &reader->config.step;

	reader->config.optimizer = ZINF_SGD;
	step->beta1 = deepspeed_number(reader, OP "momentum");
	step->beta2 = deepspeed_number(reader, OP "dampening");
	step->nesterov = deepspeed_bool(reader, OP "nesterov");
	if (step->nesterov && (!(step->beta1 > 0) || step->beta2 != 0))
		return zi_text_error(&reader->text, err_origin(-EINVAL),
		                     OP
		                     "nesterov with momentum = %g and dampening = %g: it needs a "
		                     "momentum above 0 and no dampening",
		                     step->beta1, step->beta2);
	return 0;
}

static int read_own(struct zinf_deepspeed *reader)
{
	if (is_type(reader, "sgd"))
		return err_trace(read_sgd(reader));
	if (is_type(reader, "adagrad")) {
		reader->config.optimizer = ZINF_ADAGRAD;
		reader->config.lr_decay = reader->config.step.lr_decay =
			deepspeed_number(reader, OP "lr_decay");
		return 0;
	}
	if (is_type(reader, "lion")) {
		reader->config.optimizer = ZINF_LION;
		return err_trace(deepspeed_note(
			reader, "optimizer.type", "\"Lion\"",
			"a parameter whose update is exactly 0 stays, as in the paper; there it "
			"moves by lr"));
	}
	return err_trace(read_adam(reader));
}

static int read_shared(struct zinf_deepspeed *reader)
{
	const struct zinf_deepspeed_facts *facts = &reader->facts;
	struct zinf_step_options *step = &reader->config.step;
	int r = deepspeed_number_or(reader, OP "lr", facts->lr, "lr", &step->lr);

	if (!r)
		r = deepspeed_number_or(reader, OP "weight_decay", facts->weight_decay,
		                        "weight_decay", &step->weight_decay);
	if (!r && !is_type(reader, "sgd") && !is_type(reader, "lion"))
		r = deepspeed_number_or(reader, OP "eps", facts->eps, "eps", &step->eps);
	if (!r && !is_type(reader, "sgd") && !is_type(reader, "adagrad"))
		r = read_betas(reader);
	return err_trace(r);
}

/* Clipping, and what ranks' gradients become. */
static int read_gradients(struct zinf_deepspeed *reader)
{
	struct zinf_deepspeed_config *config = &reader->config;
	const char *operation = deepspeed_text(reader, "gradient_allreduce_op");
	int r = deepspeed_number_or(reader, "gradient_clipping", reader->facts.max_norm, "max_norm",
	                            &config->step.max_norm);

	if (r)
		return err_trace(r);
	config->step.sum = !strcasecmp(operation, "sum");
	if (config->step.sum && config->zero_stage == 3)
		return zi_text_error(
			&reader->text, err_origin(-EINVAL),
			"gradient_allreduce_op is \"sum\" at stage 3, which is refused "
			"there too: say \"mean\", or a lower stage");
	if (deepspeed_is_given(reader, "gradient_clipping"))
		return 0;
	return err_trace(deepspeed_note(reader, "gradient_clipping", "1.0",
	                                "not given: the default since 0.19; before it was 0, which "
	                                "is none"));
}

/* As in the header. */
int deepspeed_optimizer(struct zinf_deepspeed *reader)
{
	int r = read_gradients(reader);

	if (r || !reader->config.has_optimizer)
		return err_trace(r);
	r = read_shared(reader);
	if (!r)
		r = read_own(reader);
	return err_trace(r);
}
