/* SPDX-License-Identifier: Apache-2.0 */
/* Where the nodes of a job meet, as its ranks sent it; see far.h. Floor 5, shard thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/zero/job/far.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* Documented in the header, as is the other. */
int far_place(struct zero_job *job, const struct zero_op *op, struct zi_text *text)
{
	struct zi_coll_open *place;

	if (!op->rendezvous_host || !op->rendezvous_host[0])
		return err_origin(zi_text_error(
			text, -EINVAL,
			"job '%s' has %u of its %u ranks on this node: MASTER_ADDR says where the "
			"node of rank 0 is found, and is not set",
			job->name, job->group.local_size, job->group.world_size));
	if (!op->rendezvous_port || op->rendezvous_port > UINT16_MAX)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"job '%s': port %u of the nodes' meeting (ZINF_PORT, else MASTER_PORT + "
			"1): 1 to 65535 are ports",
			job->name, op->rendezvous_port));
	place = calloc(1, sizeof(*place));
	if (!place)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a name"));
	(void)snprintf(place->rendezvous_host, sizeof(place->rendezvous_host), "%s",
	               op->rendezvous_host); /* Fits: the fields are alike. */
	(void)snprintf(place->interface, sizeof(place->interface), "%s", op->interface); /* So. */
	(void)snprintf(place->token, sizeof(place->token), "%s", op->token);             /* So. */
	place->rendezvous_port = op->rendezvous_port;
	far_forget_place(job);
	job->collectives.place = place;
	return 0;
}

void far_forget_place(struct zero_job *job)
{
	struct zi_coll_open *place = job->collectives.place;

	if (place)
		explicit_bzero(place->token, sizeof(place->token));
	free(place);
	job->collectives.place = NULL;
}
