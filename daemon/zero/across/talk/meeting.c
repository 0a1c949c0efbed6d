/* SPDX-License-Identifier: Apache-2.0 */
/* Where the nodes of a job meet, as its ranks sent it, and what came of it; see meeting.h. Floor 5,
 * shard thread. */
#include "daemon/zero/across/talk/meeting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "daemon/worker/net.h"
#include "daemon/zero/job/job.h"
#include "daemon/zero/job/op.h"

/* What a rank did not say is nothing. */
static const char *word(const char *said)
{
	return said ? said : "";
}

/* Documented in the header, as are all others. */
int meeting_compare(const struct zero_rank *rank, const struct zero_op *op,
                    const struct zero_rank *other, const struct zero_op *theirs,
                    struct zi_text *text)
{
	if (strcmp(word(theirs->rendezvous_host), word(op->rendezvous_host)) ||
	    theirs->rendezvous_port != op->rendezvous_port)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"MASTER_ADDR or ZINF_PORT differ: rank %u (pid %d) has %.64s:%u, rank "
			"%u (pid %d) has %.64s:%u: set the same in all ranks",
			rank->number, rank->pid, word(op->rendezvous_host), op->rendezvous_port,
			other->number, other->pid, word(theirs->rendezvous_host),
			theirs->rendezvous_port));
	if (strcmp(word(theirs->interface), word(op->interface)))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"ZINF_NET_INTERFACE differs: rank %u (pid %d) has '%.15s', rank %u "
			"(pid %d) has '%.15s': set the same in all ranks of this node, or none",
			rank->number, rank->pid, word(op->interface), other->number, other->pid,
			word(theirs->interface)));
	if (strcmp(word(theirs->token), word(op->token)))
		return err_origin(zi_text_error(
			text, -EINVAL,
			"ZINF_TOKEN of rank %u (pid %d) differs from that of rank %u (pid %d): "
			"set the same in all ranks, or none",
			rank->number, rank->pid, other->number, other->pid));
	return 0;
}

int meeting_place(struct zero_job *job, const struct zero_op *op, struct zi_text *text)
{
	struct zi_coll_open *place;

	if (!op->rendezvous_host || !op->rendezvous_host[0])
		return err_origin(zi_text_error(
			text, -EINVAL,
			"job '%s' has %u of its %u ranks on this node, and MASTER_ADDR is not "
			"set: set it to the address of the node of rank 0",
			job->name, job->group.local_size, job->group.world_size));
	if (!op->rendezvous_port || op->rendezvous_port > UINT16_MAX)
		return err_origin(zi_text_error(
			text, -EINVAL,
			"job '%s': rendezvous port %u (ZINF_PORT, else MASTER_PORT + 1): 1 to "
			"65535 are allowed",
			job->name, op->rendezvous_port));
	place = calloc(1, sizeof(*place));
	if (!place)
		return err_origin(zi_text_error(text, -ENOMEM, "no memory for a name"));
	(void)snprintf(place->rendezvous_host, sizeof(place->rendezvous_host), "%s",
	               op->rendezvous_host); /* Fits: the fields are alike. */
	(void)snprintf(place->interface, sizeof(place->interface), "%s", op->interface); /* So. */
	(void)snprintf(place->token, sizeof(place->token), "%s", op->token);             /* So. */
	place->rendezvous_port = op->rendezvous_port;
	meeting_forget_place(job);
	job->meeting.place = place;
	return 0;
}

void meeting_forget_place(struct zero_job *job)
{
	struct zi_coll_open *place = job->meeting.place;

	if (place)
		explicit_bzero(place->token, sizeof(place->token));
	free(place);
	job->meeting.place = NULL;
}

void meeting_way(const struct zero_job *job, struct net_way *ret_way)
{
	const struct zi_coll_open *place = job->meeting.place;

	*ret_way = (struct net_way){ .place.port = (uint16_t)place->rendezvous_port,
		                     .run = job->meeting.run };
	/* All were checked to end within their fields, which are as long. */
	memcpy(ret_way->place.host, place->rendezvous_host, sizeof(ret_way->place.host));
	memcpy(ret_way->interface, place->interface, sizeof(ret_way->interface));
	memcpy(ret_way->job, job->name, sizeof(ret_way->job));
	memcpy(ret_way->incarnation, job->group.name, sizeof(ret_way->incarnation));
	memcpy(ret_way->token, place->token, sizeof(ret_way->token));
}

int meeting_take(struct zero_job *job, const struct net_done *reply, struct zi_text *text)
{
	struct zero_meeting *meeting = &job->meeting;

	if (!reply->node_count || reply->node_count > ZI_WORLD_MAX ||
	    reply->node >= reply->node_count)
		return err_origin(zi_text_error(text, -EPROTO, "zinf-net knows no nodes"));
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (reply->nodes[i] >= reply->node_count ||
		    (reply->nodes[i] == reply->node) != (job->group.ranks[i] != NULL))
			return err_origin(zi_text_error(text, -EPROTO,
			                                "zinf-net has rank %u on node %u of %u", i,
			                                reply->nodes[i], reply->node_count));
	meeting->node_count = reply->node_count;
	meeting->node = reply->node;
	meeting->run = reply->run;
	memcpy(meeting->nodes, reply->nodes, sizeof(meeting->nodes));
	return 0;
}

void meeting_failed(struct zero_job *job, int error, const struct zi_text *text)
{
	job->meeting.failed_count++;
	job->meeting.failed_error = error;
	job->meeting.failed_text = *text;
}

void meeting_over(struct zero_job *job)
{
	struct zero_meeting *meeting = &job->meeting;

	meeting_forget_place(job);
	meeting->node_count = meeting->node = meeting->run = meeting->talk_count = 0;
	memset(meeting->nodes, 0, sizeof(meeting->nodes));
}

uint64_t meeting_here_mask(const struct zero_job *job)
{
	const struct zero_meeting *meeting = &job->meeting;
	uint64_t mask = 0;

	/* Once nodes have met it is settled, whoever goes. */
	for (uint32_t i = 0; i < job->group.world_size; i++)
		if (meeting->node_count ? meeting->nodes[i] == meeting->node
		                        : job->group.ranks[i] != NULL)
			mask |= 1ull << i;
	return mask;
}

uint64_t meeting_node_mask(const struct zero_job *job, uint64_t mask)
{
	uint64_t nodes = 0;

	if (!job_spans_nodes(job))
		return 1;
	for (; mask; mask &= mask - 1)
		nodes |= 1ull << job->meeting.nodes[__builtin_ctzll(mask)];
	return nodes;
}
