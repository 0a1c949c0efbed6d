/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a long preparation (progress.h). Floor 7. */
#include "daemon/progress.h"

#include "common/base/clock.h"

#define LINE_PERCENT 10u
#define LINE_NS      ZI_NS_PER_S

/* See progress.h. */
uint32_t progress_step(struct progress *progress, uint64_t done_bytes, uint64_t total_bytes,
                       uint64_t now_ns)
{
	uint32_t percent =
		total_bytes ? (uint32_t)((double)done_bytes * 100 / (double)total_bytes) : 100;
	uint32_t news = 0;

	if (!progress->is_begun) {
		progress->is_begun = true;
		progress->line_ns = now_ns;
		news |= PROGRESS_BEGUN | PROGRESS_MANAGER;
	}
	if (percent == progress->percent)
		return news;
	progress->percent = percent;
	news |= PROGRESS_MANAGER;
	if (progress->is_terminal)
		return news | PROGRESS_BAR;
	if (percent < progress->line_percent + LINE_PERCENT || now_ns - progress->line_ns < LINE_NS)
		return news;
	progress->line_percent = percent;
	progress->line_ns = now_ns;
	return news | PROGRESS_LINE;
}
