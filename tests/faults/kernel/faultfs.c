/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test double of a disk below the kernel (faultfs.h). One thread waits for requests of the
 * kernel and of the test alike; a request that is held is one whose answer has not been given, so
 * nothing here ever blocks.
 */
#define FUSE_USE_VERSION 314
#include "tests/faults/kernel/faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/fd.h"

/* More than the kernel sends at once (12 in the background, one of each of its threads). */
#define HELD_MAX 64u
/* One request of the kernel; store blocks are cut into these. */
#define TRANSFER_BYTES_MAX (1u << 20)
/* A shorter request is not cut: it has no whole sectors that would be left. */
#define SHORT_BYTES_MIN 4096u
#define JUNK_BYTE       0xa5
/* What is awaited and has not come by then does not come. */
#define ANSWER_TIMEOUT_MS 30000

enum command_kind { COMMAND_RULE, COMMAND_MEND, COMMAND_AWAIT, COMMAND_LET_GO };

struct command {
	enum command_kind kind;
	struct faultfs_rule rule;
	uint32_t held_count;
	bool is_junk;
};

struct held {
	fuse_req_t req; /* NULL: free */
	enum faultfs_op op;
	size_t bytes;
	off_t offset;
	char *data; /* of a write; heap */
	bool is_interrupted;
};

struct server {
	struct fuse_session *session;
	int store_fd, control_fd;
	bool is_async;
	struct faultfs_rule rules[_FAULTFS_OP_COUNT];
	struct faultfs_counts counts;
	struct held held[HELD_MAX];
	uint32_t awaited_count; /* 0: nobody waits */
	bool has_interrupts;
	char bytes[TRANSFER_BYTES_MAX];
};

/* ---- the file ---- */

static void answer_read(struct server *server, fuse_req_t req, size_t bytes, off_t offset)
{
	ssize_t r = pread(server->store_fd, server->bytes, bytes, offset);

	if (r < 0)
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_buf(req, server->bytes, (size_t)r);
}

static void answer_write(struct server *server, fuse_req_t req, const char *data, size_t bytes,
                         off_t offset)
{
	ssize_t r = pwrite(server->store_fd, data, bytes, offset);

	if (r < 0)
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_write(req, (size_t)r);
}

static void answer(struct server *server, enum faultfs_op op, fuse_req_t req, const char *data,
                   size_t bytes, off_t offset)
{
	if (op == FAULTFS_READ)
		answer_read(server, req, bytes, offset);
	else if (op == FAULTFS_WRITE)
		answer_write(server, req, data, bytes, offset);
	else
		(void)fuse_reply_err(req, fdatasync(server->store_fd) ? errno : 0);
}

/* Answered behind fuse_session_process_buf(), which still holds the request. */
static void interrupted(fuse_req_t req, void *arg)
{
	struct held *held = arg;

	if (held->req != req)
		return;
	held->is_interrupted = true;
	((struct server *)fuse_req_userdata(req))->has_interrupts = true;
}

static void hold(struct server *server, enum faultfs_op op, fuse_req_t req, const char *data,
                 size_t bytes, off_t offset)
{
	struct held *held = server->held;

	while (held < server->held + HELD_MAX && held->req)
		held++;
	if (held == server->held + HELD_MAX) {
		(void)fuse_reply_err(req, EBUSY);
		return;
	}
	*held = (struct held){ .req = req, .op = op, .bytes = bytes, .offset = offset };
	if (data) {
		held->data = malloc(bytes);
		if (!held->data)
			abort();
		memcpy(held->data, data, bytes);
	}
	server->counts.held_count++;
	fuse_req_interrupt_func(req, interrupted, held);
}

static void drop(struct server *server, struct held *held)
{
	free(held->data);
	*held = (struct held){ 0 };
	server->counts.held_count--;
}

static void serve(fuse_req_t req, enum faultfs_op op, const char *data, size_t bytes, off_t offset)
{
	struct server *server = fuse_req_userdata(req);
	struct faultfs_rule *rule = &server->rules[op];

	if (rule->kind == FAULTFS_SOUND || (rule->skip_count && rule->skip_count--)) {
		answer(server, op, req, data, bytes, offset);
		return;
	}
	server->counts.hit_count++;
	if (rule->kind == FAULTFS_ERROR)
		(void)fuse_reply_err(req, rule->error);
	else if (rule->kind == FAULTFS_SHORT)
		answer(server, op, req, data, bytes > SHORT_BYTES_MIN ? bytes / 2 + 1 : bytes,
		       offset);
	else
		hold(server, op, req, data, bytes, offset);
}

static void serve_read(fuse_req_t req, fuse_ino_t inode, size_t bytes, off_t offset,
                       struct fuse_file_info *info)
{
	(void)inode;
	(void)info;
	serve(req, FAULTFS_READ, NULL, bytes < TRANSFER_BYTES_MAX ? bytes : TRANSFER_BYTES_MAX,
	      offset);
}

static void serve_write(fuse_req_t req, fuse_ino_t inode, const char *data, size_t bytes,
                        off_t offset, struct fuse_file_info *info)
{
	(void)inode;
	(void)info;
	serve(req, FAULTFS_WRITE, data, bytes, offset);
}

static void serve_fsync(fuse_req_t req, fuse_ino_t inode, int is_data, struct fuse_file_info *info)
{
	(void)inode;
	(void)is_data;
	(void)info;
	serve(req, FAULTFS_FLUSH, NULL, 0, 0);
}

static void serve_getattr(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct server *server = fuse_req_userdata(req);
	struct stat status;

	(void)info;
	if (fstat(server->store_fd, &status)) {
		(void)fuse_reply_err(req, errno);
		return;
	}
	status.st_ino = inode;
	(void)fuse_reply_attr(req, &status, 0);
}

static void serve_setattr(fuse_req_t req, fuse_ino_t inode, struct stat *status, int which,
                          struct fuse_file_info *info)
{
	struct server *server = fuse_req_userdata(req);

	if (which & FUSE_SET_ATTR_SIZE && ftruncate(server->store_fd, status->st_size))
		(void)fuse_reply_err(req, errno);
	else
		serve_getattr(req, inode, info);
}

static void serve_open(fuse_req_t req, fuse_ino_t inode, struct fuse_file_info *info)
{
	(void)inode;
	info->direct_io = 1;
	(void)fuse_reply_open(req, info);
}

static void serve_fallocate(fuse_req_t req, fuse_ino_t inode, int mode, off_t offset, off_t bytes,
                            struct fuse_file_info *info)
{
	struct server *server = fuse_req_userdata(req);

	(void)inode;
	(void)info;
	(void)fuse_reply_err(req, fallocate(server->store_fd, mode, offset, bytes) ? errno : 0);
}

static void serve_statfs(fuse_req_t req, fuse_ino_t inode)
{
	struct server *server = fuse_req_userdata(req);
	struct statvfs status;

	(void)inode;
	if (fstatvfs(server->store_fd, &status))
		(void)fuse_reply_err(req, errno);
	else
		(void)fuse_reply_statfs(req, &status);
}

static void serve_init(void *arg, struct fuse_conn_info *connection)
{
	const struct server *server = arg;

	connection->max_write = TRANSFER_BYTES_MAX;
	if (!server->is_async)
		connection->want &= ~(unsigned)FUSE_CAP_ASYNC_DIO;
}

static const struct fuse_lowlevel_ops operations = {
	.init = serve_init,
	.getattr = serve_getattr,
	.setattr = serve_setattr,
	.open = serve_open,
	.read = serve_read,
	.write = serve_write,
	.fsync = serve_fsync,
	.fallocate = serve_fallocate,
	.statfs = serve_statfs,
};

/* ---- commands ---- */

static void say(const struct server *server)
{
	if (write(server->control_fd, &server->counts, sizeof(server->counts)) !=
	    sizeof(server->counts))
		_exit(0); /* Nobody listens any more. */
}

static void let_go(struct server *server, bool is_junk)
{
	for (struct held *held = server->held; held < server->held + HELD_MAX; held++) {
		if (!held->req)
			continue;
		if (is_junk && held->op == FAULTFS_READ) {
			memset(server->bytes, JUNK_BYTE, held->bytes);
			(void)fuse_reply_buf(held->req, server->bytes, held->bytes);
		} else {
			answer(server, held->op, held->req, held->data, held->bytes, held->offset);
		}
		drop(server, held);
	}
}

/* Each command has one answer, that of COMMAND_AWAIT when it is true. */
static void obey(struct server *server)
{
	struct command command;

	if (read(server->control_fd, &command, sizeof(command)) != sizeof(command))
		_exit(0);
	if (command.kind == COMMAND_RULE)
		server->rules[command.rule.op] = command.rule;
	else if (command.kind == COMMAND_MEND)
		memset(server->rules, 0, sizeof(server->rules));
	else if (command.kind == COMMAND_LET_GO)
		let_go(server, command.is_junk);
	else if (command.held_count > server->counts.held_count)
		server->awaited_count = command.held_count;
	if (!server->awaited_count)
		say(server);
}

static void after_request(struct server *server)
{
	for (struct held *held = server->held; server->has_interrupts; held++) {
		if (held == server->held + HELD_MAX) {
			server->has_interrupts = false;
		} else if (held->req && held->is_interrupted) {
			(void)fuse_reply_err(held->req, EINTR);
			server->counts.interrupted_count++;
			drop(server, held);
		}
	}
	if (server->awaited_count && server->counts.held_count >= server->awaited_count) {
		server->awaited_count = 0;
		say(server);
	}
}

static void run(struct server *server)
{
	struct pollfd events[2] = { { .fd = fuse_session_fd(server->session), .events = POLLIN },
		                    { .fd = server->control_fd, .events = POLLIN } };
	struct fuse_buf buffer = { 0 };

	while (!fuse_session_exited(server->session)) {
		if (poll(events, 2, -1) < 0 && errno != EINTR)
			break;
		if (events[1].revents)
			obey(server);
		if (!events[0].revents)
			continue;
		if (fuse_session_receive_buf(server->session, &buffer) > 0)
			fuse_session_process_buf(server->session, &buffer);
		after_request(server);
	}
	free(buffer.mem);
}

/* The process. Mounted when it has said its first word. */
static void run_process(const char *store_path, const char *mount_path, bool is_async,
                        int control_fd)
{
	char *words[] = { (char *)"zinf-faultfs", (char *)"-o", (char *)"fsname=zinf-faultfs" };
	struct fuse_args arguments = FUSE_ARGS_INIT(3, words);
	struct server *server = calloc(1, sizeof(*server));

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!server)
		_exit(1);
	server->control_fd = control_fd;
	server->is_async = is_async;
	server->store_fd = open(store_path, O_RDWR | O_CLOEXEC);
	server->session = fuse_session_new(&arguments, &operations, sizeof(operations), server);
	if (server->store_fd < 0 || !server->session ||
	    fuse_session_mount(server->session, mount_path))
		_exit(1);
	say(server);
	run(server);
	_exit(0);
}

/* ---- the test's side ---- */

int faultfs_start(struct faultfs *faultfs, const char *store_path, const char *mount_path,
                  bool is_async)
{
	struct faultfs_counts counts;
	int ends[2];

	*faultfs = (struct faultfs){ .control_fd = -1 };
	(void)snprintf(faultfs->mount_path, sizeof(faultfs->mount_path), "%s", mount_path);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	faultfs->pid = fork();
	if (!faultfs->pid) {
		(void)zi_close(ends[0]);
		run_process(store_path, mount_path, is_async, ends[1]);
	}
	(void)zi_close(ends[1]);
	faultfs->control_fd = ends[0];
	if (faultfs->pid < 0 || read(ends[0], &counts, sizeof(counts)) != sizeof(counts)) {
		faultfs_vanish(faultfs);
		return -EIO;
	}
	return 0;
}

void faultfs_vanish(struct faultfs *faultfs)
{
	if (faultfs->pid > 0) {
		(void)kill(faultfs->pid, SIGKILL);
		(void)waitpid(faultfs->pid, NULL, 0);
		/* Not mounted, if it did not get so far. */
		(void)umount2(faultfs->mount_path, MNT_DETACH);
	}
	faultfs->control_fd = zi_close(faultfs->control_fd);
	faultfs->pid = 0;
}

static int command(struct faultfs *faultfs, const struct command *words,
                   struct faultfs_counts *ret_counts)
{
	struct pollfd poller = { .fd = faultfs->control_fd, .events = POLLIN };
	struct faultfs_counts counts;

	if (write(faultfs->control_fd, words, sizeof(*words)) != sizeof(*words))
		return -EPIPE;
	if (poll(&poller, 1, ANSWER_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	if (read(faultfs->control_fd, &counts, sizeof(counts)) != sizeof(counts))
		return -EPIPE;
	if (ret_counts)
		*ret_counts = counts;
	return 0;
}

int faultfs_rule(struct faultfs *faultfs, const struct faultfs_rule *rule)
{
	return command(faultfs, &(struct command){ .kind = COMMAND_RULE, .rule = *rule }, NULL);
}

int faultfs_mend(struct faultfs *faultfs)
{
	return command(faultfs, &(struct command){ .kind = COMMAND_MEND }, NULL);
}

int faultfs_await(struct faultfs *faultfs, uint32_t held_count, struct faultfs_counts *ret_counts)
{
	return command(faultfs,
	               &(struct command){ .kind = COMMAND_AWAIT, .held_count = held_count },
	               ret_counts);
}

int faultfs_let_go(struct faultfs *faultfs, bool is_junk)
{
	return command(faultfs, &(struct command){ .kind = COMMAND_LET_GO, .is_junk = is_junk },
	               NULL);
}
