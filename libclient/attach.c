/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: found, greeted, attached, and left again. Floor 2.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/wire/region.h"
#include "common/wire/starting.h"
#include "libclient/client.h"
#include "libclient/gpu/gpu.h"

#define ATTACH_FEATURES                                                                            \
	(ZI_FEATURE_PART | ZI_FEATURE_NVME_STATE | ZI_FEATURE_NVME_PARAM | ZI_FEATURE_EARLY |      \
	 ZI_FEATURE_SNAPSHOTS | ZI_FEATURE_INTERVAL | ZI_FEATURE_IO_WEIGHT | ZI_FEATURE_TENSORS |  \
	 ZI_FEATURE_PERIODIC | ZI_FEATURE_COLLECTIVES | ZI_FEATURE_NODES | ZI_FEATURE_NUMA |       \
	 ZI_FEATURE_COLL_ABORT | ZI_FEATURE_COLL_VERSION | ZI_FEATURE_TRAINING | ZI_FEATURE_SETS | \
	 ZI_FEATURE_STATE_NODES | ZI_FEATURE_FROZEN | ZI_FEATURE_FORWARD | ZI_FEATURE_LOST |       \
	 ZI_FEATURE_STEPS | ZI_FEATURE_STATE | ZI_FEATURE_EXIST | ZI_FEATURE_GPU)
/* Looking for a daemon: often at first (it may be starting beside us), then now and then. Not
 * inotify: the folder of the socket may not be there yet either, and connecting is the only proof
 * anyway. */
#define ATTACH_PAUSE_MIN_NS ZI_NS_PER_MS
#define ATTACH_PAUSE_MAX_NS (50 * ZI_NS_PER_MS)
/* Leaving waits this long for its answer: the lease ends with the socket in any case. */
#define DETACH_NS (5 * ZI_NS_PER_S)

/* ATTACHED's descriptors, in order. */
enum { ATTACH_FD_UPLINK, ATTACH_FD_DOWNLINK, ATTACH_FD_DOORBELL, ATTACH_FD_WAKEUP, ATTACH_FDS };

static void close_fds(int *fds, uint32_t fd_count)
{
	for (uint32_t i = 0; i < fd_count; i++)
		fds[i] = zi_close(fds[i]);
}

/* Unmaps, closes, frees; NULL and half-built ones too. Return: NULL. */
static struct zinf *client_free(struct zinf *zinf)
{
	if (!zinf)
		return NULL;
	zi_client_gpu_free(zinf);
	zi_client_unmap_model(zinf);
	zi_client_unmap_tensors(zinf);
	zi_client_unmap_state(zinf);
	zi_client_coll_close(zinf);
	(void)zi_region_unmap(zinf->uplink,
	                      zinf->uplink_bytes); /* Asserts inside; so does the next. */
	(void)zi_region_unmap((void *)zinf->downlink, zinf->downlink_bytes);
	zi_client_ticket_fd_deinit(zinf);
	zinf->socket_fd = zi_close(zinf->socket_fd);
	zinf->doorbell_fd = zi_close(zinf->doorbell_fd);
	zinf->wakeup_fd = zi_close(zinf->wakeup_fd);
	zinf->end_fd = zi_close(zinf->end_fd);
	zinf->event_fd = zi_close(zinf->event_fd);
	zi_client_pending_deinit(zinf);
	zi_client_interrupt_deinit(zinf);
	free(zinf->message);
	zi_client_ops_free(zinf);
	free(zinf->sets);
	free(zinf->units);
	free(zinf->params);
	free(zinf);
	return NULL;
}
ZI_DEFINE_CLEANUP(struct zinf *, client_free)

static struct zinf *client_new(void)
{
	_cleanup_(client_freep) struct zinf *zinf = calloc(1, sizeof(*zinf));

	if (!zinf)
		return NULL;
	zinf->socket_fd = zinf->doorbell_fd = zinf->wakeup_fd = zinf->interrupt_fd = -1;
	zinf->ticket_fd = zinf->ticket_event_fd = -1;
	zinf->end_fd = zinf->event_fd = zinf->param_fd = zinf->grad_fd = -1;
	zinf->copy_fd = -1;
	zinf->committed_step = zinf->update_count = zinf->lost_step = -1;
	zinf->message = malloc(ZI_MESSAGE_BYTES_MAX);
	zinf->pending.message = malloc(ZI_MESSAGE_BYTES_MAX);
	return zinf->message && zinf->pending.message ? zi_steal(zinf) : NULL;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec pause = { .tv_nsec = (long)ns };

	assert(ns < ZI_NS_PER_S);
	(void)nanosleep(&pause, NULL); /* A signal only makes us look sooner. */
}

/* Connects, waiting for a daemon to appear where asked to. */
static int connect_daemon(struct zinf *zinf, bool is_waiting, uint64_t deadline_ns)
{
	uint64_t pause_ns = ATTACH_PAUSE_MIN_NS;

	for (;;) {
		int r = zi_control_connect(zinf->path, &zinf->socket_fd);

		if (!r)
			return err_trace(zi_fd_set_nonblock(zinf->socket_fd, true));
		if (r == -ENOENT || r == -ECONNREFUSED) {
			pid_t starting = is_waiting ? 0 : zi_starting_pid(zinf->path);

			if (starting)
				return zi_client_error(zinf, -ENOENT,
				                       "zinfd (pid %d) at %s is starting: it "
				                       "recovers its stores first; try again, or "
				                       "set wait_for_daemon",
				                       (int)starting, zinf->path);
			if (!is_waiting)
				return zi_client_error(zinf, -ENOENT,
				                       "no zinfd at %s: start it, or name its "
				                       "socket in $ZINF_SOCKET",
				                       zinf->path);
		} else if (r == -EACCES) {
			return zi_client_error(zinf, r,
			                       "uid %u may not use zinfd's socket %s: see its "
			                       "permissions (daemon.socket_mode) and those of "
			                       "its folder",
			                       geteuid(), zinf->path);
		} else if (r != -EAGAIN) { /* EAGAIN: it is there, and busy */
			return zi_client_error(zinf, r, "connecting to zinfd at %s: %s", zinf->path,
			                       strerror(-r));
		}
		if (zi_clock_now_ns() >= deadline_ns)
			return zi_client_error(zinf, -ETIMEDOUT, "no zinfd at %s within %u ms",
			                       zinf->path, zinf->attach.timeout_ms);
		sleep_ns(pause_ns);
		pause_ns = ZI_MIN(pause_ns * 2, ATTACH_PAUSE_MAX_NS);
	}
}

/* To a daemon that knows no tail of ATTACH it must say nothing. */
static int check_training(struct zinf *zinf, const char *program)
{
	const struct zi_job_training none = { 0 };
	struct zi_text whose;

	if (zinf->features & ZI_FEATURE_TRAINING)
		return 0;
	zi_text_set(&whose, "every job of %.60s at %s: use a newer zinfd", program, zinf->path);
	return zi_training_compare(&zinf->training, &none, &zinf->attach.config, whose.chars,
	                           &zinf->text)
	               ? err_origin(-EOPNOTSUPP)
	               : 0;
}

static int greet(struct zinf *zinf)
{
	const struct zi_message_header *message;
	const struct zi_hello *theirs;
	struct zi_hello ours = {
		.major = ZI_PROTOCOL_MAJOR,
		.minor = ZI_PROTOCOL_MINOR,
		.features = ATTACH_FEATURES,
		.coll_version = ZI_COLL_VERSION,
	};
	int r;

	(void)snprintf(ours.program, sizeof(ours.program), "libzinf %s",
	               zinf_version()); /* Fits. */
	r = zi_client_request(zinf, &ours.header, ZI_MESSAGE_HELLO, sizeof(ours), ZI_MESSAGE_HELLO,
	                      &message, NULL, 0);
	if (r)
		return err_trace(r);
	theirs = (const struct zi_hello *)message;
	if (theirs->major != ZI_PROTOCOL_MAJOR)
		return zi_client_error(zinf, -EPROTONOSUPPORT,
		                       "%s at %s speaks protocol %u.%u, libzinf %s speaks %u.%u: "
		                       "update the older one",
		                       theirs->program, zinf->path, theirs->major, theirs->minor,
		                       zinf_version(), ZI_PROTOCOL_MAJOR, ZI_PROTOCOL_MINOR);
	zinf->features = theirs->features & ours.features;
	zinf->coll_version = zi_hello_coll_version(theirs);
	if (zinf->attach.config.offload_optimizer == ZI_OFFLOAD_NVME &&
	    !(zinf->features & ZI_FEATURE_NVME_STATE))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "offload_optimizer nvme: %s at %s has no NVMe tier: "
		                       "configure one ([nvme NAME], or --size with --user), or "
		                       "use cpu",
		                       theirs->program, zinf->path);
	if (zinf->attach.config.offload_param == ZI_OFFLOAD_NVME &&
	    !(zinf->features & ZI_FEATURE_NVME_PARAM))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "offload_param nvme: %s at %s does not keep parameters on "
		                       "NVMe, use a newer zinfd",
		                       theirs->program, zinf->path);
	if (zinf->attach.config.commit_interval > 1 && !(zinf->features & ZI_FEATURE_INTERVAL))
		return zi_client_error(
			zinf, -EOPNOTSUPP, "commit_interval %u: %s at %s commits every step",
			zinf->attach.config.commit_interval, theirs->program, zinf->path);
	if (zinf->attach.local_world_size && !(zinf->features & ZI_FEATURE_NODES))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "%u of %u ranks are on this node: %s at %s knows no jobs "
		                       "that span nodes, use a newer zinfd",
		                       zinf->attach.local_world_size, zinf->attach.world_size,
		                       theirs->program, zinf->path);
	if (zinf->attach.config.io_weight && !(zinf->features & ZI_FEATURE_IO_WEIGHT))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "io_weight: %s at %s gives all jobs equal shares of a "
		                       "store; leave it 0, or use a newer zinfd",
		                       theirs->program, zinf->path);
	if (zinf->attach.config.snapshot_interval && !(zinf->features & ZI_FEATURE_PERIODIC))
		return zi_client_error(zinf, -EOPNOTSUPP,
		                       "snapshot_interval: %s at %s takes no snapshots by itself; "
		                       "call zinf_snapshot(), or use a newer zinfd",
		                       theirs->program, zinf->path);
	return err_trace(check_training(zinf, theirs->program));
}

/* Maps the two regions that ATTACHED told of. */
/* Of a daemon that may be older. */
static uint64_t uplink_bytes_min(const struct zinf *zinf, uint32_t entries)
{
	if (zinf->features & ZI_FEATURE_STEPS)
		return zi_uplink_bytes(entries);
	return zinf->features & ZI_FEATURE_TRAINING ? zi_uplink_betas_offset(entries)
	                                            : zi_uplink_groups_offset(entries);
}

static int map_rings(struct zinf *zinf, const struct zi_attached *attached, const int *fds)
{
	const struct zi_downlink_header *down;
	struct zi_uplink_header *up;
	uint32_t entries = attached->ring_entries;
	void *base;
	int r;

	if (!entries || entries > ZI_RING_ENTRIES_MAX || (entries & (entries - 1)) ||
	    attached->uplink_bytes < uplink_bytes_min(zinf, entries) ||
	    attached->downlink_bytes < zi_downlink_bytes(entries))
		return err_trace(zi_client_breach(zinf, "rings of impossible sizes"));
	r = zi_region_map(fds[ATTACH_FD_UPLINK], attached->uplink_bytes, true, &zinf->uplink);
	if (r == -EPROTO || r == -EACCES)
		return err_trace(zi_client_breach(zinf, "an uplink that is not sealed, too short, "
		                                        "or read-only"));
	if (r)
		return zi_client_error(zinf, r, "mapping the rings: %s", strerror(-r));
	zinf->uplink_bytes = attached->uplink_bytes;
	r = zi_region_map(fds[ATTACH_FD_DOWNLINK], attached->downlink_bytes, false, &base);
	if (r == -EPROTO)
		return err_trace(
			zi_client_breach(zinf, "a downlink that is not sealed, or too short"));
	if (r)
		return zi_client_error(zinf, r, "mapping the rings: %s", strerror(-r));
	zinf->downlink = base;
	zinf->downlink_bytes = attached->downlink_bytes;
	down = base;
	if (down->magic != ZI_DOWNLINK_MAGIC || down->version != ZI_REGION_VERSION)
		return err_trace(zi_client_breach(zinf, "a downlink with another header"));
	up = zinf->uplink;
	up->magic = ZI_UPLINK_MAGIC;
	up->version = ZI_REGION_VERSION;
	up->entries = entries;
	zinf->down = down;
	zinf->entries = entries;
	zi_ring_sq_producer(&zinf->sq, zinf->uplink, zinf->downlink, entries);
	zi_ring_cq_consumer(&zinf->cq, zinf->uplink, zinf->downlink, entries);
	return 0;
}

/* Words of ATTACHED beside the rings. */
static int take_attached(struct zinf *zinf, const struct zi_attached *attached)
{
	if (!zinf->coll_timeout_ms)
		zinf->coll_timeout_ms = attached->coll_timeout_ms;
	if (!zinf->coll_timeout_ms) /* an older daemon */
		zinf->coll_timeout_ms = zinf->attach.timeout_ms;
	if (!(zinf->features & ZI_FEATURE_LOST))
		return 0;
	if (attached->lost_step < -1)
		return err_trace(zi_client_breach(zinf, "an impossible lost step"));
	zinf->lost_step = attached->lost_step;
	return 0;
}

/* An option of zinf_attach() that an older daemon does not know. */
static int check_flag(struct zinf *zinf, bool is_set, uint64_t feature, const char *name)
{
	if (!is_set || (zinf->features & feature))
		return 0;
	return zi_client_error(zinf, -EOPNOTSUPP,
	                       "%s is true, but zinfd at %s does not support it: use a newer zinfd",
	                       name, zinf->path);
}

static int join(struct zinf *zinf)
{
	struct zi_attach_training attach = { .attach = zinf->attach, .training = zinf->training };
	bool has_tail = zinf->features & ZI_FEATURE_TRAINING;
	const struct zi_message_header *message;
	int fds[ZI_MESSAGE_FDS_MAX];
	int r;

	r = check_flag(zinf, zi_training_is_forward_only(&zinf->training), ZI_FEATURE_FORWARD,
	               "is_forward_only");
	if (!r)
		r = check_flag(zinf, zinf->attach.flags & ZI_ATTACH_MUST_EXIST, ZI_FEATURE_EXIST,
		               "must_exist");
	if (r)
		return err_trace(r);
	r = zi_client_request(zinf, &attach.attach.header, ZI_MESSAGE_ATTACH,
	                      has_tail ? sizeof(attach) : sizeof(attach.attach),
	                      ZI_MESSAGE_ATTACHED, &message, fds, ATTACH_FDS);
	if (r)
		return err_trace(r);
	zinf->doorbell_fd = fds[ATTACH_FD_DOORBELL];
	zinf->wakeup_fd = fds[ATTACH_FD_WAKEUP];
	r = take_attached(zinf, (const struct zi_attached *)message);
	if (!r)
		r = map_rings(zinf, (const struct zi_attached *)message, fds);
	close_fds(fds, ATTACH_FD_DOORBELL);
	if (r)
		return err_trace(r);
	return err_trace(zi_client_ops_init(zinf));
}

/* What the caller may poll: the socket, and what zi_client_over() writes to when the last words on
 * the socket have been read already. */
static int open_event_fd(struct zinf *zinf)
{
	struct epoll_event readable = { .events = EPOLLIN };

	zinf->end_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	zinf->event_fd = epoll_create1(EPOLL_CLOEXEC);
	if (zinf->end_fd < 0 || zinf->event_fd < 0 ||
	    epoll_ctl(zinf->event_fd, EPOLL_CTL_ADD, zinf->end_fd, &readable) < 0 ||
	    epoll_ctl(zinf->event_fd, EPOLL_CTL_ADD, zinf->socket_fd, &readable) < 0) {
		int error = -errno;

		return zi_client_error(zinf, error, "opening an event descriptor: %s",
		                       strerror(-error));
	}
	return 0;
}

/* A daemon that was found, but is about to end: killed, its socket still accepts for a moment;
 * asked to stop, it says so. Who waits for a daemon waits for the next one. */
static bool is_ending(const struct zinf *zinf, int r)
{
	return zinf->over == -ESTALE || r == -ESHUTDOWN;
}

static int find_and_join(struct zinf *zinf, bool is_waiting)
{
	uint64_t deadline_ns = zi_clock_deadline_ns(zinf->timeout_ns);

	for (;;) {
		int r = connect_daemon(zinf, is_waiting, deadline_ns);

		if (r)
			return err_trace(r);
		r = greet(zinf);
		if (!r)
			r = join(zinf);
		if (!r || !is_waiting || !is_ending(zinf, r) || zi_clock_now_ns() >= deadline_ns)
			return err_trace(r);
		zinf->socket_fd = zi_close(zinf->socket_fd);
		zinf->over = 0;
		sleep_ns(ATTACH_PAUSE_MIN_NS);
	}
}

static int attach(struct zinf *zinf, const struct zinf_options *options)
{
	int r;

	r = zi_client_interrupt_init(zinf);
	if (r)
		return zi_client_error(zinf, r, "opening an event descriptor: %s", strerror(-r));
	r = zi_client_options(options, zinf);
	if (r)
		return err_trace(r);
	r = find_and_join(zinf, options->wait_for_daemon);
	if (r)
		return err_trace(r);
	return err_trace(open_event_fd(zinf));
}

int zinf_attach(const struct zinf_options *options, struct zinf **ret_zinf)
{
	ZI_CLIENT_NEED(NULL, options, options);
	ZI_CLIENT_NEED(NULL, ret_zinf, ret_zinf);
	_cleanup_(client_freep) struct zinf *zinf = NULL;
	struct zi_text text = { "" };
	int r;

	zi_client_set_attach_error(&text);
	zinf = client_new();
	if (!zinf) {
		zi_text_set(&text, "no memory");
		zi_client_set_attach_error(&text);
		return err_origin(-ENOMEM);
	}
	r = attach(zinf, options);
	if (r) {
		zi_client_set_attach_error(&zinf->text);
		return err_trace(r);
	}
	*ret_zinf = zi_steal(zinf);
	return 0;
}

/* A request without payload whose answer is DONE. */
static int request_plain(struct zinf *zinf, enum zi_message_type type)
{
	const struct zi_message_header *reply;
	struct zi_message_header request;

	return err_trace(zi_client_request(zinf, &request, type, sizeof(request), ZI_MESSAGE_DONE,
	                                   &reply, NULL, 0));
}

void zinf_detach(struct zinf *zinf)
{
	if (!zinf)
		return;
	zinf->holds_interrupts = true;
	zi_client_coll_settle(zinf);
	/* Of a group that broke we still take our leave: then this is no death. */
	zinf->timeout_ns = ZI_MIN(zinf->timeout_ns, DETACH_NS);
	if (zinf->over != -EPROTO)
		(void)request_plain(zinf,
		                    ZI_MESSAGE_DETACH); /* The lease ends with the socket anyway. */
	(void)client_free(zinf);                        /* Always NULL. */
}

int zinf_destroy_job(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	r = request_plain(zinf, ZI_MESSAGE_DESTROY);
	if (r)
		return err_trace(r);
	(void)client_free(zinf); /* Always NULL. */
	return 0;
}

/* zinf.h */
int32_t zinf_rank(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return (int32_t)zinf->attach.rank;
}

/* zinf.h */
int32_t zinf_world_size(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return (int32_t)zinf->attach.world_size;
}

int zinf_ping(struct zinf *zinf)
{
	ZI_CLIENT_NEED(zinf, zinf, zinf);
	int r = zi_client_enter(zinf);

	if (r)
		return err_trace(r);
	return err_trace(zi_client_call(zinf, ZI_OP_NOP, 0, 0, NULL));
}

int zinf_event_fd(const struct zinf *zinf)
{
	ZI_CLIENT_NEED(NULL, zinf, zinf);
	return zinf->event_fd;
}
