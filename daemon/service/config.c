#include "daemon/service/config.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/model/model.h"
#include "daemon/service/config_defaults.h"
#include "daemon/service/config_options.h"
#include "daemon/service/config_values.h"

/* What getopt returns for the flags that are no keys of the file, and for those that are. */
enum flag { FLAG_HELP = 1, FLAG_VERSION, FLAG_PLAN, FLAG_CHECK, FLAG_CONFIG, FLAG_OPTION };

#define MAX_FLAGS (CONFIG_MAX_OPTIONS + 8)

static const struct config built_in = {
	.log_level = LOG_LEVEL_INFO,
	.idle_release_seconds = 600,
	.scrub_days = 30,
	.queue_depth = 32,
	.background_bytes = 4 * MIB,
	.gpu_exchange_seconds = NODE_GPU_EXCHANGE_SECONDS,
	.connections = 256,
	.connections_per_user = 16,
	.requests_per_connection = 64,
	.output_queue = 4 * MIB,
	.frame_size = FRAME_MAX_BYTES,
	.jobs_per_user = QUOTA_JOBS_PER_USER,
	.units_per_job = CATALOG_MAX_UNITS,
	.tensors_per_job = CATALOG_MAX_TENSORS,
	.job_name_length = WIRE_MAX_JOB_NAME,
	.name_length = WIRE_MAX_NAME,
	.dimensions_per_tensor = WIRE_MAX_DIMENSIONS,
	.first_frame_seconds = 5,
	.frame_seconds = 10,
};

int config_fail(struct config_problem *problem, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(problem->text, sizeof(problem->text), format, arguments);
	va_end(arguments);
	return r;
}

/* The index in getopt's list is that in config_options, with the others behind. */
static void list_flags(struct option flags[MAX_FLAGS])
{
	static const struct option others[] = {
		{ "help", no_argument, NULL, FLAG_HELP },
		{ "version", no_argument, NULL, FLAG_VERSION },
		{ "plan", no_argument, NULL, FLAG_PLAN },
		{ "check-config", no_argument, NULL, FLAG_CHECK },
		{ "config", required_argument, NULL, FLAG_CONFIG },
		{ NULL, 0, NULL, 0 },
	};

	for (unsigned i = 0; i < config_option_count; i++)
		flags[i] = (struct option){ config_options[i].flag, required_argument, NULL, FLAG_OPTION };
	memcpy(flags + config_option_count, others, sizeof(others));
}

static void clear_paths(struct config *config)
{
	while (config->path_count > 0)
		free(config->paths[--config->path_count].path);
}

/* What flags say replaces what the file says; the first of them clears the place. */
static void make_place(struct config *config, enum config_kind kind, bool has_been[])
{
	if (has_been[kind])
		return;
	has_been[kind] = true;
	if (kind == CONFIG_PATHS)
		clear_paths(config);
	if (kind == CONFIG_LIMITS)
		limit_list_clear(&config->limits);
}

static int set_flag(struct config *config, const struct config_option *option, const char *value,
		    struct config_problem *problem)
{
	char allowed[256];
	int r = config_option_set(config, option, value);

	if (r == 0)
		return 0;
	config_option_describe(option, allowed, sizeof(allowed));
	return config_fail(problem, r, "--%s '%s' is not allowed; it takes %s", option->flag, value, allowed);
}

/* The first time around only the action and the file are of interest. */
static int read_flags(struct config *config, bool is_first, int argc, char *const argv[],
		      struct config_problem *problem)
{
	static const enum config_action actions[] = { [FLAG_HELP] = CONFIG_HELP,
						      [FLAG_VERSION] = CONFIG_VERSION,
						      [FLAG_PLAN] = CONFIG_PLAN,
						      [FLAG_CHECK] = CONFIG_CHECK };
	struct option flags[MAX_FLAGS];
	bool has_been[CONFIG_KINDS] = { false };
	int flag, index, r = 0;

	_Static_assert(FLAG_OPTION < '?', "getopt's own answer stays apart");
	list_flags(flags);
	optind = 0;
	opterr = 0;
	while (r == 0 && (flag = getopt_long(argc, argv, ":", flags, &index)) != -1) {
		if (flag == ':')
			return config_fail(problem, -EINVAL, "%s needs a value", argv[optind - 1]);
		if (flag == '?')
			return config_fail(problem, -EINVAL, "unknown flag %s; see tierd --help",
					   argv[optind - 1]);
		if (flag == FLAG_OPTION && !is_first) {
			make_place(config, config_options[index].kind, has_been);
			r = set_flag(config, &config_options[index], optarg, problem);
		} else if (flag <= FLAG_CHECK) {
			config->action = actions[flag];
			if (flag != FLAG_CHECK)
				return 0;
		} else if (flag == FLAG_CONFIG && is_first) {
			free(config->file);
			config->file = strdup(optarg);
			r = config->file ? 0 : -ENOMEM;
		}
	}
	if (r == 0 && optind < argc)
		return config_fail(problem, -EINVAL, "'%s' is not a flag; see tierd --help", argv[optind]);
	return r;
}

static int read_file(struct config *config, struct config_problem *problem)
{
	FILE *stream;
	int r;

	if (!config->file) {
		r = config_default_file(&config->file);
		if (r < 0)
			return r == -ENOENT ? 0 : r;
	}
	stream = fopen(config->file, "re");
	if (!stream)
		return config_fail(problem, -errno, "%s: %s", config->file, strerror(errno));
	r = config_read(config, stream, config->file, problem);
	fclose(stream);
	return r;
}

int config_fill(struct config *config, struct config_problem *problem)
{
	int r = 0;

	if (config->host_budget == 0)
		config->host_budget = config_default_host_budget();
	if (config->workers == 0)
		config->workers = config_default_workers();
	if (!config->socket)
		r = config_default_socket(&config->socket);
	if (r == -ENOENT)
		return config_fail(problem, -EINVAL,
				   "no place for the socket: $XDG_RUNTIME_DIR is not set; give --socket");
	if (r == 0 && !config->state_directory)
		r = config_default_state_directory(&config->state_directory);
	if (r == -ENOENT)
		return config_fail(problem, -EINVAL,
				   "no place for the daemon's files: $HOME is not set; give --state-dir");
	return r;
}

static int config_load(struct config *config, int argc, char *const argv[], struct config_problem *problem)
{
	int r = read_flags(config, true, argc, argv, problem);

	if (r < 0 || config->action >= CONFIG_PLAN)
		return r;
	r = read_file(config, problem);
	if (r == 0)
		r = read_flags(config, false, argc, argv, problem);
	if (r == 0)
		r = config_fill(config, problem);
	if (r == 0)
		r = config_check(config, problem);
	return r;
}

int config_new(int argc, char *const argv[], struct config **ret_config, struct config_problem *problem)
{
	_cleanup_(config_freep) struct config *config = malloc(sizeof(*config));
	int r;

	config_fail(problem, 0, "out of memory");
	if (!config)
		return -ENOMEM;
	*config = built_in;
	r = config_load(config, argc, argv, problem);
	if (r < 0)
		return r;
	*ret_config = TAKE_PTR(config);
	return 0;
}

struct config *config_free(struct config *config)
{
	if (!config)
		return NULL;
	clear_paths(config);
	free(config->file);
	free(config->socket);
	free(config->state_directory);
	principal_list_clear(&config->administrators);
	limit_list_clear(&config->limits);
	free(config->fault);
	free(config);
	return NULL;
}

void config_print(const struct config *config, FILE *stream)
{
	const char *section = "";

	for (unsigned i = 0; i < config_option_count; i++) {
		const struct config_option *option = &config_options[i];
		unsigned values = config_option_values(config, option);

		if (!option->help && values == 0)
			continue;
		if (strcmp(section, option->section) != 0)
			fprintf(stream, "%s[%s]\n", *section ? "\n" : "", option->section);
		section = option->section;
		for (unsigned k = 0; k < values; k++) {
			fprintf(stream, "%s = ", option->key);
			config_option_print(config, option, k, stream);
			fputc('\n', stream);
		}
	}
}

void config_print_help(FILE *stream)
{
	char flag[64];

	fputs("Usage: tierd [FLAG…]\n"
	      "Keeps the training state of this node's jobs in host memory and on NVMe.\n\n",
	      stream);
	for (unsigned i = 0; i < config_option_count; i++) {
		const struct config_option *option = &config_options[i];

		if (!option->help)
			continue;
		snprintf(flag, sizeof(flag), "--%s %s", option->flag, option->argument);
		fprintf(stream, "  %-30s %s\n", flag, option->help);
	}
	fputs("  --config FILE                  the configuration (default: " CONFIG_SYSTEM_FILE ";\n"
	      "                                 of a plain user ~/.config/tierd/tierd.conf)\n"
	      "  --check-config                 check the configuration, print what is in effect\n"
	      "  --plan                         say what jobs would take, to tierctl plan, which asks\n"
	      "  --help, --version\n\n"
	      "Flags win over the file. Sizes take K, M, G or T. See tierd(8) and tierd.conf(5).\n",
	      stream);
}
