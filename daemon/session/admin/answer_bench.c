/* SPDX-License-Identifier: Apache-2.0 */
/* `bench nvme`: what was measured of a store, as JSON (docs/ANSWERS.md). Floor 6, shard thread. */
#include "daemon/session/admin/answer_bench.h"

#include "common/base/err.h"
#include "daemon/session/admin/answer_json.h"
#include "daemon/session/sess.h"
#include "daemon/tier/tune.h"

static json_t *answer_tuning(const struct nvme_tuning *tuning)
{
	json_t *object = json_object();

	answer_number(object, "read_block_bytes", tuning->read_block_bytes);
	answer_number(object, "write_block_bytes", tuning->write_block_bytes);
	answer_number(object, "read_depth", tuning->read_depth);
	answer_number(object, "write_depth", tuning->write_depth);
	answer_number(object, "read_bytes_per_s", tuning->read_bytes_per_s);
	answer_number(object, "write_bytes_per_s", tuning->write_bytes_per_s);
	return object;
}

static json_t *answer_row(const struct nvme_tune_row *row)
{
	json_t *object = json_object();

	answer_word(object, "direction", row->direction == NVME_READ ? "read" : "write");
	answer_number(object, "block_bytes", row->block_bytes);
	answer_number(object, "depth", row->depth);
	answer_put(object, "bytes_per_s",
	           row->bytes_per_s ? answer_integer(row->bytes_per_s) : json_null());
	answer_put(object, "cpu_ns_per_gb",
	           row->bytes_per_s ? answer_integer(row->cpu_ns_per_gb) : json_null());
	answer_put(object, "is_chosen", json_boolean(row->is_chosen));
	return object;
}

/* Fills @inquiry's answer, or its result and text. */
void sess_answer_bench(struct sess_inquiry *inquiry, const struct sess_bench_result *result)
{
	const struct nvme_tune_report *report = result->report;
	json_t *rows;

	if (report->result) {
		inquiry->result = report->result;
		inquiry->text = report->text;
		return;
	}
	rows = json_array();
	for (uint32_t i = 0; i < report->row_count; i++) /* What fails is seen by whoever reads. */
		(void)json_array_append_new(rows, answer_row(&report->rows[i]));
	inquiry->answer = json_object();
	answer_word(inquiry->answer, "store", result->store);
	answer_put(inquiry->answer, "rows", rows);
	answer_put(inquiry->answer, "chosen", answer_tuning(&report->chosen));
	answer_put(inquiry->answer, "used", answer_tuning(result->used));
	answer_put(inquiry->answer, "is_kept", json_boolean(!result->save_result));
	answer_number(inquiry->answer, "duration_ns", report->duration_ns);
	answer_number(inquiry->answer, "moved_bytes", report->own_bytes);
	answer_number(inquiry->answer, "other_bytes", report->other_bytes);
}
