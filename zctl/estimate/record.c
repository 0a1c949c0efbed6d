/* SPDX-License-Identifier: Apache-2.0 */
/* A model as zctl export wrote it down (model.h): all its units, and how it was trained. */
#include <errno.h>

#include "common/base/err.h"
#include "zctl/estimate/model.h"
#include "zctl/model.h"

static int take(struct estimate_model *model, const struct model *record, struct zi_text *text)
{
	int r = 0;

	for (uint32_t i = 0; i < record->unit_count && !r; i++)
		r = estimate_model_add(model, record->units[i].name, record->units[i].element_count,
		                       text);
	if (r)
		return err_trace(r);
	if (model->unit_count != record->unit_count)
		return zi_text_error(text, err_origin(-EINVAL), "two of its units have one name");
	model->param_count = record->param_count;
	model->dtype = record->dtype;
	model->grad_dtype = record->grad_dtype;
	model->optimizer = record->optimizer;
	model->schedule = record->schedule;
	zi_text_set(&model->kind, "export of job %.64s", record->job);
	return 0;
}

/* See model.h. */
int estimate_read_record(struct estimate_model *model, json_t *record, struct zi_text *text)
{
	struct model read;
	const char *what = "";
	int r;

	if (model_parse(&read, json_incref(record), &what))
		r = zi_text_error(text, err_origin(-EINVAL), "it is invalid: %s", what);
	else
		r = take(model, &read, text);
	model_free(&read);
	return err_trace(r);
}
