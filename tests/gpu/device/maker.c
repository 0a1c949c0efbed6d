/* SPDX-License-Identifier: Apache-2.0 */
/* A maker of chunks, and orders to it; see maker.h. */
#include "tests/gpu/device/maker.h"

#include <errno.h>
#include <string.h>

#include "common/base/assert.h"
#include "common/base/clock.h"
#include "common/base/fd.h"
#include "common/base/text.h"
#include "common/gpu/driver.h"
#include "tests/gpu/device/roles.h"
#include "tests/gpu/device/trial.h"

/* A driver that no process keeps awake takes seconds to open. */
#define ANSWER_NS (120 * ZI_NS_PER_S)

struct maker_settings {
	char driver[ZI_GPU_PATH_BYTES];
	char uuid[ZI_GPU_UUID_BYTES];
};

struct maker_order {
	uint64_t bytes;
	uint64_t count;
};

struct maker_answer {
	int64_t error; /* 0 or -errno, with text */
	struct zi_text text;
};

/* ---- the maker ---- */

struct maker {
	struct zi_gpu_driver driver;
	struct zi_gpu_device device;
};

static int fail(const struct maker *maker, int code, const char *what, struct zi_text *text)
{
	return zi_gpu_error(&maker->driver.cuda, code, text, "%s without a context", what);
}

/* Neither this thread nor the device has a context of this process. */
static int check_no_context(const struct maker *maker, struct zi_text *text)
{
	struct zi_cuda_context *context = NULL;
	uint32_t flags = 0;
	int is_active = 0;
	int code = maker->driver.cuda.cuCtxGetCurrent(&context);

	if (code)
		return fail(maker, code, "cuCtxGetCurrent", text);
	code = maker->driver.cuda.cuDevicePrimaryCtxGetState(maker->device.device, &flags,
	                                                     &is_active);
	if (code)
		return fail(maker, code, "cuDevicePrimaryCtxGetState", text);
	return context || is_active ? zi_text_error(text, -EEXIST, "the maker has a context") : 0;
}

static int make_one(const struct maker *maker, uint64_t bytes, struct zi_text *text, int *ret_fd)
{
	const struct zi_cuda_allocation chunk = zi_gpu_chunk(maker->device.device);
	const struct zi_cuda *cuda = &maker->driver.cuda;
	uint64_t handle;
	int code = cuda->cuMemCreate(&handle, bytes, &chunk, 0);

	if (code)
		return fail(maker, code, "cuMemCreate", text);
	code = cuda->cuMemExportToShareableHandle(ret_fd, handle, ZI_CUDA_HANDLE_POSIX_FD, 0);
	return code ? fail(maker, code, "cuMemExportToShareableHandle", text) : 0;
}

/* Return: 0; an error of the socket. */
static int serve(const struct maker *maker, int fd, const struct maker_order *order)
{
	struct maker_answer answer = { 0 };
	uint32_t count = 0;
	int fds[PEER_FDS_MAX];
	int r = 0;

	while (!r && count < order->count) {
		r = make_one(maker, order->bytes, &answer.text, &fds[count]);
		count += !r;
	}
	if (!r)
		r = check_no_context(maker, &answer.text);
	answer.error = r;
	r = peer_send(fd, &answer, sizeof(answer), fds, count);
	for (uint32_t i = 0; i < count; i++)
		(void)zi_close(fds[i]);
	return r;
}

int maker_role(int fd)
{
	struct maker_settings settings;
	struct maker_answer answer = { 0 };
	struct maker maker = { 0 };
	struct maker_order order;
	int r = peer_receive(fd, ANSWER_NS, &settings, sizeof(settings), NULL, 0);

	if (r)
		return 1;
	r = zi_gpu_driver_open(&maker.driver, settings.driver, &answer.text);
	if (!r)
		r = zi_gpu_device_find(&maker.driver, settings.uuid, &maker.device, &answer.text);
	answer.error = r;
	r = peer_send(fd, &answer, sizeof(answer), NULL, 0);
	while (!r && !answer.error) {
		r = peer_receive(fd, ZI_DEADLINE_NEVER, &order, sizeof(order), NULL, 0);
		if (!r)
			r = serve(&maker, fd, &order);
	}
	return r == -EPIPE ? 0 : 1;
}

/* ---- its parent ---- */

static int await(const struct peer *maker, struct zi_text *text, int *ret_fds, uint32_t count)
{
	struct maker_answer answer;
	int r = peer_receive(maker->fd, ANSWER_NS, &answer, sizeof(answer), ret_fds, count);

	if (r)
		return zi_text_error(text, r, "the process that makes chunks: %s", strerror(-r));
	*text = answer.text;
	return (int)answer.error;
}

int maker_start(const struct trial *trial, struct peer *ret_maker, struct zi_text *text)
{
	struct maker_settings settings = { 0 };
	int r;

	memcpy(settings.driver, trial->driver.path, sizeof(settings.driver));
	memcpy(settings.uuid, trial->device.uuid, sizeof(settings.uuid));
	r = peer_start(ret_maker, "maker", NULL, &settings, sizeof(settings));
	if (r)
		return zi_text_error(text, r, "starting a process: %s", strerror(-r));
	r = await(ret_maker, text, NULL, 0);
	if (r)
		(void)peer_kill(ret_maker); /* The first error says more. */
	return r;
}

int maker_make(const struct peer *maker, uint64_t bytes, uint32_t count, struct zi_text *text,
               int *ret_fds)
{
	struct maker_order order = { .bytes = bytes, .count = count };
	int r;

	assert(count <= PEER_FDS_MAX);
	r = peer_send(maker->fd, &order, sizeof(order), NULL, 0);
	if (r)
		return zi_text_error(text, r, "ordering chunks: %s", strerror(-r));
	for (uint32_t i = 0; i < count; i++)
		ret_fds[i] = -1;
	r = await(maker, text, ret_fds, count);
	for (uint32_t i = 0; i < count && r; i++)
		ret_fds[i] = zi_close(ret_fds[i]);
	return r;
}
