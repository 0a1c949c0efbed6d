/* SPDX-License-Identifier: Apache-2.0 */
/* Progress lines. Each is one printf() to a line-buffered stream, so ranks do not mix theirs. */
#include "examples/gpt/report.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "examples/gpt/args_strategy.h"
#include "examples/gpt/memory.h"
#include "examples/gpt/resume.h"

static bool is_speaker(const struct gpt_report *report)
{
	return report->rank_first == 0 && !report->args->is_quiet;
}

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

/* What is trained, once. @byte_count, @file_count: of text. */
void gpt_report_start(const struct gpt_report *report, const struct gpt_model *model,
                      uint64_t byte_count, uint32_t file_count)
{
	const struct gpt_args *args = report->args;
	const struct gpt_config *config = &model->config;

	if (!is_speaker(report) || args->is_json)
		return;
	(void)printf("%.2f M parameters (%u layers, %u heads, %u channels, %u tokens) in %s; "
	             "%" PRIu64 " KB of text in %u files\n"
	             "%u rank%s x %u micro-batch%s x %u sequence%s, strategy %s, gradients "
	             "reduced %s%s\n",
	             (double)model->element_count / 1e6, config->layer_count, config->head_count,
	             config->channel_count, config->sequence_count,
	             gpt_dtype_name(gpt_param_dtype(args)), byte_count / 1000, file_count,
	             args->world_count, args->world_count == 1 ? "" : "s", args->grad_accum_count,
	             args->grad_accum_count == 1 ? "" : "es", config->batch_count,
	             config->batch_count == 1 ? "" : "s", gpt_strategy_name(args),
	             args->grad_reduction == ZINF_REDUCE_PER_MICRO_BATCH ? "per micro-batch"
	                                                                 : "per step",
	             args->is_reference ? ", reference (without zinf)" : "");
}

/* @step: the committed one. @token_count: seen by all ranks until then. */
void gpt_report_resumed(const struct gpt_report *report, uint64_t step, uint64_t token_count)
{
	if (!is_speaker(report))
		return;
	if (report->args->is_json)
		(void)printf("{\"event\":\"resumed\",\"step\":%" PRIu64 ",\"tokens_seen\":%" PRIu64
		             "}\n",
		             step, token_count);
	else
		(void)printf("resumed at step %" PRIu64 ", after %" PRIu64 " tokens\n", step,
		             token_count);
}

/* State in memory was lost. @lost_step: where the job stood. @step: where it starts now. */
void gpt_report_lost(const struct gpt_report *report, int64_t lost_step, uint64_t step)
{
	char note[400];

	if (is_speaker(report) && report->args->is_json)
		(void)printf("{\"event\":\"lost\",\"step\":%" PRId64 ",\"starts_at\":%" PRIu64
		             "}\n",
		             lost_step, step);
	(void)snprintf(note, sizeof(note),
	               "job '%s' was at step %" PRId64 " with its state in memory, which was lost "
	               "when zinfd ended: it starts at step %" PRIu64
	               ". --offload-optimizer nvme keeps the state of a run; --resume JOB/NAME "
	               "starts from a snapshot, zctl load makes one of an export",
	               gpt_job_name(report->args), lost_step, step);
	gpt_report_note(report, note);
}

/* The job stands at --steps already, or behind it. */
void gpt_report_nothing_to_do(const struct gpt_report *report, uint64_t step)
{
	uint64_t wanted = report->args->step_count;

	if (!is_speaker(report))
		return;
	if (report->args->is_json)
		(void)printf("{\"event\":\"nothing_to_do\",\"step\":%" PRIu64 ",\"steps\":%" PRIu64
		             "}\n",
		             step, wanted);
	else if (report->args->is_once)
		(void)printf("nothing to do: the text was read once, in %" PRIu64 " steps\n",
		             wanted);
	else
		(void)printf("nothing to do: --steps %" PRIu64 " is reached\n", wanted);
}

/* Something that is not an error, and that a person should know. */
void gpt_report_note(const struct gpt_report *report, const char *note)
{
	if (report->rank_first == 0)
		(void)fprintf(stderr, "zinf-gpt: note: %s\n", note);
}

/* JSON knows no NaN. Returns @buffer. */
static const char *number(double x, char buffer[static 32])
{
	(void)snprintf(buffer, 32, isfinite(x) ? "%.17g" : "null", x);
	return buffer;
}

static void print_json(const struct gpt_report *report, const struct gpt_record *record)
{
	const struct zinf_step_stats *stats = &record->stats;
	const volatile double *losses = report->board->losses[record->step % GPT_BOARD_ROWS];
	const char *strategy = gpt_strategy_name(report->args);
	char norm[32], loss[32];

	for (uint32_t lane = 0; lane < report->lane_count; lane++) {
		uint32_t rank = report->rank_first + lane;

		if (rank >= record->live_count)
			break;
		(void)printf("{\"step\":%" PRIu64
		             ",\"rank\":%u,\"strategy\":\"%s\",\"loss\":%s,\"norm\":%s,"
		             "\"clip\":%.9g,\"loss_scale\":%.17g,\"lr\":%.17g,\"skipped\":%u,"
		             "\"tokens\":%" PRIu64
		             ",\"wall_ms\":%.3f,\"compute_ms\":%.3f,\"wait_ms\":%.3f,"
		             "\"step_ms\":%.3f,\"grad_wait_ms\":%.3f,\"norm_wait_ms\":%.3f,"
		             "\"io_read_ms\":%.3f,\"io_write_ms\":%.3f,\"cpu_ms\":%.3f,"
		             "\"commit_ms\":%.3f,\"read_bytes\":%" PRIu64
		             ",\"write_bytes\":%" PRIu64 "}\n",
		             record->step, rank, strategy, number(losses[rank], loss),
		             number(stats->norm, norm), stats->clip, record->loss_scale, record->lr,
		             stats->is_skipped, record->token_count, ms(record->wall_ns),
		             ms(record->compute_ns), ms(record->wait_ns), ms(stats->step_ns),
		             ms(stats->grad_wait_ns), ms(stats->norm_wait_ns),
		             ms(stats->io_read_ns), ms(stats->io_write_ns), ms(stats->cpu_ns),
		             ms(stats->commit_ns), stats->read_bytes, stats->write_bytes);
	}
}

static void print_skipped(const struct gpt_report *report, const struct zinf_step_stats *stats)
{
	const char *unit =
		stats->nonfinite_unit < 0 ? NULL : report->model->units[stats->nonfinite_unit].name;

	(void)printf("  SKIPPED: ");
	if (stats->nonfinite_rank >= 0)
		(void)printf("rank %d's gradient", stats->nonfinite_rank);
	else
		(void)printf("the gradient");
	if (unit)
		(void)printf(" of unit '%s'", unit);
	(void)printf(" is not finite");
	if (report->args->scaler.kind != ZINF_SCALER_NONE)
		(void)printf("; loss scale %g", stats->loss_scale);
	(void)printf("\n");
}

/* The steps since the line before are over. */
static void print_line(struct gpt_report *report, const struct gpt_record *record)
{
	const struct zinf_step_stats *stats = &record->stats;
	struct gpt_progress *progress = &report->progress;
	char text[256];

	progress->step = record->step;
	progress->step_count = report->args->step_count;
	progress->loss = gpt_board_mean(report->board->losses[record->step % GPT_BOARD_ROWS],
	                                record->loss_count);
	progress->norm = stats->norm;
	progress->lr = record->lr;
	gpt_progress_line(progress, gpt_progress_columns(STDOUT_FILENO), text, sizeof(text));
	(void)printf("%s\n", text);
	if (stats->is_skipped)
		print_skipped(report, stats);
	*progress = (struct gpt_progress){ 0 };
}

/* The number of a committed step to whoever watches; one that has gone is no reason to stop. A pipe
 * of one page holds the line, and this rank until the line was read: blanks that fill the next page
 * come behind it, which whoever reads a number skips. */
static void tell_watcher(struct gpt_report *report, uint64_t step)
{
	int page_bytes = fcntl(report->watch_fd, F_SETPIPE_SZ, 1);
	int width = page_bytes > 0 ? page_bytes - 1 : 0;
	int fill = page_bytes > 0 ? page_bytes : 0;

	if (dprintf(report->watch_fd, "%-*" PRIu64 "\n", width, step) < 0 ||
	    dprintf(report->watch_fd, "%*s", fill, "") < 0) {
		(void)close(report->watch_fd);
		report->watch_fd = -1;
	}
}

/* A step is committed. */
void gpt_report_step(struct gpt_report *report, const struct gpt_record *record)
{
	const struct gpt_args *args = report->args;

	if (report->watch_fd >= 0)
		tell_watcher(report, record->step);
	if (args->is_json && !args->is_quiet) {
		print_json(report, record);
		return;
	}
	report->progress.window_count++;
	report->progress.loop_ns += record->loop_ns;
	report->progress.compute_ns += record->compute_ns;
	report->progress.token_count += record->token_count;
	if (is_speaker(report) && (record->step % args->log_every == 0 || record->step == 1 ||
	                           record->step == args->step_count || record->stats.is_skipped))
		print_line(report, record);
}

/* Losses of the evaluation after @step are on the board. */
void gpt_report_eval(const struct gpt_report *report, uint64_t step)
{
	double loss = gpt_board_mean(report->board->eval_losses, report->world_count);
	char text[32];

	if (!is_speaker(report))
		return;
	if (report->args->is_json)
		(void)printf("{\"event\":\"eval\",\"step\":%" PRIu64 ",\"loss\":%s}\n", step,
		             number(loss, text));
	else
		(void)printf("eval %5" PRIu64 "  loss %.4f  (%.3f bits per byte)\n", step, loss,
		             loss / M_LN2);
}

/* At the end: what a rank took. @own_bytes, @tensor_bytes: of activations between forward and
 * backward, in this process and with zinfd. */
void gpt_report_memory(const struct gpt_report *report, uint64_t own_bytes, uint64_t tensor_bytes)
{
	uint64_t peak_bytes = gpt_peak_bytes();

	if (report->args->is_quiet)
		return;
	if (report->args->is_json)
		(void)printf("{\"event\":\"memory\",\"rank\":%u,\"peak_bytes\":%" PRIu64
		             ",\"activation_bytes\":%" PRIu64 ",\"tensor_bytes\":%" PRIu64 "}\n",
		             report->rank_first, peak_bytes, own_bytes, tensor_bytes);
	else if (is_speaker(report))
		(void)printf(
			"memory of rank %u: at most %.1f MB; activations: %.1f MB in the rank, "
			"%.1f MB in zinfd\n",
			report->rank_first, (double)peak_bytes / 1e6, (double)own_bytes / 1e6,
			(double)tensor_bytes / 1e6);
}
