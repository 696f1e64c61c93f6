#include "client/tierctl/limit.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/tierctl/top.h"
#include "common/plural.h"

/* Who has work for so much of the time is what the rest waits for; between two transfers, or two pieces of
 * work, there is always a little time. */
#define BUSY 0.9
/* Of the time of one rank; who waits less computes. */
#define WAITS 0.05
#define PATH_COLUMNS 40

/* ---- What is known ---- */

static double part(uint64_t ns, double seconds)
{
	double busy = (double)ns / 1e9 / seconds;

	return busy < 1 ? busy : 1;
}

struct limit_load limit_of_looks(const struct statistics_node *now, const struct statistics_node *before)
{
	struct limit_load load = { .worker_count = now->workers, .ranks = now->ranks };
	double seconds = top_seconds(now->heartbeat_ns, before->heartbeat_ns);

	/* Of an older daemon, or of one that has come since, it is not known. */
	if (now->workers == 0 || seconds <= 0 || now->started_ns != before->started_ns)
		return load;
	load.seconds = seconds;
	load.loop = part(top_more(now->loop_busy_ns, before->loop_busy_ns), seconds);
	load.workers =
		part(top_more(now->worker_busy_ns, before->worker_busy_ns), seconds * (double)now->workers);
	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++)
		load.stalls[cause] =
			(double)top_more(now->figures.stall_ns[cause], before->figures.stall_ns[cause]) /
			1e9 / seconds;
	load.path_count = now->path_count;
	for (size_t i = 0; i < load.path_count; i++) {
		load.paths[i].path = now->paths[i].path;
		load.paths[i].busy = part(top_more(now->paths[i].busy_ns, before->paths[i].busy_ns), seconds);
	}
	return load;
}

struct limit_load limit_of_node(const Tierd__Wire__NodeReply *node)
{
	struct limit_load load = { .worker_count = node->workers, .ranks = node->ranks };
	const Tierd__Wire__Load *wire = node->load;

	if (!wire || wire->interval_ns == 0 || node->workers == 0)
		return load;
	load.seconds = (double)wire->interval_ns / 1e9;
	load.loop = part(wire->loop_ns, load.seconds);
	load.workers = part(wire->worker_ns, load.seconds * node->workers);
	for (size_t i = 0; i < wire->n_stall_ns && i < STATISTICS_CAUSES; i++)
		load.stalls[i] = (double)wire->stall_ns[i] / 1e9 / load.seconds;
	for (size_t i = 0; i < node->n_paths && i < STATISTICS_MAX_PATHS; i++) {
		load.paths[i].path = node->paths[i]->path;
		load.paths[i].busy = part(node->paths[i]->busy_ns, load.seconds);
		load.path_count++;
	}
	return load;
}

/* ---- What limits ---- */

/* What devices have done is known when the loop turns: if that is late, they seem to be busy. */
static bool is_by_devices(const struct limit_load *load)
{
	for (size_t i = 0; i < load->path_count && load->loop < BUSY; i++)
		if (load->paths[i].busy >= BUSY)
			return true;
	return false;
}

static bool is_by_processors(const struct limit_load *load)
{
	return load->workers >= BUSY || load->loop >= BUSY;
}

const char *limit_name(const struct limit_load *load)
{
	if (load->seconds <= 0)
		return NULL;
	if (is_by_devices(load))
		return is_by_processors(load) ? "devices and processors" : "devices";
	return is_by_processors(load) ? "processors" : "neither";
}

/* ---- For people ---- */

static void say_devices(const struct limit_load *load, FILE *line)
{
	size_t busiest = 0, count = 0;

	for (size_t i = 0; i < load->path_count; i++) {
		busiest = load->paths[i].busy > load->paths[busiest].busy ? i : busiest;
		count += load->paths[i].busy >= BUSY;
	}
	fputs("devices (", line);
	text_print_shortened(line, load->paths[busiest].path, PATH_COLUMNS);
	fprintf(line, " %.0f %% busy", 100 * load->paths[busiest].busy);
	if (count > 1)
		fprintf(line, ", and %zu more path%s", count - 1, PLURAL(count - 1));
	fputc(')', line);
}

static void say_processors(const struct limit_load *load, FILE *line)
{
	fputs("processors (", line);
	if (load->workers >= BUSY)
		fprintf(line, "%" PRIu64 " worker%s %.0f %% busy", load->worker_count,
			PLURAL(load->worker_count), 100 * load->workers);
	if (load->loop >= BUSY)
		fprintf(line, "%sthe loop %.0f %% busy", load->workers >= BUSY ? ", " : "", 100 * load->loop);
	fputc(')', line);
}

static void say_neither(const struct limit_load *load, FILE *line)
{
	static const char *const causes[STATISTICS_CAUSES] = { "reads from NVMe", "room in host memory",
							       "the step", "gradient buffers", "GPUs" };
	double sum = 0;
	unsigned most = 0;

	for (unsigned cause = 0; cause < STATISTICS_CAUSES; cause++) {
		sum += load->stalls[cause];
		most = load->stalls[cause] > load->stalls[most] ? cause : most;
	}
	if (load->ranks == 0)
		fputs("neither (no rank is there)", line);
	else if (sum < WAITS)
		fputs("neither (the trainers compute)", line);
	else
		fprintf(line, "neither (ranks wait %.2f s/s, most for %s)", sum, causes[most]);
}

static void say(const struct limit_load *load, FILE *line)
{
	bool devices = is_by_devices(load), processors = is_by_processors(load);

	if (devices)
		say_devices(load, line);
	if (devices && processors)
		fputs(" and ", line);
	if (processors)
		say_processors(load, line);
	if (!devices && !processors)
		say_neither(load, line);
}

int limit_print(const struct limit_load *load, int indent)
{
	_cleanup_free_ char *text = NULL;
	size_t size;
	FILE *line;

	if (load->seconds <= 0)
		return COMMAND_DONE;
	line = open_memstream(&text, &size);
	if (!line)
		return command_fail_memory();
	say(load, line);
	if (fclose(line) != 0 || !text)
		return command_fail_memory();
	text_say(indent, "%-*s%s", indent, "limit", text);
	return COMMAND_DONE;
}

/* ---- For programs ---- */

static void add_part(cJSON *json, const char *name, const struct limit_load *load, double busy)
{
	if (load->seconds > 0)
		cJSON_AddNumberToObject(json, name, busy);
	else
		cJSON_AddNullToObject(json, name);
}

void limit_add_json(cJSON *json, const struct limit_load *load)
{
	const char *name = limit_name(load);

	if (name)
		cJSON_AddStringToObject(json, "limit", name);
	else
		cJSON_AddNullToObject(json, "limit");
	add_part(json, "workers_busy_fraction", load, load->workers);
	add_part(json, "loop_busy_fraction", load, load->loop);
}

void limit_add_path_json(cJSON *json, const struct limit_load *load, size_t path)
{
	add_part(json, "busy_fraction", load, path < load->path_count ? load->paths[path].busy : 0);
}
