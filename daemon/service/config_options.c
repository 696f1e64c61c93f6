#include "daemon/service/config_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/model/model.h"
#include "daemon/service/config_values.h"
#include "offload/device/schedule.h"

static const struct config_choice log_levels[] = {
	{ "error", LOG_LEVEL_ERROR },
	{ "warning", LOG_LEVEL_WARNING },
	{ "info", LOG_LEVEL_INFO },
	{ "debug", LOG_LEVEL_DEBUG },
	{ NULL, 0 },
};

static const struct config_choice engines[] = {
	{ "auto", CONFIG_ENGINE_AUTO },
	{ "io_uring", CONFIG_ENGINE_IO_URING },
	{ "plain", CONFIG_ENGINE_PLAIN },
	{ NULL, 0 },
};

static const struct config_choice file_systems[] = {
	{ "reserving", CONFIG_FILE_SYSTEM_RESERVING },
	{ "any", CONFIG_FILE_SYSTEM_ANY },
	{ "memory", CONFIG_FILE_SYSTEM_MEMORY },
	{ NULL, 0 },
};

static const struct config_choice direct_modes[] = {
	{ "auto", CONFIG_DIRECT_AUTO },
	{ "off", CONFIG_DIRECT_OFF },
	{ NULL, 0 },
};

static const struct config_choice durabilities[] = {
	{ "auto", DURABILITY_DEFAULT },
	{ "step", DURABILITY_STEP },
	{ "none", DURABILITY_NONE },
	{ NULL, 0 },
};

static const struct config_choice exchanges[] = {
	{ "auto", GPU_EXCHANGE_AUTO },
	{ "always", GPU_EXCHANGE_ALWAYS },
	{ "never", GPU_EXCHANGE_NEVER },
	{ NULL, 0 },
};

static const struct config_choice sums[] = {
	{ "never", GPU_SUMS_NEVER },
	{ "auto", GPU_SUMS_AUTO },
	{ "always", GPU_SUMS_ALWAYS },
	{ NULL, 0 },
};

#define MAX_ENDURANCE (1024 * 1024 * TIB)
#define PLACE(member) offsetof(struct config, member), sizeof(((struct config *)NULL)->member)

const struct config_option config_options[] = {
	{ "daemon", "socket", "socket", "PATH", "where clients connect", CONFIG_TEXT, PLACE(socket) },
	{ "daemon", "state_directory", "state-dir", "DIR", "the daemon's own files", CONFIG_TEXT,
	  PLACE(state_directory) },
	{ "daemon", "log_level", "log-level", "LEVEL", "error, warning, info or debug", CONFIG_CHOICE,
	  PLACE(log_level), .choices = log_levels, .is_live = true },
	{ "daemon", "workers", "workers", "N", "threads for the optimizer, reduction and checksums",
	  CONFIG_COUNT, PLACE(workers), 1, 1024 },
	{ "memory", "host_budget", "host-budget", "SIZE", "host memory for all jobs together", CONFIG_SIZE,
	  PLACE(host_budget), MIB, 1024 * TIB },
	{ "memory", "idle_release_seconds", "idle-release-seconds", "N",
	  "until a job without ranks gives its host memory back", CONFIG_COUNT, PLACE(idle_release_seconds),
	  1, 2592000, .is_live = true },
	{ "nvme", "path", "nvme", "DIR:SIZE",
	  "a folder for the NVMe tier and what tierd may use there (,ENDURANCE); repeat it", CONFIG_PATHS,
	  PLACE(paths), MIB, 1024 * TIB },
	{ "nvme", "file_system", "file-system", "KIND",
	  "reserving; any: also those that break reservations; memory: also tmpfs, for tests", CONFIG_CHOICE,
	  PLACE(file_system), .choices = file_systems },
	{ "nvme", "durability", "durability", "HOW",
	  "how often jobs that do not say it commit: auto, step, none or seconds", CONFIG_COUNT_OR_CHOICE,
	  PLACE(durability), 1, DURABILITY_MOST_SECONDS, .choices = durabilities, .is_live = true },
	{ "nvme", "scrub_days", "scrub-days", "N",
	  "in which all data on NVMe are read once, and compared with their checksums; 0: never",
	  CONFIG_COUNT, PLACE(scrub_days), 0, 3650, .is_live = true },
	{ "nvme", "endurance", "endurance", "SIZE",
	  "what the device of a path that does not say it may be written with in its life; 0: not known",
	  CONFIG_SIZE, PLACE(endurance), 0, MAX_ENDURANCE, .is_live = true },
	{ "io", "engine", "io-engine", "NAME", "auto, io_uring or plain", CONFIG_CHOICE, PLACE(io_engine),
	  .choices = engines },
	{ "io", "queue_depth", "queue-depth", "N", "transfers that each device sees at once", CONFIG_COUNT,
	  PLACE(queue_depth), 1, 4096 },
	{ "io", "background_bytes", "background-bytes", "SIZE",
	  "what each device sees at once of all but demand reads; up to four times as much where none come",
	  CONFIG_SIZE, PLACE(background_bytes), MIB, GIB },
	{ "io", "direct", "direct-io", "MODE", "auto or off (through the page cache)", CONFIG_CHOICE,
	  PLACE(direct_io), .choices = direct_modes },
	{ "gpu", "exchange", "gpu-exchange", "WHETHER",
	  "GPUs of a job get from one another what all of them want next: auto (if that is faster), always "
	  "or never",
	  CONFIG_CHOICE, PLACE(gpu_exchange), .choices = exchanges, .is_live = true },
	{ "gpu", "exchange_seconds", "gpu-exchange-seconds", "N",
	  "until what GPUs exchange has failed, and each copies all from host memory", CONFIG_COUNT,
	  PLACE(gpu_exchange_seconds), 1, 3600, .is_live = true },
	{ "gpu", "sums", "gpu-sums", "WHETHER",
	  "GPUs that all ranks of a job push from sum what they push, where that moves no more: never, auto "
	  "(if that is faster) or always",
	  CONFIG_CHOICE, PLACE(gpu_sums), .choices = sums, .is_live = true },
	{ "users", "administrators", "administrators", "NAMES",
	  "users and @groups that see and rule all jobs", CONFIG_WHO, PLACE(administrators),
	  .is_live = true },
	{ "users", "limit", "limit", "WHO WORD=SIZE",
	  "what jobs of a user, a @group or * get and hold; repeat it", CONFIG_LIMITS, PLACE(limits),
	  .is_live = true },
	{ "limits", "connections", "max-connections", "N", "connections at once", CONFIG_COUNT,
	  PLACE(connections), 1, 65536, .is_live = true },
	{ "limits", "connections_per_user", "connections-per-user", "N", "connections of one user at once",
	  CONFIG_COUNT, PLACE(connections_per_user), 1, 65536, .is_live = true },
	{ "limits", "requests_per_connection", "requests-per-connection", "N",
	  "gathers and pushes of one connection that may wait for their answers", CONFIG_COUNT,
	  PLACE(requests_per_connection), 16, 4096, .is_live = true },
	{ "limits", "output_queue", "output-queue", "SIZE", "answers that a connection may leave unread",
	  CONFIG_SIZE, PLACE(output_queue), MIB, GIB, .is_live = true },
	{ "limits", "frame_size", "frame-size", "SIZE", "the largest message that a connection may send",
	  CONFIG_SIZE, PLACE(frame_size), MIB / 16, FRAME_MAX_BYTES, .is_live = true },
	{ "limits", "jobs_per_user", "jobs-per-user", "N", "jobs that a user may have, idle ones too",
	  CONFIG_COUNT, PLACE(jobs_per_user), 1, 65536, .is_live = true },
	{ "limits", "units_per_job", "units-per-job", "N", "units that a job may define", CONFIG_COUNT,
	  PLACE(units_per_job), 1, CATALOG_MAX_UNITS, .is_live = true },
	{ "limits", "tensors_per_job", "tensors-per-job", "N", "tensors that a job may define", CONFIG_COUNT,
	  PLACE(tensors_per_job), 1, CATALOG_MAX_TENSORS, .is_live = true },
	{ "limits", "job_name_length", "job-name-length", "N", "bytes in the name of a job", CONFIG_COUNT,
	  PLACE(job_name_length), 1, WIRE_MAX_JOB_NAME, .is_live = true },
	{ "limits", "name_length", "name-length", "N", "bytes in the name of a unit, a tensor or a phase",
	  CONFIG_COUNT, PLACE(name_length), 1, WIRE_MAX_NAME, .is_live = true },
	{ "limits", "dimensions_per_tensor", "dimensions-per-tensor", "N", "dimensions of a tensor",
	  CONFIG_COUNT, PLACE(dimensions_per_tensor), 1, WIRE_MAX_DIMENSIONS, .is_live = true },
	{ "limits", "first_frame_seconds", "first-frame-seconds", "N",
	  "until a connection must have said hello", CONFIG_COUNT, PLACE(first_frame_seconds), 1, 3600,
	  .is_live = true },
	{ "limits", "frame_seconds", "frame-seconds", "N", "until a message that has begun must be complete",
	  CONFIG_COUNT, PLACE(frame_seconds), 1, 3600, .is_live = true },
	{ "testing", "fault", "fault", "SPEC", NULL, CONFIG_TEXT, PLACE(fault) },
};
const unsigned config_option_count = ARRAY_LENGTH(config_options);

const struct config_option *config_option_find(const char *section, const char *key)
{
	for (unsigned i = 0; i < config_option_count; i++)
		if (strcmp(config_options[i].section, section) == 0 &&
		    strcmp(config_options[i].key, key) == 0)
			return &config_options[i];
	return NULL;
}

bool config_section_exists(const char *section)
{
	for (unsigned i = 0; i < config_option_count; i++)
		if (strcmp(config_options[i].section, section) == 0)
			return true;
	return false;
}

void config_sections_describe(char *text, size_t size)
{
	const char *last = "";
	size_t used = 0;

	for (unsigned i = 0; i < config_option_count && used < size; i++) {
		const char *section = config_options[i].section;

		if (strcmp(section, last) != 0)
			used += (size_t)snprintf(text + used, size - used, "%s%s", *last ? ", " : "",
						 section);
		last = section;
	}
}

static int set_text(char **place, const char *value)
{
	char *copy;

	/* In the file these could begin a comment. */
	if (*value == '\0' || strpbrk(value, ";#"))
		return -EINVAL;
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(*place);
	*place = copy;
	return 0;
}

static int set_size(uint64_t *place, const struct config_option *option, const char *value)
{
	uint64_t size;
	int r = config_parse_size(value, &size);

	if (r < 0 || size < option->minimum || size > option->maximum)
		return -EINVAL;
	*place = size;
	return 0;
}

static int set_count(unsigned *place, const struct config_option *option, const char *value)
{
	unsigned count;
	int r = config_parse_count(value, &count);

	if (r < 0 || count < option->minimum || count > option->maximum)
		return -EINVAL;
	*place = count;
	return 0;
}

static int set_choice(unsigned *place, const struct config_option *option, const char *value)
{
	for (const struct config_choice *choice = option->choices; choice->name; choice++)
		if (strcmp(choice->name, value) == 0) {
			*place = choice->value;
			return 0;
		}
	return -EINVAL;
}

static int add_path(struct config *config, const struct config_option *option, const char *value)
{
	_cleanup_free_ char *path = NULL;
	uint64_t capacity, endurance;
	int r = config_parse_path(value, &path, &capacity, &endurance);

	if (r == -ENOMEM)
		return r;
	if (r < 0 || strpbrk(path, ";#") || capacity < option->minimum || capacity > option->maximum ||
	    endurance > MAX_ENDURANCE || config->path_count == CONFIG_MAX_PATHS)
		return -EINVAL;
	config->paths[config->path_count++] = (struct config_path){ TAKE_PTR(path), capacity, endurance };
	return 0;
}

static int add_limit(struct limit_list *place, const char *value)
{
	int r = strchr(value, ';') ? -EINVAL : limit_list_add(place, value);

	return r == -ENOENT ? -EINVAL : r;
}

static int set_principals(struct principal_list *place, const char *value)
{
	int r = strchr(value, ';') ? -EINVAL : principal_list_set(place, value);

	return r == -ENOENT ? -EINVAL : r;
}

int config_option_set(struct config *config, const struct config_option *option, const char *value)
{
	void *place = (char *)config + option->offset;

	switch (option->kind) {
	case CONFIG_TEXT:
		return set_text(place, value);
	case CONFIG_SIZE:
		return set_size(place, option, value);
	case CONFIG_COUNT:
		return set_count(place, option, value);
	case CONFIG_CHOICE:
		return set_choice(place, option, value);
	case CONFIG_COUNT_OR_CHOICE:
		return set_choice(place, option, value) == 0 ? 0 : set_count(place, option, value);
	case CONFIG_PATHS:
		return add_path(config, option, value);
	case CONFIG_WHO:
		return set_principals(place, value);
	case CONFIG_LIMITS:
		return add_limit(place, value);
	case CONFIG_KINDS:
		break;
	}
	return -EINVAL;
}

static void describe_choices(const struct config_choice *choice, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "one of");

	for (; choice->name && used < size; choice++)
		used += (size_t)snprintf(text + used, size - used, " %s%s", choice->name,
					 choice[1].name ? "," : "");
}

void config_option_describe(const struct config_option *option, char *text, size_t size)
{
	char minimum[CONFIG_SIZE_TEXT], maximum[CONFIG_SIZE_TEXT];
	size_t used;

	config_format_size(option->minimum, minimum);
	config_format_size(option->maximum, maximum);
	switch (option->kind) {
	case CONFIG_TEXT:
		snprintf(text, size, "a text that is not empty and has neither ';' nor '#'");
		break;
	case CONFIG_SIZE:
		snprintf(text, size, "a size from %s to %s, such as %s (K, M, G, T: powers of two)", minimum,
			 maximum, option->maximum >= 8 * GIB ? "8G" : "8M");
		break;
	case CONFIG_COUNT:
		snprintf(text, size, "a number from %u to %u", (unsigned)option->minimum,
			 (unsigned)option->maximum);
		break;
	case CONFIG_CHOICE:
		describe_choices(option->choices, text, size);
		break;
	case CONFIG_COUNT_OR_CHOICE:
		describe_choices(option->choices, text, size);
		used = strlen(text);
		snprintf(text + used, size - used, ", or a number from %u to %u", (unsigned)option->minimum,
			 (unsigned)option->maximum);
		break;
	case CONFIG_PATHS:
		snprintf(text, size,
			 "FOLDER:SIZE with at least %s, such as /mnt/nvme0:100G, or /mnt/nvme0:100G,1091T "
			 "with the "
			 "endurance of its device; at most %d of them",
			 minimum, CONFIG_MAX_PATHS);
		break;
	case CONFIG_WHO:
		snprintf(text, size,
			 "users and @groups that exist here, such as root, @wheel; at most %d of them",
			 PRINCIPALS_MAXIMUM);
		break;
	case CONFIG_LIMITS:
		snprintf(text, size,
			 "a user, @group or *, and host_default, host_maximum, nvme_default or nvme_maximum "
			 "with a size from 1M, snapshots_default or snapshots_maximum with a number from 0 "
			 "to %d, io_share or io_weight_maximum with one from 1 to %d, such as '@research "
			 "host_maximum=64G io_share=50'; at most %d of them",
			 WIRE_MAX_SNAPSHOTS, SCHEDULE_MAX_SHARE, LIMITS_MAXIMUM);
		break;
	case CONFIG_KINDS:
		break;
	}
}

static void print_choice(const struct config_option *option, unsigned value, FILE *stream)
{
	for (const struct config_choice *choice = option->choices; choice->name; choice++)
		if (choice->value == value) {
			fputs(choice->name, stream);
			return;
		}
	fprintf(stream, "%u", value);
}

static void print_path(const struct config_path *path, FILE *stream)
{
	char size[CONFIG_SIZE_TEXT];

	config_format_size(path->capacity, size);
	fprintf(stream, "%s:%s", path->path, size);
	config_format_size(path->endurance, size);
	if (path->endurance)
		fprintf(stream, ",%s", size);
}

unsigned config_option_values(const struct config *config, const struct config_option *option)
{
	switch (option->kind) {
	case CONFIG_TEXT:
		return *(char *const *)((const char *)config + option->offset) != NULL;
	case CONFIG_PATHS:
		return config->path_count;
	case CONFIG_WHO:
		return config->administrators.count > 0;
	case CONFIG_LIMITS:
		return config->limits.count;
	default:
		return 1;
	}
}

void config_option_print(const struct config *config, const struct config_option *option, unsigned index,
			 FILE *stream)
{
	const void *place = (const char *)config + option->offset;
	char text[CONFIG_SIZE_TEXT];

	switch (option->kind) {
	case CONFIG_TEXT:
		fputs(*(char *const *)place, stream);
		break;
	case CONFIG_SIZE:
		config_format_size(*(const uint64_t *)place, text);
		fputs(text, stream);
		break;
	case CONFIG_COUNT:
		fprintf(stream, "%u", *(const unsigned *)place);
		break;
	case CONFIG_CHOICE:
	case CONFIG_COUNT_OR_CHOICE:
		print_choice(option, *(const unsigned *)place, stream);
		break;
	case CONFIG_WHO:
		fputs(config->administrators.text, stream);
		break;
	case CONFIG_LIMITS:
		fputs(config->limits.entries[index].text, stream);
		break;
	case CONFIG_PATHS:
		print_path(&config->paths[index], stream);
		break;
	case CONFIG_KINDS:
		break;
	}
}
