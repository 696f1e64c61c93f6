#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "proto/socket_path.h"

static int command_help(const struct command_context *context, int count, char *arguments[]);

static const struct verb {
	const char *name;
	int (*run)(const struct command_context *context, int count, char *arguments[]);
	const char *usage, *help;
} verbs[] = {
	{ "status", command_status, "status", "the daemon and what it has in use" },
	{ "jobs", command_jobs, "jobs [JOB]", "the jobs that you may see; of one, what each rank does" },
	{ "drop", command_drop, "drop JOB", "end a job and discard its state" },
	{ "units", command_units, "units JOB", "a job's units: where they are, leases, versions" },
	{ "leases", command_leases, "leases [JOB]", "which ranks hold which units" },
	{ "evict", command_evict, "evict JOB [UNIT…]", "units that nobody holds leave host memory" },
	{ "drain", command_drain, "drain", "no new jobs, and wait until no rank has one open" },
	{ "tiers", command_tiers, "tiers", "host memory and NVMe paths" },
	{ "top", command_top, "top", "what node and jobs do now, again and again" },
	{ "watch", command_watch, "watch [JOB]", "what happens, as lines, until it is interrupted" },
	{ "metrics", command_metrics, "metrics", "figures for Prometheus" },
	{ "plan", command_plan, "plan FLAG…", "what a model needs, and whether it fits here" },
	{ "doctor", command_doctor, "doctor [FILE]",
	  "what this machine has of what tierd needs, and what it lacks" },
	{ "config", command_config, "config check [FILE]", "what tierd makes of a configuration" },
	{ "ping", command_ping, "ping", "is the daemon there, and how fast does it answer" },
	{ "help", command_help, "help", "this" },
};

static void print_usage(FILE *stream)
{
	fputs("Usage: tierctl COMMAND [--socket PATH] [--json]\n\n", stream);
	for (size_t i = 0; i < ARRAY_LENGTH(verbs); i++)
		fprintf(stream, "  %-19s  %s\n", verbs[i].usage, verbs[i].help);
	fputs("\n"
	      "  --socket PATH  of the daemon (default: $TIERD_SOCKET, $XDG_RUNTIME_DIR/tierd/tierd.sock,\n"
	      "                 /run/tierd/tierd.sock)\n"
	      "  --json         for programs\n"
	      "  --help, --version\n\n"
	      "plan --parameters 7B --world-size 8\n"
	      "  --format bf16|fp16|fp32  of the parameters (bf16)\n"
	      "  --optimizer NAME      adamw, adam, lion, momentum (SGD with it), none or sgd (adamw)\n"
	      "  --stage N             only this ZeRO stage (all)\n"
	      "  --local-ranks K       ranks on this node (all)\n"
	      "  --frozen SIZE         of tensors that are not trained (0)\n"
	      "  --largest-unit N      elements of the largest layer (a 32nd of the model)\n"
	      "  --micro-batches G     in a step (1)\n"
	      "  --host SIZE --nvme SIZE  free on this node (the daemon is asked)\n\n"
	      "top\n"
	      "  --once        one look\n"
	      "  --interval S  seconds between two (2)\n\n"
	      "watch\n"
	      "  --steps            each step that is applied or durable, too\n"
	      "  --count N          end after so many events\n"
	      "  --timeout SECONDS  end after that time\n\n"
	      "drop JOB, leases [JOB], evict JOB, watch [JOB]\n"
	      "  --user USER  the job's owner (default: you, or who else has one of that name)\n"
	      "  --force      (drop) also if ranks are attached\n"
	      "  --yes        (drop) do not ask\n\n"
	      "drain\n"
	      "  --timeout SECONDS  wait no longer (for ever)\n"
	      "  --undo             jobs may be opened again\n\n"
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

/* The value of a flag "--name VALUE" or "--name=VALUE" at arguments[*at], or NULL if it is another one. Moves
 * on to the value; "" if there is none. */
static const char *read_value(const char *name, int count, char *arguments[], int *at)
{
	size_t length = strlen(name);
	const char *text = arguments[*at];

	if (strncmp(text, name, length) != 0 || (text[length] != '\0' && text[length] != '='))
		return NULL;
	if (text[length] == '=')
		return text + length + 1;
	return *at + 1 < count ? arguments[++*at] : "";
}

/* tierctl's own flags, which may stand anywhere, are taken out of the arguments. -1: go on; else an exit
 * code. */
static int take_flags(struct command_context *context, int *count, char *arguments[])
{
	int kept = 1;

	for (int i = 1; i < *count; i++) {
		const char *socket = read_value("--socket", *count, arguments, &i);

		if (socket && !*socket)
			return command_fail(COMMAND_USAGE, "--socket needs a value");
		if (socket) {
			context->socket = socket;
		} else if (strcmp(arguments[i], "--json") == 0) {
			context->is_json = true;
		} else if (strcmp(arguments[i], "--help") == 0) {
			print_usage(stdout);
			return COMMAND_DONE;
		} else if (strcmp(arguments[i], "--version") == 0) {
			puts("tierctl " TIERD_VERSION);
			return COMMAND_DONE;
		} else {
			arguments[kept++] = arguments[i];
		}
	}
	arguments[kept] = NULL;
	*count = kept;
	return -1;
}

/* What did not get out was not said. */
static int finish(int code)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return command_fail(COMMAND_FAILED, "writing the output: %s", strerror(errno));
	return code;
}

int main(int argc, char *argv[])
{
	struct command_context context = { NULL };
	char buffer[SOCKET_PATH_SIZE];
	const struct verb *verb;
	int count = argc, code = take_flags(&context, &count, argv);

	if (code >= 0)
		return finish(code);
	context.socket = socket_path_choose(context.socket, buffer);
	if (count < 2) {
		print_usage(stderr);
		return COMMAND_USAGE;
	}
	if (argv[1][0] == '-')
		return command_fail(COMMAND_USAGE, "unknown flag %s; see tierctl --help", argv[1]);
	verb = find_verb(argv[1]);
	if (!verb)
		return command_fail(COMMAND_USAGE, "there is no command '%s'; see tierctl help", argv[1]);
	return finish(verb->run(&context, count - 1, argv + 1));
}
