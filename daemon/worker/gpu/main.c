/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zinf-gpu: the worker that owns memory of one GPU. Floor 3. One thread: it opens the driver, tells
 * the daemon what the GPU is, and serves orders (orders.h) until the daemon closes its end. It has
 * no CUDA context, so no error of a kernel can reach it, and it costs no GPU memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/base/console.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/gpu/driver.h"
#include "daemon/worker/gpu/orders.h"
#include "daemon/worker/spawn.h"

struct arguments {
	const char *device, *driver;
	const char *number; /* NULL: not given */
	bool is_help;
};

/* Large: they have the table of chunks. */
static struct orders the_orders;
static struct zi_gpu_driver the_driver;

/* Return: the exit code. */
static int help(void)
{
	int r;

	(void)puts("usage: zinf-gpu --device UUID|NUMBER [--driver PATH]\n"
	           "The worker process that owns zinf's memory on one GPU. zinfd starts one for\n"
	           "each GPU, with a socket as descriptor 3. Users and administrators do not\n"
	           "start it.\n"
	           "\n"
	           "  --device UUID|NUMBER  the GPU: GPU-..., MIG-..., or its number\n"
	           "  --number NUMBER       the number that a GPU given by its UUID had before\n"
	           "  --driver PATH         the CUDA driver's library (default: " ZI_GPU_DRIVER_NAME
	           ")\n"
	           "  --help                this text\n"
	           "\n"
	           "example: zinfd --set gpu.enable=yes");
	r = zi_console_flush();
	if (r < 0)
		(void)fprintf(stderr, "zinf-gpu: writing to standard output failed: %s\n",
		              strerror(-r));
	return r ? 1 : 0;
}

/* Return: 0; -EINVAL after a message. */
static int parse(struct arguments *arguments, int argc, char **argv)
{
	static const struct option options[] = { { "device", required_argument, NULL, 'g' },
		                                 { "number", required_argument, NULL, 'n' },
		                                 { "driver", required_argument, NULL, 'd' },
		                                 { "help", no_argument, NULL, 'h' },
		                                 { NULL, 0, NULL, 0 } };
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'g')
			arguments->device = optarg;
		else if (option == 'n')
			arguments->number = optarg;
		else if (option == 'd')
			arguments->driver = optarg;
		else if (option == 'h')
			arguments->is_help = true;
		else
			return -EINVAL; /* getopt_long() has said what is wrong. */
	}
	if (arguments->is_help)
		return 0;
	if (optind < argc || !arguments->device || fcntl(SPAWN_SOCKET_FD, F_GETFD) < 0) {
		(void)fprintf(stderr, "zinf-gpu is started by zinfd, with its socket as descriptor "
		                      "3 and a GPU as --device\n");
		return -EINVAL;
	}
	return 0;
}

/* Of the daemon's thread that started this process: its end is the daemon's end. The socket tells
 * it as well, but only while this process does not wait in the driver. */
static int bind_life(struct zi_text *text)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
		return err_origin(
			zi_text_error(text, -errno, "PR_SET_PDEATHSIG: %s", strerror(errno)));
	return 0;
}

/* After the driver is open: the library may have to start nvidia-modprobe, which is setuid. */
static int give_up_rights(struct zi_text *text)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return err_origin(
			zi_text_error(text, -errno, "PR_SET_NO_NEW_PRIVS: %s", strerror(errno)));
	return 0;
}

static int describe_numbered(const char *number, uint32_t count, struct zi_gpu_device *ret_device,
                             struct zi_text *text)
{
	char *end;
	unsigned long index = strtoul(number, &end, 10);

	if (*end)
		return err_origin(
			zi_text_error(text, -EINVAL, "'%.60s' is no number of a GPU", number));
	if (index >= count)
		return err_origin(zi_text_error(
			text, -ENODEV, "there is no GPU %lu: the driver shows %u", index, count));
	return err_trace(zi_gpu_device_describe(&the_driver, (uint32_t)index, ret_device, text));
}

/* The number that a GPU had before is looked at first: the other GPUs are left alone. */
static int describe_named(const struct arguments *arguments, uint32_t count,
                          struct zi_gpu_device *ret_device, struct zi_text *text)
{
	struct zi_gpu_device device;

	if (arguments->number && !describe_numbered(arguments->number, count, &device, text) &&
	    !strcasecmp(device.uuid, arguments->device)) {
		*ret_device = device;
		return 0;
	}
	return err_trace(zi_gpu_device_find(&the_driver, arguments->device, ret_device, text));
}

static int describe(const struct arguments *arguments, struct zi_gpu_device *ret_device,
                    uint32_t *ret_count, struct zi_text *text)
{
	bool is_number = arguments->device[0] >= '0' && arguments->device[0] <= '9';
	uint32_t count;
	int r = zi_gpu_device_count(&the_driver, &count, text);

	if (r)
		return err_trace(r);
	(void)orders_seen(SPAWN_SOCKET_FD, count); /* A daemon that has gone ends this process. */
	r = is_number ? describe_numbered(arguments->device, count, ret_device, text)
	              : describe_named(arguments, count, ret_device, text);
	if (!r)
		r = zi_gpu_device_check(ret_device, text);
	if (!r)
		*ret_count = count;
	return err_trace(r);
}

static int open_gpu(const struct arguments *arguments, uint32_t *ret_count, struct zi_text *text)
{
	struct zi_gpu_device device;
	int r = bind_life(text);

	if (!r)
		r = zi_gpu_driver_open(&the_driver, arguments->driver, text);
	if (!r)
		r = give_up_rights(text);
	if (!r)
		r = describe(arguments, &device, ret_count, text);
	if (!r)
		chunks_init(&the_orders.chunks, &the_driver, &device);
	return err_trace(r);
}

int main(int argc, char **argv)
{
	struct arguments arguments = { .device = NULL };
	struct zi_text text = { "" };
	uint32_t device_count = 0;
	int code = 0;

	if (parse(&arguments, argc, argv))
		return 1;
	if (arguments.is_help)
		return help();
	int r = open_gpu(&arguments, &device_count, &text);
	if (r) {
		orders_fail(SPAWN_SOCKET_FD, r, &text);
	} else {
		the_orders.fd = SPAWN_SOCKET_FD;
		if (!orders_greet(&the_orders, device_count))
			code = orders_serve(&the_orders);
	}
	/* The kernel takes the chunks with the process; the driver's own end may wait for it. */
	_exit(code);
}
