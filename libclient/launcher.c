/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank of how many this process is, and which start of its job, by what launchers leave in
 * the environment: torchrun (and accelerate, zctl launch), Open MPI's mpirun, srun. Each says it in
 * a pair of variables, and one pair decides: halves of two pairs would make a rank that nobody
 * started. The order goes from within to without, as launchers start launchers: torchrun under srun
 * leaves both pairs, and srun's then counts nodes. Floor 2.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"
#include "libclient/client.h"

/* A launcher's words for the same two things. */
struct launcher {
	const char *program;
	const char *rank_name, *world_name;
	const char *mark_name;  /* unless it is set, the pair is not about this process; or NULL */
	const char *local_name; /* how many of them are on this node */
};

/* What is found there. */
struct place {
	const struct launcher *launcher; /* NULL: none */
	uint32_t rank, world_size;
};

/* A batch script that Slurm starts has rank and size of the whole allocation about it, though it is
 * one process: only what srun starts has a step. */
static const struct launcher launchers[] = {
	{ "torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_WORLD_SIZE" },
	{ "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL,
	  "OMPI_COMM_WORLD_LOCAL_SIZE" },
	{ "srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", NULL },
};
#define BY_HAND 0u /* of launchers: the pair that people and scripts set, too */

/* torchrun's --rdzv-id where none was given: every run has it, so it names none. */
#define TORCHRUN_NO_NAME "none"

/* An environment variable that is set and not empty; launchers export empty ones. */
const char *zi_client_environment(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

/* See client.h. */
int zi_client_parse_count(struct zinf *zinf, const char *name, const char *text,
                          uint32_t *ret_count)
{
	char *end;
	unsigned long count;

	errno = 0;
	count = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || count > INT32_MAX)
		return zi_client_error(zinf, -EINVAL, "$%s is '%.64s': a whole number is expected",
		                       name, text);
	*ret_count = (uint32_t)count;
	return 0;
}

/* The half that is there, when only one is needed: the other was told by the caller. */
static int read_pair(struct zinf *zinf, const struct launcher *launcher, bool needs_rank,
                     bool needs_world, struct place *ret_place)
{
	const char *rank = zi_client_environment(launcher->rank_name);
	const char *world = zi_client_environment(launcher->world_name);
	struct place place = { .launcher = launcher };
	int r = 0;

	if ((needs_rank && !rank) || (needs_world && !world))
		return zi_client_error(zinf, -EINVAL,
		                       "$%s is set, but $%s is not: set both, "
		                       "or none",
		                       rank ? launcher->rank_name : launcher->world_name,
		                       rank ? launcher->world_name : launcher->rank_name);
	if (needs_rank)
		r = zi_client_parse_count(zinf, launcher->rank_name, rank, &place.rank);
	if (!r && needs_world)
		r = zi_client_parse_count(zinf, launcher->world_name, world, &place.world_size);
	if (r)
		return err_trace(r);
	if (needs_rank && needs_world && place.rank >= place.world_size)
		return zi_client_error(zinf, -EINVAL,
		                       "$%s is %" PRIu32 " and $%s is %" PRIu32 ": the "
		                       "rank must be below the world size",
		                       launcher->rank_name, place.rank, launcher->world_name,
		                       place.world_size);
	*ret_place = place;
	return 0;
}

static bool is_present(const struct launcher *launcher)
{
	if (launcher->mark_name && !zi_client_environment(launcher->mark_name))
		return false;
	return zi_client_environment(launcher->rank_name) ||
	       zi_client_environment(launcher->world_name);
}

/*
 * RANK and WORLD_SIZE that a person exported for all processes that mpirun or srun then started:
 * every one would be the same rank. A launcher that sets them for each process sets LOCAL_RANK with
 * them, and is right whatever started it; a world of one says nothing (an interactive srun).
 */
static int check_by_hand(struct zinf *zinf, const struct place *place)
{
	if (place->launcher != &launchers[BY_HAND] || zi_client_environment("LOCAL_RANK"))
		return 0;
	for (size_t i = BY_HAND + 1; i < ZI_COUNT_OF(launchers); i++) {
		struct place other;
		int r;

		if (!is_present(&launchers[i]))
			continue;
		r = read_pair(zinf, &launchers[i], true, true, &other);
		if (r)
			return err_trace(r);
		if (other.world_size > 1 &&
		    (other.rank != place->rank || other.world_size != place->world_size))
			return zi_client_error(zinf, -EINVAL,
			                       "$RANK and $WORLD_SIZE say %" PRIu32 " of %" PRIu32
			                       ", %s's $%s and $%s %" PRIu32 " of %" PRIu32
			                       ": unset those that are wrong",
			                       place->rank, place->world_size,
			                       other.launcher->program, other.launcher->rank_name,
			                       other.launcher->world_name, other.rank,
			                       other.world_size);
	}
	return 0;
}

/* Fills in what of rank and world is -1. */
static int find_place(struct zinf *zinf, bool needs_rank, bool needs_world, struct place *ret_place)
{
	struct place place = { .rank = 0, .world_size = 1 };
	int r = 0;

	for (size_t i = 0; i < ZI_COUNT_OF(launchers) && !place.launcher && !r; i++)
		if (is_present(&launchers[i]))
			r = read_pair(zinf, &launchers[i], needs_rank, needs_world, &place);
	if (!r && needs_rank && needs_world)
		r = check_by_hand(zinf, &place);
	if (r)
		return err_trace(r);
	*ret_place = place;
	return 0;
}

/* SLURM_STEP_TASKS_PER_NODE "2(x3),1": tasks on the nodes of the step, one after the other. Return:
 * those on node @node; 0: it does not say. */
static uint32_t slurm_tasks_on(const char *text, unsigned long node)
{
	while (*text) {
		char *end;
		unsigned long tasks = strtoul(text, &end, 10), nodes = 1;

		if (end == text || !tasks || tasks > INT32_MAX)
			return 0;
		if (*end == '(' && end[1] == 'x')
			nodes = strtoul(end + 2, &end, 10);
		if (node < nodes)
			return (uint32_t)tasks;
		node -= nodes;
		end += *end == ')';
		text = end + (*end == ',');
		if (text == end && *end)
			return 0;
	}
	return 0;
}

/* How many ranks are on this node; all of them where the launcher does not say. */
static int find_local(struct zinf *zinf, const struct launcher *said, uint32_t *ret_local)
{
	const struct launcher *launcher = said ? said : &launchers[BY_HAND];
	const char *name = launcher->local_name;
	const char *value = zi_client_environment(name ? name : "SLURM_STEP_TASKS_PER_NODE");
	const char *node = zi_client_environment("SLURM_NODEID");
	uint32_t local = zinf->attach.world_size;
	int r = 0;

	if (value && name)
		r = zi_client_parse_count(zinf, name, value, &local);
	else if (value && node)
		local = slurm_tasks_on(value, strtoul(node, NULL, 10));
	if (r)
		return err_trace(r);
	/* Who says rank and world itself may mean fewer than the launcher started. */
	if (local > zinf->attach.world_size && !said)
		local = zinf->attach.world_size;
	if (local > zinf->attach.world_size)
		return zi_client_error(
			zinf, -EINVAL,
			"%s says that %" PRIu32 " ranks are on this node, of %" PRIu32 " in all",
			name ? name : "SLURM_STEP_TASKS_PER_NODE", local, zinf->attach.world_size);
	*ret_local = local;
	return 0;
}

static int parse_port(struct zinf *zinf, const char *name, uint32_t add, uint32_t *ret_port)
{
	uint32_t port = 0;
	int r = zi_client_parse_count(zinf, name, zi_client_environment(name), &port);

	if (r)
		return err_trace(r);
	if (!port || port + add > UINT16_MAX)
		return zi_client_error(zinf, -EINVAL,
		                       "$%s is %" PRIu32 ": 1 to %u are "
		                       "allowed",
		                       name, port, UINT16_MAX - add);
	*ret_port = port + add;
	return 0;
}

/* Under torchrun MASTER_PORT is its own. */
int zi_client_rendezvous(struct zinf *zinf, struct zi_rendezvous *ret_rendezvous)
{
	const char *host = zi_client_environment("MASTER_ADDR");
	const char *interface = zi_client_environment("ZINF_NET_INTERFACE");
	const char *token = zi_client_environment("ZINF_TOKEN");
	bool has_own = zi_client_environment("ZINF_PORT");

	if (!host || (!has_own && !zi_client_environment("MASTER_PORT")))
		return zi_client_error(
			zinf, -EINVAL,
			"%" PRIu32 " of %" PRIu32 " ranks are on this node, so the job "
			"spans nodes, but $%s is not set: $MASTER_ADDR and $MASTER_PORT (or "
			"$ZINF_PORT) name the node of rank 0",
			zinf->attach.local_world_size, zinf->attach.world_size,
			host ? "MASTER_PORT" : "MASTER_ADDR");
	if (zi_copy_name(ret_rendezvous->host, sizeof(ret_rendezvous->host), host) ||
	    zi_copy_name(ret_rendezvous->interface, sizeof(ret_rendezvous->interface),
	                 interface ? interface : ""))
		return zi_client_error(zinf, -EINVAL,
		                       "$MASTER_ADDR '%.64s' or $ZINF_NET_INTERFACE '%.32s' is too "
		                       "long",
		                       host, interface ? interface : "");
	if (zi_copy_name(ret_rendezvous->token, sizeof(ret_rendezvous->token), token ? token : ""))
		return zi_client_error(zinf, -EINVAL, "$ZINF_TOKEN has %zu characters: at most %u",
		                       strlen(token), ZI_TOKEN_BYTES - 1);
	return err_trace(parse_port(zinf, has_own ? "ZINF_PORT" : "MASTER_PORT", !has_own,
	                            &ret_rendezvous->port));
}

/*
 * Rank and size of the world: as the caller says, what is -1 by the launchers' variables, else rank
 * 0 of 1.
 * @zinf: gets ->attach.rank, ->attach.world_size, or ->text on failure. Return: 0; -EINVAL.
 */
int zi_client_resolve_rank(struct zinf *zinf, int32_t rank, int32_t world_size)
{
	struct place place = { .rank = 0, .world_size = 1 };
	uint32_t local = 0;
	int r;

	if (rank < -1)
		return zi_client_error(zinf, -EINVAL,
		                       "RANK of %" PRId32 ": -1 (take $RANK) or more", rank);
	if (world_size < -1)
		return zi_client_error(zinf, -EINVAL,
		                       "WORLD_SIZE of %" PRId32 ": -1 (take $WORLD_SIZE) or more",
		                       world_size);
	if (rank < 0 || world_size < 0) {
		r = find_place(zinf, rank < 0, world_size < 0, &place);
		if (r)
			return err_trace(r);
	}
	zinf->attach.rank = rank < 0 ? place.rank : (uint32_t)rank;
	zinf->attach.world_size = world_size < 0 ? place.world_size : (uint32_t)world_size;
	/* Who says both itself may say so too: then torchrun's variable alone counts. */
	r = find_local(zinf, place.launcher, &local);
	if (r)
		return err_trace(r);
	/* 0: all, as an older daemon knows it. */
	zinf->attach.local_world_size = local < zinf->attach.world_size ? local : 0;
	return 0;
}

/* "first.second": a launcher's job, and how often it was started again. @second_name may be NULL.
 */
static int put_launch(struct zinf *zinf, const char *first, const char *second_name)
{
	const char *second = second_name ? zi_client_environment(second_name) : "";
	size_t capacity = sizeof(zinf->attach.incarnation);
	int bytes = snprintf(zinf->attach.incarnation, capacity, "%s%s%s", first,
	                     second_name ? "." : "", second ? second : "0");

	if (bytes < 0 || (size_t)bytes >= capacity)
		return zi_client_error(zinf, -EINVAL,
		                       "the launcher's name '%.64s' of this start is too long: set "
		                       "ZINF_INCARNATION (at most %zu bytes)",
		                       first, capacity - 1);
	return 0;
}

/* The launcher's name of this start of the job, by the order that zinf.h tells, into
 * ->attach.incarnation. @named: the caller's, or NULL. Return: 0; -EINVAL. */
int zi_client_resolve_incarnation(struct zinf *zinf, const char *named)
{
	const char *value = named ? named : zi_client_environment("ZINF_INCARNATION");

	if (value) {
		if (zi_copy_name(zinf->attach.incarnation, sizeof(zinf->attach.incarnation), value))
			return zi_client_error(zinf, -EINVAL,
			                       "incarnation '%.64s' is too long: at most %zu bytes",
			                       value, sizeof(zinf->attach.incarnation) - 1);
		return 0;
	}
	value = zi_client_environment("TORCHELASTIC_RUN_ID");
	if (value && strcmp(value, TORCHRUN_NO_NAME) == 0)
		return 0;
	if (value)
		return err_trace(put_launch(zinf, value, "TORCHELASTIC_RESTART_COUNT"));
	value = zi_client_environment("SLURM_JOB_ID");
	if (value)
		return err_trace(put_launch(zinf, value, "SLURM_RESTART_COUNT"));
	value = zi_client_environment("OMPI_MCA_ess_base_jobid");
	if (value)
		return err_trace(put_launch(zinf, value, NULL));
	return 0;
}
