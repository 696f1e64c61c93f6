#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/service/config.h"
#include "daemon/service/config_defaults.h"
#include "daemon/service/config_values.h"
#include "tests/unit/test.h"

static struct config_problem problem;

static int read_text(struct config *config, const char *text)
{
	FILE *stream = fmemopen((char *)text, strlen(text), "r");
	int r = config_read(config, stream, "tierd.conf", &problem);

	fclose(stream);
	return r;
}

/* Frees what config_read() has set in a config that is not from config_new(). */
static struct config *make_config(void)
{
	return calloc(1, sizeof(struct config));
}

static void assert_refused(const char *text, int line, const char *part)
{
	_cleanup_(config_freep) struct config *config = make_config();
	char place[32];

	snprintf(place, sizeof(place), "tierd.conf:%d: ", line);
	problem.text[0] = '\0';
	assert_int_equal(read_text(config, text), -EINVAL);
	if (strncmp(problem.text, place, strlen(place)) != 0 || !strstr(problem.text, part))
		fail_msg("\"%s\" should begin with \"%s\" and contain \"%s\"", problem.text, place, part);
}

/* ---- Values ---- */

static void sizes_have_suffixes_of_powers_of_two(void **state)
{
	static const struct {
		const char *text;
		uint64_t size;
	} sizes[] = {
		{ "0", 0 },
		{ "1", 1 },
		{ "4096", 4096 },
		{ "1K", KIB },
		{ "3M", 3 * MIB },
		{ "8G", 8 * GIB },
		{ "2T", 2048 * GIB },
		{ "16777215T", 16777215 * (1024 * GIB) },
		{ "007", 7 },
		{ "8g", 8 * GIB },
		{ "18446744073709551615", UINT64_MAX },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
		uint64_t size = 1234;

		assert_int_equal(config_parse_size(sizes[i].text, &size), 0);
		assert_int_equal(size, sizes[i].size);
	}
}

static void sizes_that_are_none_are_refused_and_leave_the_output(void **state)
{
	static const char *const wrong[] = { "",   "K",	   "8GiB", "8GB", "8 G", "-1",
					     "+1", "0x10", "1.5G", "G8",  " 8" };
	uint64_t size = 77;

	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
		assert_int_equal(config_parse_size(wrong[i], &size), -EINVAL);
	assert_int_equal(config_parse_size("18446744073709551616", &size), -ERANGE);
	assert_int_equal(config_parse_size("16777216T", &size), -ERANGE);
	assert_int_equal(config_parse_size("99999999999999999999999999", &size), -ERANGE);
	assert_int_equal(size, 77);
}

static void sizes_are_written_as_they_are_read(void **state)
{
	static const uint64_t sizes[] = { 0,	   1,	       1023,	  1024, 1025, MIB, 3 * MIB + KIB,
					  5 * GIB, 2048 * GIB, UINT64_MAX };

	for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
		char text[CONFIG_SIZE_TEXT];
		uint64_t size;

		config_format_size(sizes[i], text);
		assert_int_equal(config_parse_size(text, &size), 0);
		assert_int_equal(size, sizes[i]);
	}
}

static void counts_are_digits_only(void **state)
{
	unsigned count = 5;

	assert_int_equal(config_parse_count("4294967295", &count), 0);
	assert_int_equal(count, UINT32_MAX);
	assert_int_equal(config_parse_count("4294967296", &count), -ERANGE);
	assert_int_equal(config_parse_count("1K", &count), -EINVAL);
	assert_int_equal(config_parse_count("", &count), -EINVAL);
	assert_int_equal(config_parse_count("-1", &count), -EINVAL);
	assert_int_equal(count, UINT32_MAX);
}

static void a_path_is_split_at_its_last_colon(void **state)
{
	static const char *const wrong[] = {
		"/mnt/a",	":100G",	 "/mnt/a:",	      "/mnt/a:lots",	 "/mnt/a:100G,",
		"/mnt/a:,600T", "/mnt/a:100G,0", "/mnt/a:100G,600T,", "/mnt/a:100G,ever"
	};
	_cleanup_free_ char *path = NULL, *other = NULL;
	uint64_t capacity, endurance;

	assert_int_equal(config_parse_path("/mnt/a:b:100G", &path, &capacity, &endurance), 0);
	assert_string_equal(path, "/mnt/a:b");
	assert_int_equal(capacity, 100 * GIB);
	assert_int_equal(endurance, 0);
	assert_int_equal(config_parse_path("/mnt/a,b:100G,600T", &other, &capacity, &endurance), 0);
	assert_string_equal(other, "/mnt/a,b");
	assert_int_equal(capacity, 100 * GIB);
	assert_int_equal(endurance, 600 * 1024 * GIB);
	for (size_t i = 0; i < ARRAY_LENGTH(wrong); i++)
		assert_int_equal(config_parse_path(wrong[i], &path, &capacity, &endurance), -EINVAL);
}

/* ---- Files ---- */

static void every_key_is_read(void **state)
{
	_cleanup_(config_freep) struct config *config = make_config();

	assert_int_equal(read_text(config,
				   "# a comment\n"
				   "[daemon]\n"
				   "socket = /run/x.sock\n"
				   "state_directory=/var/x\n"
				   "  log_level = debug  ; not indented by intent\n"
				   "workers = 3\n"
				   "\n"
				   "[memory]\n"
				   "host_budget = 8G\n"
				   "idle_release_seconds = 77\n"
				   "[nvme]\r\n"
				   "path = /mnt/a:1T\r\n"
				   "path = /mnt/b:512G,600T\n"
				   "file_system = any\n"
				   "durability = 45\n"
				   "scrub_days = 7\n"
				   "endurance = 1200T\n"
				   "[io]\n"
				   "engine = plain\n"
				   "queue_depth = 64\n"
				   "background_bytes = 16M\n"
				   "direct = off\n"
				   "[gpu]\n"
				   "exchange = never\n"
				   "exchange_seconds = 18\n"
				   "sums = always\n"
				   "[users]\n"
				   "administrators = root, @0 77\n"
				   "limit = root host_maximum=2G nvme_default=3M\n"
				   "limit = @77\thost_default=4M  nvme_maximum=1T\n"
				   "limit = * host_maximum=1M snapshots_default=0 snapshots_maximum=14 "
				   "io_share=10000 io_weight_maximum=1\n"
				   "[limits]\n"
				   "connections = 10\n"
				   "connections_per_user = 9\n"
				   "requests_per_connection = 17\n"
				   "output_queue = 2M\n"
				   "frame_size = 128K\n"
				   "jobs_per_user = 13\n"
				   "units_per_job = 14\n"
				   "tensors_per_job = 15\n"
				   "job_name_length = 16\n"
				   "name_length = 17\n"
				   "dimensions_per_tensor = 3\n"
				   "first_frame_seconds = 12\n"
				   "frame_seconds = 13\n"
				   "[testing]\n"
				   "fault = complete:write:3:EIO"),
			 0);
	assert_string_equal(config->socket, "/run/x.sock");
	assert_string_equal(config->state_directory, "/var/x");
	assert_int_equal(config->log_level, LOG_LEVEL_DEBUG);
	assert_int_equal(config->workers, 3);
	assert_int_equal(config->host_budget, 8 * GIB);
	assert_int_equal(config->idle_release_seconds, 77);
	assert_int_equal(config->scrub_days, 7);
	assert_int_equal(config->endurance, 1200 * 1024 * GIB);
	assert_int_equal(config->path_count, 2);
	assert_string_equal(config->paths[1].path, "/mnt/b");
	assert_int_equal(config->paths[1].capacity, 512 * GIB);
	assert_int_equal(config->paths[0].endurance, 0);
	assert_int_equal(config->paths[1].endurance, 600 * 1024 * GIB);
	assert_int_equal(config->file_system, CONFIG_FILE_SYSTEM_ANY);
	assert_int_equal(config->durability, 45);
	assert_int_equal(config->io_engine, CONFIG_ENGINE_PLAIN);
	assert_int_equal(config->queue_depth, 64);
	assert_int_equal(config->background_bytes, 16 * MIB);
	assert_int_equal(config->direct_io, CONFIG_DIRECT_OFF);
	assert_int_equal(config->gpu_exchange, GPU_EXCHANGE_NEVER);
	assert_int_equal(config->gpu_exchange_seconds, 18);
	assert_int_equal(config->gpu_sums, GPU_SUMS_ALWAYS);
	assert_int_equal(config->limits.count, 3);
	assert_int_equal(config->limits.entries[0].principal.kind, PRINCIPAL_USER);
	assert_int_equal(config->limits.entries[0].quota.host_maximum, 2 * GIB);
	assert_int_equal(config->limits.entries[0].quota.nvme_default, 3 * MIB);
	assert_int_equal(config->limits.entries[0].quota.host_default, 0);
	assert_int_equal(config->limits.entries[1].principal.id, 77);
	assert_int_equal(config->limits.entries[1].quota.nvme_maximum, 1024 * GIB);
	assert_int_equal(config->limits.entries[2].principal.kind, PRINCIPAL_EVERYONE);
	/* Nothing is said, and none. */
	assert_int_equal(config->limits.entries[1].quota.snapshots_default, 0);
	assert_int_equal(config->limits.entries[2].quota.snapshots_default, 1);
	assert_int_equal(config->limits.entries[2].quota.snapshots_maximum, 15);
	assert_int_equal(config->limits.entries[1].quota.io_share, 0);
	assert_int_equal(config->limits.entries[2].quota.io_share, 10000);
	assert_int_equal(config->limits.entries[2].quota.io_weight_maximum, 1);
	assert_int_equal(config->administrators.count, 3);
	assert_int_equal(config->administrators.entries[0].kind, PRINCIPAL_USER);
	assert_int_equal(config->administrators.entries[0].id, 0);
	assert_int_equal(config->administrators.entries[1].kind, PRINCIPAL_GROUP);
	assert_int_equal(config->administrators.entries[2].id, 77);
	assert_int_equal(config->connections, 10);
	assert_int_equal(config->connections_per_user, 9);
	assert_int_equal(config->requests_per_connection, 17);
	assert_int_equal(config->output_queue, 2 * MIB);
	assert_int_equal(config->frame_size, 128 * 1024);
	assert_int_equal(config->jobs_per_user, 13);
	assert_int_equal(config->units_per_job, 14);
	assert_int_equal(config->tensors_per_job, 15);
	assert_int_equal(config->job_name_length, 16);
	assert_int_equal(config->name_length, 17);
	assert_int_equal(config->dimensions_per_tensor, 3);
	assert_int_equal(config->first_frame_seconds, 12);
	assert_int_equal(config->frame_seconds, 13);
	assert_string_equal(config->fault, "complete:write:3:EIO");
}

static void problems_name_file_line_key_value_and_what_is_allowed(void **state)
{
	static const char *const limits[] = { "",
					      "root",
					      "* ",
					      "no-such-user host_maximum=1G",
					      "root host_maximum",
					      "root host_maximum=1Q",
					      "root host_maximum=1K",
					      "root maximum=1G",
					      "root host_maximum=1G host_maximum=2G",
					      "root host_maximum=0",
					      "root snapshots_maximum=15",
					      "root snapshots_default=1K",
					      "root snapshots_default=",
					      "root snapshots_default=0 snapshots_default=0",
					      "root io_share=0",
					      "root io_share=10001",
					      "root io_weight_maximum=1M" };

	assert_refused("[memory]\n\nhost_budget = 8Q\n", 3, "host_budget = '8Q' in [memory]");
	assert_refused("[memory]\nhost_budget = 8Q\n", 2, "a size from 1M to 1024T");
	assert_refused("[memory]\nhost_budget = 1K\n", 2, "a size from 1M");
	assert_refused("[memory]\nhost_budget = 99999999T\n", 2, "'99999999T'");
	assert_refused("[daemon]\nworkers = 0\n", 2, "a number from 1 to 1024");
	assert_refused("[limits]\njob_name_length = 64\n", 2, "a number from 1 to 63");
	assert_refused("[limits]\nname_length = 129\n", 2, "a number from 1 to 128");
	assert_refused("[limits]\ndimensions_per_tensor = 9\n", 2, "a number from 1 to 8");
	assert_refused("[daemon]\nlog_level = loud\n", 2, "one of error, warning, info, debug");
	assert_refused("[daemon]\nsocket =\n", 2, "not empty");
	assert_refused("[nvme]\npath = /mnt\n", 2, "FOLDER:SIZE");
	assert_refused("[users]\nadministrators = root, no-such-user\n", 2, "users and @groups that exist");
	assert_refused("[users]\nadministrators = @no-such-group\n", 2, "users and @groups that exist");
	for (unsigned i = 0; i < ARRAY_LENGTH(limits); i++) {
		char text[128];

		snprintf(text, sizeof(text), "[users]\nlimit = %s\n", limits[i]);
		assert_refused(text, 2, "host_default, host_maximum, nvme_default or nvme_maximum");
		assert_refused(text, 2, "snapshots_default or snapshots_maximum with a number from 0 to 14");
	}
	assert_refused("[users]\nadministrators = *\n", 2, "users and @groups that exist");
	assert_refused("[users]\nadministrators = @\n", 2, "users and @groups that exist");
	assert_refused("[users]\nadministrators = 4294967295\n", 2, "users and @groups that exist");
	assert_refused("[io]\nengine = fast\n", 2, "one of auto, io_uring, plain");
}

static void the_first_problem_counts(void **state)
{
	assert_refused("[daemon]\nworkers = x\nlog_level = y\n", 2, "workers");
}

static void unknown_keys_and_sections_are_problems(void **state)
{
	assert_refused("[daemon]\nworker = 3\n", 2, "unknown key 'worker' in [daemon]; it has socket");
	assert_refused("[demon]\nworkers = 3\n", 2, "unknown section [demon]");
	assert_refused("workers = 3\n", 1, "'workers' stands before the first [section]");
	assert_refused("[daemon]\nworkers\n", 2, "neither");
	assert_refused("[daemon\nworkers = 3\n", 1, "neither");
}

static void lines_that_are_too_long_and_files_that_are_no_text_are_refused(void **state)
{
	char text[8192];
	FILE *stream = fmemopen((char *)"[daemon]\nsocket = a\0b\n", 22, "r");
	_cleanup_(config_freep) struct config *config = make_config();

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memcpy(text, "[daemon]\nsocket = /", 19);
	assert_refused(text, 2, "longer than");

	assert_int_equal(config_read(config, stream, "tierd.conf", &problem), -EINVAL);
	assert_non_null(strstr(problem.text, "not a text"));
	fclose(stream);
}

static void paths_may_be_as_long_as_those_of_linux(void **state)
{
	static char text[8192], path[PATH_MAX];
	_cleanup_(config_freep) struct config *config = make_config();
	FILE *stream;

	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	snprintf(text, sizeof(text), "[nvme]\npath = %s:1G # a comment\n", path);
	stream = fmemopen(text, strlen(text), "r");
	assert_int_equal(config_read(config, stream, "tierd.conf", &problem), 0);
	fclose(stream);
	assert_int_equal(config->path_count, 1);
	assert_string_equal(config->paths[0].path, path);
}

static void more_paths_than_there_is_place_for_are_refused(void **state)
{
	char text[1024] = "[nvme]\n";

	for (int i = 0; i <= CONFIG_MAX_PATHS; i++)
		strcat(text, "path = /mnt:1G\n");
	assert_refused(text, CONFIG_MAX_PATHS + 2, "at most 16");
}

/* ---- Flags ---- */

struct scratch {
	char folder[64], file[96], nvme[96], nvme_flag[112], other_flag[80];
};

static int setup(void **state)
{
	struct scratch *scratch = calloc(1, sizeof(*scratch));
	FILE *file;

	strcpy(scratch->folder, "/tmp/tierd-config-XXXXXX");
	assert_non_null(mkdtemp(scratch->folder));
	snprintf(scratch->file, sizeof(scratch->file), "%s/tierd.conf", scratch->folder);
	snprintf(scratch->nvme, sizeof(scratch->nvme), "%s/nvme", scratch->folder);
	snprintf(scratch->nvme_flag, sizeof(scratch->nvme_flag), "%s:3G", scratch->nvme);
	snprintf(scratch->other_flag, sizeof(scratch->other_flag), "%s:4G", scratch->folder);
	assert_int_equal(mkdir(scratch->nvme, 0700), 0);
	file = fopen(scratch->file, "w");
	fprintf(file, "[daemon]\nworkers = 7\nsocket = /a\n[nvme]\npath = %s:1G\n", scratch->nvme);
	fclose(file);
	*state = scratch;
	return 0;
}

static int teardown(void **state)
{
	struct scratch *scratch = *state;

	unlink(scratch->file);
	rmdir(scratch->nvme);
	rmdir(scratch->folder);
	free(scratch);
	return 0;
}

static int load(struct config **ret_config, char *const *arguments)
{
	int count = 0;

	while (arguments[count])
		count++;
	problem.text[0] = '\0';
	return config_new(count, arguments, ret_config, &problem);
}

#define LOAD(config, ...) load(config, (char *const[]){ (char *)"tierd", __VA_ARGS__, NULL })
#define FLAG(text) ((char *)(text))

static void flags_win_over_the_file_and_the_rest_has_defaults(void **state)
{
	struct scratch *scratch = *state;
	_cleanup_(config_freep) struct config *config = NULL;

	assert_int_equal(LOAD(&config, FLAG("--socket"), FLAG("/b"), FLAG("--config"), scratch->file), 0);
	assert_int_equal(config->action, CONFIG_RUN);
	assert_string_equal(config->socket, "/b");
	assert_int_equal(config->workers, 7);
	assert_int_equal(config->path_count, 1);
	assert_int_equal(config->connections, 256);
	assert_int_equal(config->connections_per_user, 16);
	assert_int_equal(config->host_budget, config_default_host_budget());
	assert_non_null(config->state_directory);
}

static void paths_from_flags_replace_those_of_the_file(void **state)
{
	struct scratch *scratch = *state;
	_cleanup_(config_freep) struct config *config = NULL;

	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("--nvme"), scratch->nvme_flag,
			      FLAG("--nvme"), scratch->other_flag),
			 0);
	assert_int_equal(config->path_count, 2);
	assert_string_equal(config->paths[0].path, scratch->nvme);
	assert_int_equal(config->paths[0].capacity, 3 * GIB);
	assert_string_equal(config->paths[1].path, scratch->folder);
}

static void wrong_flags_are_named(void **state)
{
	struct scratch *scratch = *state;
	struct config *config = NULL;

	assert_int_equal(LOAD(&config, FLAG("--workerz"), FLAG("3")), -EINVAL);
	assert_non_null(strstr(problem.text, "--workerz"));
	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("--workers"), FLAG("many")),
			 -EINVAL);
	assert_non_null(strstr(problem.text, "--workers 'many'"));
	assert_int_equal(LOAD(&config, FLAG("--workers")), -EINVAL);
	assert_non_null(strstr(problem.text, "needs a value"));
	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("surplus")), -EINVAL);
	assert_non_null(strstr(problem.text, "surplus"));
	assert_int_equal(LOAD(&config, FLAG("--config"), FLAG("/does/not/exist")), -ENOENT);
	assert_non_null(strstr(problem.text, "/does/not/exist"));
	assert_null(config);
}

static void paths_must_be_folders_and_different(void **state)
{
	struct scratch *scratch = *state;
	struct config *config = NULL;
	char missing[128], same[128], file[128];

	snprintf(missing, sizeof(missing), "%s/missing:1G", scratch->folder);
	snprintf(same, sizeof(same), "%s/../nvme:1G", scratch->nvme);
	snprintf(file, sizeof(file), "%s:1G", scratch->file);
	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("--nvme"), missing), -EINVAL);
	assert_non_null(strstr(problem.text, "missing: No such file"));
	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("--nvme"), file), -EINVAL);
	assert_non_null(strstr(problem.text, "not a folder"));
	assert_int_equal(LOAD(&config, FLAG("--config"), scratch->file, FLAG("--nvme"), scratch->nvme_flag,
			      FLAG("--nvme"), same),
			 -EINVAL);
	assert_non_null(strstr(problem.text, "same folder"));
	assert_null(config);
}

static void help_and_version_need_no_file(void **state)
{
	_cleanup_(config_freep) struct config *help = NULL, *version = NULL;

	assert_int_equal(LOAD(&help, FLAG("--config"), FLAG("/does/not/exist"), FLAG("--help")), 0);
	assert_int_equal(help->action, CONFIG_HELP);
	assert_int_equal(LOAD(&version, FLAG("--version"), FLAG("--unknown")), 0);
	assert_int_equal(version->action, CONFIG_VERSION);
}

static void what_is_printed_can_be_read_back(void **state)
{
	struct scratch *scratch = *state;
	_cleanup_(config_freep) struct config *first = NULL, *second = make_config();
	char text[4096] = "", again[4096] = "";
	FILE *stream;

	assert_int_equal(LOAD(&first, FLAG("--config"), scratch->file, FLAG("--log-level"), FLAG("warning"),
			      FLAG("--output-queue"), FLAG("3M"), FLAG("--fault"), FLAG("submit:read:1:EIO")),
			 0);
	first->paths[0].endurance = 7 * GIB;
	stream = fmemopen(text, sizeof(text), "w");
	config_print(first, stream);
	fclose(stream);
	assert_int_equal(read_text(second, text), 0);
	stream = fmemopen(again, sizeof(again), "w");
	config_print(second, stream);
	fclose(stream);
	assert_string_equal(text, again);
	assert_non_null(strstr(text, "output_queue = 3M"));
	assert_non_null(strstr(text, "fault = submit:read:1:EIO"));
	assert_non_null(strstr(text, scratch->nvme));
	assert_int_equal(second->paths[0].endurance, 7 * GIB);
}

#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_have_suffixes_of_powers_of_two),
		cmocka_unit_test(sizes_that_are_none_are_refused_and_leave_the_output),
		cmocka_unit_test(sizes_are_written_as_they_are_read),
		cmocka_unit_test(counts_are_digits_only),
		cmocka_unit_test(a_path_is_split_at_its_last_colon),
		cmocka_unit_test(every_key_is_read),
		cmocka_unit_test(problems_name_file_line_key_value_and_what_is_allowed),
		cmocka_unit_test(the_first_problem_counts),
		cmocka_unit_test(unknown_keys_and_sections_are_problems),
		cmocka_unit_test(lines_that_are_too_long_and_files_that_are_no_text_are_refused),
		cmocka_unit_test(paths_may_be_as_long_as_those_of_linux),
		cmocka_unit_test(more_paths_than_there_is_place_for_are_refused),
		FILE_TEST(flags_win_over_the_file_and_the_rest_has_defaults),
		FILE_TEST(paths_from_flags_replace_those_of_the_file),
		FILE_TEST(wrong_flags_are_named),
		FILE_TEST(paths_must_be_folders_and_different),
		FILE_TEST(help_and_version_need_no_file),
		FILE_TEST(what_is_printed_can_be_read_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
