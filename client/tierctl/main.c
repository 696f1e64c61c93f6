#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/command.h"

static int command_help(const struct command_context *context, int count, char *arguments[]);

static const struct verb {
	const char *name;
	int (*run)(const struct command_context *context, int count, char *arguments[]);
	const char *usage, *help;
} verbs[] = {
	{ "status", command_status, "status", "the daemon and what it has in use" },
	{ "jobs", command_jobs, "jobs", "the jobs that you may see" },
	{ "drop", command_drop, "drop JOB", "end a job and discard its state" },
	{ "units", command_units, "units JOB", "a job's units: where they are, leases, versions" },
	{ "tiers", command_tiers, "tiers", "host memory and NVMe paths" },
	{ "plan", command_plan, "plan FLAG…", "what a model needs, and whether it fits here" },
	{ "ping", command_ping, "ping", "is the daemon there, and how fast does it answer" },
	{ "help", command_help, "help", "this" },
};

static void print_usage(FILE *stream)
{
	fputs("Usage: tierctl [--socket PATH] [--json] COMMAND\n\n", stream);
	for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
		fprintf(stream, "  %-10s  %s\n", verbs[i].usage, verbs[i].help);
	fputs("\n"
	      "  --socket PATH  of the daemon (default: $TIERD_SOCKET, $XDG_RUNTIME_DIR/tierd/tierd.sock,\n"
	      "                 /run/tierd/tierd.sock)\n"
	      "  --json         for programs\n"
	      "  --help, --version\n\n"
	      "plan --parameters 7B --world-size 8\n"
	      "  --format bf16|fp16|fp32  of the parameters (bf16)\n"
	      "  --optimizer NAME      adamw, adam, lion, momentum (SGD with it) or sgd (adamw)\n"
	      "  --stage N             only this ZeRO stage (all)\n"
	      "  --local-ranks K       ranks on this node (all)\n"
	      "  --largest-unit N      elements of the largest layer (a 32nd of the model)\n"
	      "  --micro-batches G     in a step (1)\n"
	      "  --host SIZE --nvme SIZE  free on this node (the daemon is asked)\n\n"
	      "drop JOB\n"
	      "  --user USER  the job's owner (default: you, or who else has one of that name)\n"
	      "  --force      also if ranks are attached\n"
	      "  --yes        do not ask\n\n"
	      "Exit codes: 0 done, 1 the daemon refused, 2 usage, 3 no daemon.\n",
	      stream);
}

static int command_help(const struct command_context *context, int count, char *arguments[])
{
	print_usage(stdout);
	return COMMAND_DONE;
}

static const struct verb *find_verb(const char *name)
{
	for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

/* -1: go on; else an exit code. Flags before the verb are tierctl's, what follows is the verb's. */
static int read_flags(struct command_context *context, int count, char *arguments[])
{
	static const struct option flags[] = {
		{ "socket", required_argument, NULL, 's' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	opterr = 0;
	while ((flag = getopt_long(count, arguments, "+:", flags, NULL)) != -1) {
		switch (flag) {
		case 's':
			context->socket = optarg;
			break;
		case 'j':
			context->is_json = true;
			break;
		case 'h':
			print_usage(stdout);
			return COMMAND_DONE;
		case 'v':
			puts("tierctl " TIERD_VERSION);
			return COMMAND_DONE;
		case ':':
			return command_fail(COMMAND_USAGE, "%s needs a value", arguments[optind - 1]);
		default:
			return command_fail(COMMAND_USAGE, "unknown flag %s; see tierctl --help",
					    arguments[optind - 1]);
		}
	}
	return -1;
}

/* --json is so often written last that it may stand anywhere. */
static int take_json(struct command_context *context, int count, char *arguments[])
{
	int kept = 0;

	for (int i = 0; i < count; i++)
		if (strcmp(arguments[i], "--json") == 0)
			context->is_json = true;
		else
			arguments[kept++] = arguments[i];
	arguments[kept] = NULL;
	return kept;
}

int main(int argc, char *argv[])
{
	_cleanup_free_ char *default_socket = ask_default_socket();
	struct command_context context = { .socket = default_socket };
	const struct verb *verb;
	int code, count = take_json(&context, argc, argv);

	code = read_flags(&context, count, argv);
	if (code >= 0)
		return code;
	if (!context.socket)
		return command_fail(COMMAND_FAILED, "out of memory");
	if (optind == count) {
		print_usage(stderr);
		return COMMAND_USAGE;
	}
	verb = find_verb(argv[optind]);
	if (!verb)
		return command_fail(COMMAND_USAGE, "there is no command '%s'; see tierctl help",
				    argv[optind]);
	code = verb->run(&context, count - optind, argv + optind);
	/* What did not get out was not said. */
	if (fflush(stdout) != 0 || ferror(stdout))
		return command_fail(COMMAND_FAILED, "writing the output: %s", strerror(errno));
	return code;
}
