/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a zinf-gpu says to the daemon; see gpu_worker.h. Floor 3. The loop's thread. Each word is
 * checked: a message that no zinf-gpu of this release sends ends the process.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/base/err.h"
#include "common/base/fd.h"
#include "common/base/utf8.h"
#include "daemon/worker/gpu_worker_private.h"

/* What came in one packet. */
struct packet {
	union gpu_message message;
	int fds[GPU_FDS_MAX]; /* (fd_count,) -1 where another owns it */
	uint32_t fd_count;
	bool is_short; /* descriptors that this process had no room for */
};

/* Ends the process. @what: "a HELLO without a UUID". */
static void end_for(struct gpu_worker *worker, const char *what)
{
	struct zi_text text;

	zi_text_set(&text, "%s (pid %d) broke the protocol: %s", worker->process.name,
	            (int)worker->process.pid, what);
	process_end(&worker->process, -EPROTO, &text);
}

/* Whether @chars, (bytes,), ends within @target. Control characters go. */
static bool take_text(char *target, size_t capacity, const char *chars, size_t bytes)
{
	if (strnlen(chars, bytes) >= ZI_MIN(bytes, capacity))
		return false;
	(void)snprintf(target, capacity, "%s", chars); /* Fits. */
	zi_utf8_clean(target);
	return true;
}

/* ---- the greeting ---- */

/* Return: NULL; what is wrong. */
static const char *read_facts(const struct gpu_hello *hello, struct gpu_facts *ret_facts)
{
	struct gpu_facts facts = {
		.bytes = hello->bytes,
		.granularity_bytes = hello->granularity_bytes,
		.index = hello->index,
		.count = hello->count,
		.driver_version = hello->driver_version,
		.capability = hello->capability,
		.compute_mode = hello->compute_mode,
		.host_numa = hello->host_numa,
		.has_vmm = hello->flags & GPU_FLAG_VMM,
		.has_posix_fds = hello->flags & GPU_FLAG_POSIX_FDS,
		.is_mig = hello->flags & GPU_FLAG_MIG,
	};

	if (hello->flags & ~GPU_FLAGS || hello->reserved || hello->header.cookie)
		return "a HELLO with unknown bits";
	if (!take_text(facts.uuid, sizeof(facts.uuid), hello->uuid, sizeof(hello->uuid)) ||
	    !zi_gpu_is_uuid(facts.uuid))
		return "a HELLO without a UUID";
	if (!take_text(facts.name, sizeof(facts.name), hello->name, sizeof(hello->name)) ||
	    !take_text(facts.pci, sizeof(facts.pci), hello->pci, sizeof(hello->pci)))
		return "a HELLO with a text without end";
	if (!facts.bytes || facts.bytes > INT64_MAX || !facts.granularity_bytes ||
	    facts.granularity_bytes > facts.bytes || facts.index >= facts.count ||
	    facts.count > ZI_GPU_DEVICES_MAX || facts.driver_version <= 0)
		return "a HELLO with figures that cannot be";
	*ret_facts = facts;
	return NULL;
}

/* The UUID that the GPU must have; NULL: any. */
static const char *wanted_uuid(const struct gpu_worker *worker)
{
	if (worker->has_facts)
		return worker->facts.uuid;
	return zi_gpu_is_uuid(worker->options.device) ? worker->options.device : NULL;
}

static const char *take_hello(struct gpu_worker *worker, const struct gpu_hello *hello)
{
	const char *wanted = wanted_uuid(worker);
	struct gpu_facts facts;
	const char *wrong = read_facts(hello, &facts);

	if (!wrong && wanted && strcasecmp(facts.uuid, wanted) != 0)
		wrong = "a HELLO of another GPU";
	if (wrong)
		return wrong;
	worker->facts = facts;
	worker->has_facts = true;
	(void)snprintf(worker->process.name, sizeof(worker->process.name), "zinf-gpu of %s",
	               facts.uuid); /* Fits. */
	process_greeted(&worker->process);
	if (worker->options.greeted)
		worker->options.greeted(worker->options.arg, &worker->facts);
	gpu_worker_serve(worker);
	return NULL;
}

static const char *take_seen(struct gpu_worker *worker, const struct gpu_seen *seen)
{
	if (worker->is_seen || seen->reserved || seen->header.cookie ||
	    seen->count > ZI_GPU_DEVICES_MAX)
		return "a SEEN that cannot be";
	worker->is_seen = true;
	if (worker->options.seen)
		worker->options.seen(worker->options.arg, seen->count);
	return NULL;
}

static const char *take_failed(struct gpu_worker *worker, const struct gpu_failed *failed)
{
	struct zi_text said, text;
	int error = process_errno(failed->error);

	if (!error || error != failed->error || failed->reserved || failed->header.cookie ||
	    !take_text(said.chars, sizeof(said.chars), failed->text.chars,
	               sizeof(failed->text.chars)))
		return "a FAILED without an error";
	zi_text_set(&text, "%s: %s", worker->process.name, said.chars);
	process_end(&worker->process, error, &text);
	return NULL;
}

/* ---- chunks ---- */

/* Whether @chunks are the next ones of @request. Return: NULL; what is wrong. */
static const char *check_chunks(const struct gpu_worker *worker, const struct gpu_request *request,
                                const struct gpu_chunks *chunks)
{
	uint64_t last_id = worker->last_id;

	if (!request || !request->is_sent || request->type != GPU_CREATE || request->error ||
	    request->base.cookie != chunks->header.cookie)
		return "CHUNKS that nobody asked for";
	if (!chunks->count || chunks->count > GPU_FDS_MAX || chunks->first != request->passed ||
	    chunks->count > request->count - request->passed)
		return "CHUNKS that do not match their request";
	for (uint32_t i = 0; i < chunks->count; i++) {
		if (chunks->ids[i] <= last_id)
			return "CHUNKS with an id that was there before";
		last_id = chunks->ids[i];
	}
	return NULL;
}

static const char *take_chunks(struct gpu_worker *worker, struct packet *packet)
{
	const struct gpu_chunks *chunks = &packet->message.chunks;
	struct gpu_request *request = gpu_worker_head(worker);
	struct gpu_taken taken = { .header = gpu_header_of(GPU_TAKEN, chunks->header.cookie) };
	const char *wrong = check_chunks(worker, request, chunks);

	if (wrong)
		return wrong;
	if (packet->is_short && packet->fd_count < chunks->count) {
		/* The others' chunks are not to suffer from it: this request alone fails. */
		taken.error = request->error = err_origin(-EMFILE);
		zi_text_set(&request->text,
		            "zinfd may open no more descriptors: %u of %u chunks on %s had come. "
		            "Raise LimitNOFILE of zinfd, or make larger chunks",
		            request->passed, request->count, worker->facts.uuid);
	} else if (packet->is_short || packet->fd_count != chunks->count) {
		return "CHUNKS that do not match their descriptors";
	}
	for (uint32_t i = 0; !taken.error && i < chunks->count; i++)
		request->chunks[request->passed++] =
			(struct gpu_chunk){ .id = chunks->ids[i],
			                    .life = gpu_worker_life(worker),
			                    .fd = zi_steal_fd(packet->fds[i]) };
	worker->last_id = chunks->ids[chunks->count - 1];
	/* Not sent: then no answer comes, and the limit or the end of the process fails it. */
	(void)process_send(&worker->process, &taken, sizeof(taken), -1);
	gpu_worker_arm(worker, request);
	return NULL;
}

/* ---- the end of a request ---- */

/* Return: NULL; what is wrong. */
static const char *check_done(const struct gpu_worker *worker, const struct gpu_request *request,
                              const struct gpu_done *done)
{
	if (!request || !request->is_sent || request->base.cookie != done->header.cookie)
		return "a DONE that nobody asked for";
	if (process_errno(done->error) != done->error)
		return "a DONE with an error that cannot be";
	if (done->held_bytes > worker->facts.bytes || done->held_count > GPU_CHUNKS_MAX ||
	    !done->held_bytes != !done->held_count)
		return "a DONE with figures that cannot be";
	if (request->type == GPU_CREATE && !done->error && request->passed != request->count)
		return "a DONE before all chunks came";
	return NULL;
}

static const char *take_done(struct gpu_worker *worker, const struct gpu_done *done)
{
	struct gpu_request *request = gpu_worker_head(worker);
	const char *wrong = check_done(worker, request, done);
	struct zi_text text;

	if (wrong)
		return wrong;
	if (!take_text(text.chars, sizeof(text.chars), done->text.chars, sizeof(done->text.chars)))
		return "a DONE with a text without end";
	worker->held_bytes = done->held_bytes;
	if (done->error && !request->error) { /* The first error stands. */
		request->error = done->error;
		request->text = text;
	}
	if (request->type == GPU_RELEASE) {
		request->passed += request->portion;
		if (request->passed < request->count) {
			gpu_worker_send(worker, request);
			return NULL;
		}
	}
	text = request->text;
	gpu_worker_finish(worker, request, request->error, &text);
	return NULL;
}

/* ---- packets ---- */

/* Return: NULL; what is wrong with it. */
static const char *take(struct gpu_worker *worker, struct packet *packet)
{
	struct process *process = &worker->process;
	const union gpu_message *message = &packet->message;
	uint32_t type = message->header.type;

	if (type == GPU_CHUNKS && process->state == PROCESS_UP)
		return take_chunks(worker, packet);
	if (packet->fd_count || packet->is_short)
		return "descriptors with a message that has none";
	if (type == GPU_SEEN && process->state == PROCESS_STARTING)
		return take_seen(worker, &message->seen);
	if (type == GPU_HELLO && process->state == PROCESS_STARTING)
		return take_hello(worker, &message->hello);
	if (type == GPU_FAILED && process->state == PROCESS_STARTING)
		return take_failed(worker, &message->failed);
	if (type == GPU_DONE && process->state == PROCESS_UP)
		return take_done(worker, &message->done);
	if (type == GPU_PONG && process->is_pinged) {
		process_answered(process);
		return NULL;
	}
	return "a message out of its order";
}

static void read_descriptors(struct msghdr *parts, struct packet *packet)
{
	const struct cmsghdr *extra = CMSG_FIRSTHDR(parts);

	packet->is_short = parts->msg_flags & MSG_CTRUNC;
	if (!extra || extra->cmsg_level != SOL_SOCKET || extra->cmsg_type != SCM_RIGHTS)
		return;
	packet->fd_count =
		(uint32_t)ZI_MIN((extra->cmsg_len - CMSG_LEN(0)) / sizeof(int), GPU_FDS_MAX);
	memcpy(packet->fds, CMSG_DATA(extra), packet->fd_count * sizeof(int));
}

/* Documented in gpu_worker_private.h. */
void gpu_worker_ready(struct process *process)
{
	struct gpu_worker *worker = gpu_worker_of(process);
	struct packet packet = { .fd_count = 0 };
	char control[CMSG_SPACE(GPU_FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
	struct iovec part = { &packet.message, sizeof(packet.message) };
	struct msghdr parts = { .msg_iov = &part,
		                .msg_iovlen = 1,
		                .msg_control = control,
		                .msg_controllen = sizeof(control) };
	ssize_t bytes = recvmsg(process->control.fd, &parts, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const char *wrong;

	if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (bytes <= 0) {
		process_end(process, -EPIPE, NULL);
		return;
	}
	read_descriptors(&parts, &packet);
	if (parts.msg_flags & MSG_TRUNC || !gpu_message_is_whole(&packet.message, (uint64_t)bytes))
		wrong = "a packet that is no message of this release (restart zinfd after an "
			"update)";
	else
		wrong = take(worker, &packet);
	if (wrong)
		end_for(worker, wrong);
	for (uint32_t i = 0; i < packet.fd_count; i++)
		(void)zi_close(packet.fds[i]); /* -1 where it is a chunk's now. */
}
