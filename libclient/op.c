/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations: the fixed table. Floor 2.
 *
 * It has as many entries as each ring, and an operation keeps its entry until its completion was
 * taken in: so the daemon always has room for a completion, and we for a submission.
 */
#include <stdlib.h>

#include "common/base/err.h"
#include "libclient/client.h"

/* All entries free. Return: 0; -ENOMEM, with its text. zi_client_ops_free() in either case. */
int zi_client_ops_init(struct zinf *zinf)
{
	zinf->ops = calloc(zinf->entries, sizeof(*zinf->ops));
	zinf->free_indices = calloc(zinf->entries, sizeof(*zinf->free_indices));
	if (!zinf->ops || !zinf->free_indices)
		return zi_client_error(zinf, -ENOMEM, "no memory for %u operations", zinf->entries);
	for (uint32_t i = 0; i < zinf->entries; i++) {
		zinf->ops[i].ticket = i;
		zinf->free_indices[i] = i;
	}
	zinf->free_count = zinf->entries;
	return 0;
}

/* Return: the operation of @ticket, NULL when it is over or never was. */
struct zi_client_op *zi_client_find(struct zinf *zinf, uint64_t ticket)
{
	struct zi_client_op *op = &zinf->ops[ticket & (zinf->entries - 1)];

	return ticket && op->ticket == ticket && op->state != ZI_CLIENT_OP_FREE ? op : NULL;
}

/* Gives the entry back. Not while the daemon still has it: its completion would find nothing. */
void zi_client_op_free(struct zinf *zinf, struct zi_client_op *op)
{
	assert(op->state != ZI_CLIENT_OP_FREE);
	assert(zinf->free_count < zinf->entries);
	zinf->interrupted_count -= op->is_interrupted;
	op->is_interrupted = false;
	op->state = ZI_CLIENT_OP_FREE;
	zinf->free_indices[zinf->free_count++] = (uint32_t)(op - zinf->ops);
}

/* At the end of the session. */
void zi_client_ops_free(struct zinf *zinf)
{
	free(zinf->ops);
	free(zinf->free_indices);
}
