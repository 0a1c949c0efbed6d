/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open MPI as a peer of suite `coll`: one rank, started by mpirun, that does what
 * bench/coll_order.h says. Compiled by mpicc where it is there.
 *
 * usage: coll-mpi BUFFER_BYTES
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/coll_order.h"

struct buffers {
	char *source, *target; /* of BUFFER_BYTES each */
};

static int call(const struct coll_order *order, const struct buffers *buffers, int world)
{
	void *source = order->variant == COLL_IN_PLACE ? MPI_IN_PLACE : buffers->source;
	int count = (int)(order->bytes / sizeof(float));

	switch (order->operation) {
	case COLL_BARRIER:
		return MPI_Barrier(MPI_COMM_WORLD);
	case COLL_ALL_REDUCE:
		return MPI_Allreduce(source, buffers->target, count, MPI_FLOAT, MPI_SUM,
		                     MPI_COMM_WORLD);
	case COLL_REDUCE_SCATTER:
		return MPI_Reduce_scatter_block(source, buffers->target, count / world, MPI_FLOAT,
		                                MPI_SUM, MPI_COMM_WORLD);
	case COLL_ALL_GATHER:
		return MPI_Allgather(source, count / world, MPI_FLOAT, buffers->target,
		                     count / world, MPI_FLOAT, MPI_COMM_WORLD);
	case COLL_BROADCAST:
		return MPI_Bcast(buffers->target, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
	default:
		return MPI_Alltoall(buffers->source, count / world, MPI_FLOAT, buffers->target,
		                    count / world, MPI_FLOAT, MPI_COMM_WORLD);
	}
}

static void obey(int fd, const struct coll_order *order, const struct buffers *buffers, int world)
{
	uint64_t started_ns;

	if (order->variant == COLL_IN_PLACE && order->operation == COLL_ALL_TO_ALL) {
		coll_rank_refuse(fd, "MPI_Alltoall in place goes through a copy");
		return;
	}
	(void)MPI_Barrier(MPI_COMM_WORLD);
	started_ns = coll_now_ns();
	for (uint32_t i = 0; i < order->iterations; i++)
		(void)call(order, buffers, world); /* errors end the program */
	coll_rank_answer(fd, started_ns, coll_now_ns());
}

int main(int argc, char **argv)
{
	uint64_t bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	char words[COLL_PACKET_BYTES] = "ready ";
	struct buffers buffers;
	struct coll_order order;
	int rank, world, length = 0, fd;

	(void)MPI_Init(&argc, &argv);
	(void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	(void)MPI_Comm_size(MPI_COMM_WORLD, &world);
	buffers.source = coll_rank_memory(bytes);
	buffers.target = coll_rank_memory(bytes);
	if (buffers.source && buffers.target) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];

		(void)MPI_Get_library_version(version, &length);
		version[strcspn(version, ",")] = '\0';
		(void)snprintf(words, sizeof words, "ready %.100s", version);
	} else {
		(void)snprintf(words, sizeof words, "skip no memory for the buffers");
	}
	fd = coll_rank_connect((unsigned)rank, words);
	if (fd < 0) {
		perror("coll-mpi: COLL_SOCKET");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	while (coll_rank_next(fd, &order))
		obey(fd, &order, &buffers, world);
	(void)MPI_Finalize();
	return 0;
}
