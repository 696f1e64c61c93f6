/* Fuzzes what reads single words: sizes, counts, paths, users, limits, faults, what a plan counts,
 * and the environment of a rank. The first byte says which; any text gives a value, which says the same when
 * it is printed and read again, or an error. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierctl/plan.h"
#include "daemon/service/config_values.h"
#include "daemon/service/limit.h"
#include "daemon/service/principal.h"
#include "examples/gpt/environment.h"
#include "offload/device/fault.h"
#include "proto/name.h"
#include "proto/socket_path.h"
#include "proto/statistics.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void read_size(const char *text)
{
	char printed[CONFIG_SIZE_TEXT];
	uint64_t size, again;

	if (config_parse_size(text, &size) < 0)
		return;
	config_format_size(size, printed);
	assert(config_parse_size(printed, &again) == 0 && again == size);
}

static void read_count(const char *text)
{
	unsigned count;
	int r = config_parse_count(text, &count);

	assert(r == 0 || r == -EINVAL || r == -ERANGE);
}

static void read_path(const char *text)
{
	uint64_t capacity, endurance;
	char *path;

	if (config_parse_path(text, &path, &capacity, &endurance) < 0)
		return;
	assert(*path && strlen(path) < strlen(text));
	free(path);
}

static void read_who(const char *text)
{
	struct principal_list list = { 0 };

	principal_list_set(&list, text);
	principal_list_clear(&list);
}

static void read_limit(const char *text)
{
	struct limit_list list = { 0 };

	if (limit_list_add(&list, text) == 0)
		assert(list.count == 1 && strcmp(list.entries[0].text, text) == 0);
	limit_list_clear(&list);
}

static void read_fault(const char *text)
{
	struct fault_config fault;

	if (fault_config_parse(text, &fault) == 0)
		assert(fault.kind <= FAULT_KILL_AFTER && fault.error >= 0);
}

static void read_plan(const char *text)
{
	uint32_t durability = 0;
	uint64_t number;

	plan_parse_count(text, &number);
	plan_parse_bytes(text, &number);
	plan_find_optimizer(text);
	plan_parse_durability(text, &durability);
}

/* A line for each variable. */
static void read_environment(const char *text)
{
	static const char *const names[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
					     "TORCHELASTIC_RESTART_COUNT" };
	char *copy = strdup(text), *rest = copy;
	struct environment environment;

	for (size_t i = 0; i < ARRAY_LENGTH(names); i++) {
		const char *value = rest ? strsep(&rest, "\n") : NULL;

		if (value)
			setenv(names[i], value, 1);
		else
			unsetenv(names[i]);
	}
	if (environment_read(&environment) == 0 && environment.is_rank)
		assert(environment.rank < environment.world_size && environment.world_size <= 1024);
	free(copy);
}

static void read_socket(const char *text)
{
	char buffer[SOCKET_PATH_SIZE], file[STATISTICS_FILE_SIZE];
	const char *path;

	setenv("TIERD_SOCKET", text, 1);
	path = socket_path_choose(NULL, buffer);
	assert(*text ? strcmp(path, text) == 0 : *path == '/');
	statistics_file(path, file);
}

static void read_name(const char *text)
{
	char *copy = strdup(text);

	name_make_printable(copy);
	/* Cutting never makes a whole character into half of one. */
	if (name_check(text, 128) == 0) {
		copy[name_fit(text, 40)] = '\0';
		assert(*copy == '\0' || name_check(copy, 128) == 0);
	}
	free(copy);
}

static void (*const readers[])(const char *text) = { read_size,	 read_count, read_path,	       read_who,
						     read_limit, read_fault, read_environment, read_plan,
						     read_name,	 read_socket };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	char *text;

	if (length == 0)
		return 0;
	text = strndup((const char *)bytes + 1, length - 1);
	assert(text);
	readers[bytes[0] % ARRAY_LENGTH(readers)](text);
	free(text);
	return 0;
}
