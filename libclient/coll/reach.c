/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the buffers of a call lie, as far as this rank alone can tell; see collective.h. Floor 2.
 * What else may be wrong with a call the engine finds (node.h).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/checked.h"
#include "common/base/err.h"
#include "libclient/coll/collective.h"

static bool overlaps(uintptr_t begin, uintptr_t end, const void *other, uint64_t other_bytes)
{
	return begin < (uintptr_t)other + other_bytes && (uintptr_t)other < end;
}

/* Whether @page lies in a mapping that can be written: for memory of which the kernel makes no
 * pages beforehand (of a device, pinned by a driver, secret), and kernels before 5.14. */
static bool is_mapped_writable(uintptr_t page)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], kind[5]; /* of a longer line the rest looks like no mapping */
	unsigned long begin, end;
	bool is_writable = !maps; /* nobody knows */

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %4s", &begin, &end, kind) == 3 && page >= begin &&
		    page < end)
			is_writable = kind[1] == 'w';
	if (maps)
		(void)fclose(maps); /* It was only read. */
	return is_writable;
}

/* Whether bytes of @page can be written; asks the kernel, which changes nothing there. */
static int check_page(struct zinf *zinf, uintptr_t page, uint64_t page_bytes,
                      enum zi_coll_operation operation, struct zi_text *text)
{
	uintptr_t *seen = &zinf->coll->seen[page / page_bytes % ZI_CLIENT_COLL_PAGES];
	bool is_param = overlaps(page, page + 1, zinf->param_base, zinf->param_bytes);

	if (*seen == page && !is_param) /* a parameter's pages change their kind */
		return 0;
	if (madvise((void *)page, page_bytes, MADV_POPULATE_WRITE) == 0) {
		*seen = page;
		return 0;
	}
	if (errno != EINVAL && errno != EFAULT && errno != ENOMEM)
		return 0; /* busy, poisoned: no matter of permission */
	if (errno == EINVAL && is_mapped_writable(page)) {
		*seen = page;
		return 0;
	}
	return err_origin(
		zi_text_error(text, -EACCES, "%s: the target is not writable at %p%s",
	                      zi_coll_operation_name(operation), (void *)page,
	                      is_param ? ": parameters are, after zinf_param_write_begin()" : ""));
}

/* The first page and the last: what a mistaken pointer, or a length, hits. */
static int check_writable(struct zinf *zinf, uintptr_t begin, uintptr_t end,
                          enum zi_coll_operation operation, struct zi_text *text)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = begin & ~(page_bytes - 1), last = (end - 1) & ~(page_bytes - 1);
	int r = check_page(zinf, first, page_bytes, operation, text);

	if (!r && last != first)
		r = check_page(zinf, last, page_bytes, operation, text);
	return err_trace(r);
}

static int check_buffer(struct zinf *zinf, const void *data, uint64_t bytes, bool is_target,
                        enum zi_coll_operation operation, struct zi_text *text)
{
	const struct zi_client_coll *coll = zinf->coll;
	uintptr_t begin = (uintptr_t)data, own = (uintptr_t)coll->own;
	uint64_t end;

	/* What is no buffer at all is the engine's to tell. */
	if (!data || !bytes || !zi_checked_add(begin, bytes, &end))
		return 0;
	if (!overlaps(begin, end, coll->arenas, coll->arenas_bytes))
		return is_target ? err_trace(check_writable(zinf, begin, end, operation, text)) : 0;
	if (begin >= own + coll->arena.begin_bytes && end <= own + coll->arena.end_bytes)
		return 0;
	return err_origin(zi_text_error(text, -EINVAL,
	                                "%s: the %s %p (%s) lies in the arena outside this "
	                                "rank's allocations: use zinf_coll_alloc()",
	                                zi_coll_operation_name(operation),
	                                is_target ? "target" : "source", data,
	                                zi_format_bytes(bytes).chars));
}

static bool is_dtype(enum zi_dtype dtype)
{
	return dtype >= ZI_DTYPE_F32 && dtype < _ZI_DTYPE_COUNT;
}

static int reach_messages(struct zinf *zinf, const struct zi_node_op *op, struct zi_text *text)
{
	int r = 0;

	for (uint32_t i = 0; i < op->p2p_count && !r; i++) {
		const struct zi_node_p2p *p2p = &op->p2ps[i];
		uint64_t bytes;

		if (is_dtype(p2p->dtype) &&
		    zi_checked_mul(p2p->element_count, zi_dtype_bytes(p2p->dtype), &bytes))
			r = check_buffer(zinf, p2p->buffer, bytes, !p2p->is_send,
			                 p2p->is_send ? ZI_COLL_SEND : ZI_COLL_RECV, text);
	}
	return err_trace(r);
}

int zi_client_coll_reach(struct zinf *zinf, const struct zi_client_call *call, struct zi_text *text)
{
	const struct zi_node_call *node_call = &call->op.call;
	struct zi_coll_lengths lengths = {
		.operation = node_call->operation,
		.member_count = zi_node_members(&call->group->node),
		.element_count = node_call->element_count,
		.source_counts = node_call->source_counts,
		.target_counts = node_call->target_counts,
	};
	bool has_counts = node_call->source_counts && node_call->target_counts;
	uint64_t source_bytes, target_bytes;
	int r;

	if (call->op.p2p_count)
		return err_trace(reach_messages(zinf, &call->op, text));
	if (!is_dtype(node_call->dtype) ||
	    (zi_coll_is_counted(node_call->operation) && !has_counts))
		return 0;
	lengths.width = zi_dtype_bytes(node_call->dtype);
	if (!zi_coll_bytes(&lengths, &source_bytes, &target_bytes))
		return 0;
	r = check_buffer(zinf, node_call->source, source_bytes, false, node_call->operation, text);
	if (!r)
		r = check_buffer(zinf, node_call->target, target_bytes, true, node_call->operation,
		                 text);
	return err_trace(r);
}
