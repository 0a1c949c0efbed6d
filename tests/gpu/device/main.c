/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu-trials: the program behind run-gpu (docs/GPU.md). It asks a GPU, checks zinf on it, or
 * measures it, in processes of its own and with a private zinfd. run-gpu gives it a folder for
 * temporary files ($TMPDIR), and $ZINF_BUILD, in whose bin/ the programs lie.
 *
 * Exit codes: 0 all is right; 1 a row failed; 2 a wrong option; 77 there is no GPU to use.
 */
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "tests/gpu/device/commands.h"
#include "tests/gpu/device/roles.h"
#include "tests/gpu/device/trial.h"

static const struct {
	const char *name;
	void (*run)(struct trial *trial);
} commands[] = {
	{ "ask", ask_run },
	{ "check", check_run },
	{ "bench", bench_run },
};

static int help(int code)
{
	(void)fputs("usage: run-gpu ask|check|bench [OPTION...]\n"
	            "  ask            prints what the GPU and its driver do\n"
	            "  check          tests zinf on the GPU, with a zinfd of its own\n"
	            "  bench          measures zinf on the GPU beside the driver's plain copies\n"
	            "\n"
	            "  --device UUID  the GPU (nvidia-smi -L); the first one that is visible\n"
	            "  --driver PATH  libcuda.so.1, where it is not in the linker's places\n"
	            "  --cublas PATH  libcublas.so, where it is not found\n"
	            "  --nccl PATH    libnccl.so, likewise\n"
	            "  --gpt PATH     another zinf-gpt\n"
	            "  --text PATH    text for zinf-gpt: a file or a folder\n"
	            "  --steps N      steps of zinf-gpt (200)\n"
	            "  --output PATH  folder for gpu.json of bench\n"
	            "  --rehearse     bench: go through all parts once, and print no figure\n"
	            "\n"
	            "exit code: 0 all is right, 1 something failed, 2 a wrong option, 77 no GPU\n",
	            code ? stderr : stdout);
	return code;
}

/* Return: 0; TRIAL_EXIT_USAGE. */
static int parse(int argc, char **argv, struct trial_options *options, const char **ret_role,
                 bool *ret_is_help)
{
	static const struct option long_options[] = {
		{ "device", required_argument, NULL, 'g' },
		{ "driver", required_argument, NULL, 'd' },
		{ "cublas", required_argument, NULL, 'c' },
		{ "nccl", required_argument, NULL, 'n' },
		{ "gpt", required_argument, NULL, 'p' },
		{ "text", required_argument, NULL, 't' },
		{ "steps", required_argument, NULL, 's' },
		{ "output", required_argument, NULL, 'o' },
		{ "rehearse", no_argument, NULL, 'r' },
		{ "role", required_argument, NULL, 'R' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char **const texts[] = {
		['g'] = &options->device, ['d'] = &options->driver, ['c'] = &options->cublas,
		['n'] = &options->nccl,   ['p'] = &options->gpt,    ['t'] = &options->text,
		['o'] = &options->output, ['R'] = ret_role
	};
	int option;

	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (option == 'h')
			*ret_is_help = true;
		else if (option == 'r')
			options->is_rehearsal = true;
		else if (option == 's')
			options->steps = strtoull(optarg, NULL, 10);
		else if (option < (int)ZI_COUNT_OF(texts) && texts[option])
			*texts[option] = optarg;
		else
			return TRIAL_EXIT_USAGE; /* getopt_long() has said what is wrong. */
	}
	if (optind + 1 == argc)
		options->command = argv[optind];
	return optind + 1 < argc ? TRIAL_EXIT_USAGE : 0;
}

/* zinfd and the ranks are in other folders: a path is made whole. */
static void make_whole(const char **path, char *buffer)
{
	if (*path && realpath(*path, buffer))
		*path = buffer;
}

static int run(const struct trial_options *options, void (*command)(struct trial *trial))
{
	static struct trial trial; /* Large. */
	int code = trial_open(&trial, options);

	if (code)
		return code;
	if (command == bench_run && trial.is_fake && !options->is_rehearsal) {
		printf("bench: refused: the driver is the FAKE of the tests, and nothing is "
		       "measured on it\n");
		return TRIAL_EXIT_FAILED;
	}
	command(&trial);
	return trial_close(&trial);
}

int main(int argc, char **argv)
{
	static char driver[PATH_MAX], cublas[PATH_MAX], nccl[PATH_MAX], gpt[PATH_MAX],
		text[PATH_MAX];
	struct trial_options options = { 0 };
	const char *role = NULL;
	bool is_help = false;
	int r = parse(argc, argv, &options, &role, &is_help);

	if (is_help)
		return help(0);
	if (role)
		r = role_run(role);
	if (role && r >= 0)
		return r;
	if (r || !options.command)
		return help(TRIAL_EXIT_USAGE);
	make_whole(&options.driver, driver);
	make_whole(&options.cublas, cublas);
	make_whole(&options.nccl, nccl);
	make_whole(&options.gpt, gpt);
	make_whole(&options.text, text);
	for (size_t i = 0; i < ZI_COUNT_OF(commands); i++)
		if (!strcmp(commands[i].name, options.command))
			return run(&options, commands[i].run);
	return help(TRIAL_EXIT_USAGE);
}
