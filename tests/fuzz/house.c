/* SPDX-License-Identifier: Apache-2.0 */
/* See house.h. */
#include "tests/fuzz/house.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "daemon/catalog/catalog_private.h"
#include "daemon/tier/flusher.h"
#include "daemon/zero/job/delete.h"
#include "daemon/zero/step/step.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/house_gpu.h"

#define MIB           (1ull << 20)
#define HOUSE_WAIT_NS (20 * ZI_NS_PER_S)
/* Enough for all clients and their former connections. Each slot costs time in each run. */
#define HOUSE_CONNECTIONS 8u
/* A message and its answer pass through fewer turns. */
#define HOUSE_MESSAGE_TURNS 8u
/* Turns in which a commit is under way: clients act meanwhile. */
#define HOUSE_COMMIT_TURNS 3u
#define HOUSE_MOVES        4u /* of the disk in one turn */
/* The clock is read so often while the house waits. */
#define HOUSE_CLOCK_TURNS 16u

struct house house;

/* Work that turns have found so far. A turn without work is followed by turns without work. */
static struct {
	uint64_t post_count, event_count;
} found;

/* In place of zi_loop_post() and epoll_wait() (fuzz.mk): the same, counted. */
void __real_zi_loop_post(struct zi_loop *loop, struct zi_post *post, zi_post_fn run);
void __wrap_zi_loop_post(struct zi_loop *loop, struct zi_post *post, zi_post_fn run);
void __wrap_zi_loop_post(struct zi_loop *loop, struct zi_post *post, zi_post_fn run)
{
	found.post_count++;
	__real_zi_loop_post(loop, post, run);
}

int __real_epoll_wait(int fd, struct epoll_event *events, int events_max, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int events_max, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int events_max, int timeout_ms)
{
	int r = __real_epoll_wait(fd, events, events_max, timeout_ms);

	if (r > 0)
		found.event_count += (uint64_t)r;
	return r;
}

/* In place of zi_message_send() (fuzz.mk): the same, counted. */
int __wrap_zi_message_send(int fd, const struct zi_message_header *message, const int *fds,
                           uint32_t fd_count);
int __wrap_zi_message_send(int fd, const struct zi_message_header *message, const int *fds,
                           uint32_t fd_count)
{
	house.sent_count++;
	return __real_zi_message_send(fd, message, fds, fd_count);
}

/* In place of fallocate() (fuzz.mk): regions allocate pages only when they are touched. Clearing
 * all pages costs more than a run, and a run touches few of them. */
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	return mode ? __real_fallocate(fd, mode, offset, bytes) : 0;
}

/* Requests in order of submission; the first one is under way for so many turns more. */
static struct {
	struct catalog_request *first, *last;
	struct zi_post turn;
	uint32_t turns_left;
} commits;

static void commit_turn(struct zi_post *post)
{
	struct catalog_request *request = commits.first;

	if (--commits.turns_left) {
		zi_loop_post(request->loop, post, commit_turn);
		return;
	}
	commits.first = request->next;
	request->next = NULL;
	request->started_ns = zi_clock_now_ns();
	request->result = catalog_commit(house.catalog, request);
	request->is_uncertain = house.catalog->broken != 0;
	request->finished_ns = zi_clock_now_ns();
	if (request->result && !request->text.chars[0])
		zi_text_set(&request->text, "%s", strerror(-request->result));
	if (commits.first) {
		commits.turns_left = HOUSE_COMMIT_TURNS;
		zi_loop_post(house.loop, post, commit_turn);
	}
	request->done(request); /* May free it, or submit again. */
}

/* In place of catalog_submit() (fuzz.mk): the same, without the thread. */
void __wrap_catalog_submit(struct catalog *catalog, struct catalog_request *request);
void __wrap_catalog_submit(struct catalog *catalog, struct catalog_request *request)
{
	fuzz_check(catalog == house.catalog, "a request for another catalog");
	fuzz_check(request->job && request->done && request->loop == house.loop,
	           "a request without its parts");
	request->next = NULL;
	request->result = 0;
	request->is_uncertain = false;
	request->text.chars[0] = '\0';
	if (commits.first) {
		commits.last->next = request;
	} else {
		commits.first = request;
		commits.turns_left = HOUSE_COMMIT_TURNS;
		zi_loop_post(house.loop, &commits.turn, commit_turn);
	}
	commits.last = request;
}

/* Requests for the disk in order of submission; each turn moves a few. */
static struct {
	struct zi_list list;
	struct zi_post turn;
	bool is_posted; /* `turn`, or it runs */
} moves = { .list = { &moves.list, &moves.list } };

/* In place of the engine's threads, which cost more than what they move. */
static void move_now(struct nvme_io *io)
{
	ssize_t r = io->direction == NVME_WRITE
	                    ? pwrite(io->store->fd, io->buffer, io->bytes, (off_t)io->offset_bytes)
	                    : pread(io->store->fd, io->buffer, io->bytes, (off_t)io->offset_bytes);

	io->result = io->is_given_up ? -ECANCELED : r == (ssize_t)io->bytes ? 0 : -EIO;
	io->is_active = false;
	io->finished_ns = zi_clock_now_ns();
	io->done(io); /* May free it, or submit it again. */
}

static void move_turn(struct zi_post *post)
{
	for (uint32_t i = 0; i < HOUSE_MOVES && !zi_list_is_empty(&moves.list); i++)
		move_now(container_of(zi_list_pop_front(&moves.list), struct nvme_io, link));
	moves.is_posted = !zi_list_is_empty(&moves.list);
	if (moves.is_posted)
		zi_loop_post(house.loop, post, move_turn);
}

/* In place of nvme_engine_submit() and nvme_engine_cancel() (fuzz.mk). */
int __wrap_nvme_engine_submit(struct nvme_engine *engine, struct nvme_io *io);
int __wrap_nvme_engine_submit(struct nvme_engine *engine, struct nvme_io *io)
{
	fuzz_check(engine == house.engine && io->done && io->buffer, "a request without its parts");
	fuzz_check(io->bytes && !(io->bytes % ZI_STORE_ALIGN_BYTES) &&
	                   !(io->offset_bytes % ZI_STORE_ALIGN_BYTES) &&
	                   !((uintptr_t)io->buffer % ZI_STORE_ALIGN_BYTES),
	           "a request that is not aligned");
	fuzz_check(io->offset_bytes >= NVME_SUPERBLOCK_BYTES && io->bytes <= io->store->bytes &&
	                   io->offset_bytes <= io->store->bytes - io->bytes,
	           "a request outside the store");
	io->result = 0;
	io->is_late = io->is_given_up = false;
	io->is_active = true;
	io->submitted_ns = zi_clock_now_ns();
	zi_list_init(&io->link);
	zi_list_push_back(&moves.list, &io->link);
	if (!moves.is_posted)
		zi_loop_post(house.loop, &moves.turn, move_turn);
	moves.is_posted = true;
	return 0;
}

void __wrap_nvme_engine_cancel(struct nvme_engine *engine, struct nvme_io *io);
void __wrap_nvme_engine_cancel(struct nvme_engine *engine, struct nvme_io *io)
{
	(void)engine;
	io->is_given_up = io->is_active;
}

/* In place of the thread that flushes a path (fuzz.mk): the request is done in the next turn. */
struct tier_flusher {
	struct nvme_store *store;
};

int __wrap_tier_flusher_new(const char *name, struct nvme_store *store,
                            struct tier_flusher **ret_flusher);
int __wrap_tier_flusher_new(const char *name, struct nvme_store *store,
                            struct tier_flusher **ret_flusher)
{
	struct tier_flusher *flusher = calloc(1, sizeof(*flusher));

	(void)name; /* Of the thread. */
	fuzz_check(flusher != NULL, "memory");
	flusher->store = store;
	*ret_flusher = flusher;
	return 0;
}

struct tier_flusher *__wrap_tier_flusher_free(struct tier_flusher *flusher);
struct tier_flusher *__wrap_tier_flusher_free(struct tier_flusher *flusher)
{
	free(flusher);
	return NULL;
}

void __wrap_tier_flusher_ask(struct tier_flusher *flusher, struct tier_flusher_wish *wish);
void __wrap_tier_flusher_ask(struct tier_flusher *flusher, struct tier_flusher_wish *wish)
{
	fuzz_check(wish->done && wish->loop == house.loop, "a request without its parts");
	wish->result = nvme_store_flush(flusher->store);
	zi_loop_post(wish->loop, &wish->post, wish->done);
}

static void reap(struct zi_source *source, uint32_t events)
{
	(void)source;
	(void)events;
	(void)nvme_engine_reap(house.engine); /* A count. */
}

/* The engine's threads end before the folder goes. */
static void demolish(void)
{
	house.catalog = catalog_close(house.catalog);
	zi_loop_remove(&house.engine_source);
	house.engine = nvme_engine_free(house.engine);
	house.store = nvme_store_close(house.store);
	house.loop = zi_loop_free(house.loop);
}

void house_build(void)
{
	static char store_path[320];
	struct zi_text text = { "" };

	zi_log_set_level(ZI_LOG_ERROR); /* What a client may cause is warned of. */
	(void)signal(SIGPIPE, SIG_IGN); /* As the daemon's main thread does. */
	(void)snprintf(store_path, sizeof(store_path), "%s/store", fuzz_directory()); /* Fits. */
	fuzz_check(!zi_loop_new(&house.loop), "zi_loop_new");
	fuzz_check(!catalog_open(fuzz_directory(), &text, &house.catalog), text.chars);
	/* A write-ahead log writes each page twice. No daemon opens this catalog again. */
	fuzz_check(!catalog_sql_run(house.catalog, "PRAGMA journal_mode = MEMORY"), "journal_mode");
	fuzz_check(!nvme_store_open(&(struct nvme_store_options){ .name = "fuzz",
	                                                          .path = store_path,
	                                                          .bytes = 24 * MIB },
	                            &text, &house.store),
	           text.chars);
	fuzz_check(!catalog_adopt_store(house.catalog, "fuzz", house.store->uuid,
	                                house.store->is_created, &text),
	           text.chars);
	fuzz_check(
		!nvme_engine_new(&(struct nvme_engine_options){ .backend = "threads", .depth = 4 },
	                         &text, &house.engine),
		text.chars);
	fuzz_check(!nvme_engine_register_store(house.engine, house.store), "register_store");
	fuzz_check(!zi_loop_add(house.loop, &house.engine_source, nvme_engine_fd(house.engine),
	                        EPOLLIN, reap),
	           "zi_loop_add");
	fuzz_check(!atexit(demolish), "atexit");
}

static void make_zero(void)
{
	const struct zero_options options = {
		.loop = house.loop,
		.catalog = house.catalog,
		.engine = house.engine,
		.holders = house.holders,
		.cpu_tiers = &house.cpu,
		.cpu_tier_count = 1,
		.devices = &house.device,
		.nvme_tiers = &house.nvme,
		.nvme_tier_count = 1,
		.default_staging_bytes = 8 * MIB,
		.is_staging_kept = true,
		.uid_cpu_limit_bytes = UINT64_MAX,
		.uid_nvme_limit_bytes = UINT64_MAX,
		.uid_gpu_limit_bytes = UINT64_MAX,
		.jobs_max = 3,
		.jobs_per_uid_max = 2,
		.units_max = HOUSE_UNITS_MAX,
		.params_max = HOUSE_PARAMS_MAX,
	};

	fuzz_check(!zero_new(&options, &house.zero), "zero_new");
}

static void make_sessions(void)
{
	static const struct sess_limit_fact limits[] = { { "jobs", "limits.jobs", 3 } };

	house.limits = (struct sess_limits){
		.sessions_max = HOUSE_SESSIONS,
		.sessions_per_uid_max = HOUSE_SESSIONS,
		.connections_max = HOUSE_CONNECTIONS,
		.connections_per_uid_max = HOUSE_CONNECTIONS,
		.answers_per_uid_max = 64,
		.answer_bytes_per_uid_max = 16 << 20,
		.units_max = HOUSE_UNITS_MAX,
		.params_max = HOUSE_PARAMS_MAX,
		.ring_entries = HOUSE_RING_ENTRIES,
		.inflight_ops_max = 8 * HOUSE_SESSIONS,
		.handshake_ns = 60 * ZI_NS_PER_S,
	};
	house.facts = (struct sess_facts){
		.socket_path = "/run/fuzz.sock",
		.state_dir = "/var/fuzz",
		.isa = "ref",
		.cpu_tiers = &house.cpu,
		.cpu_tier_count = 1,
		.nvme_tiers = &house.nvme,
		.nvme_tier_count = 1,
		.limits = limits,
		.limit_count = 1,
	};
	fuzz_check(!sess_shard_new(&(struct sess_shard_options){ .loop = house.loop,
	                                                         .zero = house.zero,
	                                                         .ring_tier = &house.cpu,
	                                                         .holders = house.holders,
	                                                         .arenas = house.arenas,
	                                                         .worker = house.device,
	                                                         .limits = &house.limits,
	                                                         .cpu_count = 2,
	                                                         .pool_threads = 2 },
	                           &house.shard),
	           "sess_shard_new");
	fuzz_check(!sess_control_new(&(struct sess_control_options){ .loop = house.loop,
	                                                             .shard_loop = house.loop,
	                                                             .shard = house.shard,
	                                                             .limits = &house.limits,
	                                                             .facts = &house.facts },
	                             &house.control),
	           "sess_control_new");
}

void house_open(void)
{
	house.is_quiet = house.is_stopped = false;
	house.turn_count = 0;
	tier_init_cpu(&house.cpu, 0, HOUSE_CPU_BYTES, NULL, false);
	fuzz_check(!tier_init_nvme(&house.nvme, house.store->name, 0), "tier_init_nvme");
	fuzz_check(!tier_member_add_store(&house.nvme, house.store), "tier_member_add_store");
	fuzz_check(!dev_fake_new(1, &house.device), "dev_fake_new");
	fuzz_check(!tier_holders_new(&house.holders), "tier_holders_new");
	house.arenas = house_gpu_open(house.loop);
	make_zero();
	make_sessions();
}

void house_turn(void)
{
	house.turn_count++;
	zi_loop_stop(house.loop);
	fuzz_check(!zi_loop_run(house.loop), "zi_loop_run");
}

static bool is_still(void)
{
	zi_list_for_each(link, &house.zero->jobs) {
		const struct zero_job *job = container_of(link, struct zero_job, jobs_link);

		if (job->busy_count || job->step.phase == ZERO_STEP_UPDATING ||
		    job->step.phase == ZERO_STEP_COMMITTING)
			return false;
	}
	return zi_list_is_empty(&house.zero->ghosts);
}

static bool is_gone(void)
{
	return house.is_quiet && house.is_stopped;
}

/* One turn. Return: true: the turn found work, or posted work for the next turn. */
static bool turn_finds(void)
{
	uint64_t before = found.post_count + found.event_count + house.shard->request_count;

	house_turn();
	return found.post_count + found.event_count + house.shard->request_count != before;
}

void house_turns(uint32_t turn_count)
{
	for (uint32_t i = 0; i < turn_count && turn_finds(); i++)
		continue;
}

static void turn_until(bool (*is_enough)(void), const char *what)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(HOUSE_WAIT_NS);

	for (uint32_t turns = 0; !is_enough(); turns++) {
		house_turn();
		if (turns % HOUSE_CLOCK_TURNS == HOUSE_CLOCK_TURNS - 1)
			fuzz_check(zi_clock_now_ns() < deadline_ns, what);
	}
}

void house_settle(void)
{
	house_turns(HOUSE_MESSAGE_TURNS);
	if (is_still())
		return;
	turn_until(is_still, "a job's work never ends");
	house_turns(HOUSE_MESSAGE_TURNS);
}

static void quiesced(void *arg)
{
	*(bool *)arg = true;
	sess_shard_stop(house.shard, "zinfd is stopping");
}

static void stopped(void *arg)
{
	*(bool *)arg = true;
}

static void delete_jobs(void)
{
	zi_list_for_each_safe(link, &house.zero->jobs)
		job_delete(container_of(link, struct zero_job, jobs_link));
	turn_until(is_still, "a job is never deleted");
}

void house_close(void)
{
	zero_quiesce(house.zero, quiesced, &house.is_quiet);
	sess_control_stop(house.control, stopped, &house.is_stopped);
	turn_until(is_gone, "the sessions never end");
	delete_jobs();
	/* What connections of loads and exports held goes by way of the device. */
	for (int i = 0; i < 64 && house.cpu.used_bytes; i++)
		house_turn();
	house.control = sess_control_free(house.control);
	house.shard = sess_shard_free(house.shard);
	house.arenas = house_gpu_close(house.arenas);
	house.zero = zero_free(house.zero);
	house.holders = tier_holders_free(house.holders);
	house.device = dev_free(house.device);
	house_turn(); /* The device's last. */
	fuzz_check(!commits.first, "a commit is still under way");
	fuzz_check(!house.cpu.used_bytes, "memory is still charged");
	fuzz_check(!house.nvme.used_bytes, "space is still charged");
	fuzz_check(nvme_space_free_bytes(house.nvme.members[0].space) ==
	                   nvme_space_total_bytes(house.nvme.members[0].space),
	           "extents are still taken");
	tier_deinit(&house.cpu);
	tier_deinit(&house.nvme);
}
