/* The exposition format of Prometheus: the samples of a metric together, after its help and type. */
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "client/tierctl/view.h"
#include "common/printable.h"

enum shape { PLAIN, BY_KIND, BY_CAUSE };

/* A word of a body, or several of them. */
struct family {
	const char *name, *help;
	bool is_counter;
	enum shape shape;
	size_t offset;
	double unit; /* that a count of 1 stands for */
};

#define NODE(field) offsetof(struct statistics_node, field)
#define PATH(field) offsetof(struct statistics_path, field)
#define GPU(field) offsetof(struct statistics_gpu, field)
#define JOB(field) offsetof(struct statistics_job, field)
#define FIGURE(field) offsetof(struct statistics_figures, field)

static const struct family of_nodes[] = {
	{ "host_budget_bytes", "Host memory that the daemon may use.", false, PLAIN, NODE(host_budget), 1 },
	{ "host_used_bytes", "Host memory that jobs and the daemon's buffers have reserved.", false, PLAIN,
	  NODE(host_used), 1 },
	{ "host_cache_bytes", "Of the reserved host memory, what jobs give up when others need it.", false,
	  PLAIN, NODE(host_cache), 1 },
	{ "host_withheld_bytes",
	  "Of the reserved host memory, what processes still have open or mapped of jobs that have ended.",
	  false, PLAIN, NODE(host_withheld), 1 },
	{ "host_pinned_bytes", "Host memory that is registered with io_uring.", false, PLAIN, NODE(pinned),
	  1 },
	{ "clients", "Connections.", false, PLAIN, NODE(clients), 1 },
	{ "jobs", "Jobs of all users.", false, PLAIN, NODE(jobs), 1 },
	{ "requests_total", "Requests received.", true, PLAIN, NODE(requests), 1 },
	{ "workers", "Threads that compute for steps.", false, PLAIN, NODE(workers), 1 },
	{ "workers_busy_seconds_total", "Time in which workers had work, of all together.", true, PLAIN,
	  NODE(worker_busy_ns), 1e-9 },
	{ "loop_busy_seconds_total", "Time in which the daemon's loop had something to do.", true, PLAIN,
	  NODE(loop_busy_ns), 1e-9 },
};

static const struct family of_paths[] = {
	{ "capacity_bytes", "What the daemon may use of an NVMe path.", false, PLAIN, PATH(capacity), 1 },
	{ "used_bytes", "What jobs have reserved of an NVMe path.", false, PLAIN, PATH(used), 1 },
	{ "read_bytes_total", "Bytes that an NVMe path was asked to move.", true, PLAIN,
	  PATH(moved[STATISTICS_READ]), 1 },
	{ "written_bytes_total", "Bytes that an NVMe path was asked to move.", true, PLAIN,
	  PATH(moved[STATISTICS_WRITTEN]), 1 },
	{ "busy_seconds_total", "Time in which the device of an NVMe path had transfers to do.", true, PLAIN,
	  PATH(busy_ns), 1e-9 },
};

/* What is not known of one has no sample. */
static const struct family of_gpus[] = {
	{ "memory_bytes", "Memory of a GPU that jobs use.", false, PLAIN, GPU(bytes), 1 },
	{ "held_bytes", "Of its memory, what the daemon holds for jobs.", false, PLAIN, GPU(held), 1 },
	{ "used_bytes", "Of its memory, what all processes and the driver use.", false, PLAIN, GPU(used), 1 },
	{ "from_host_bytes_total", "Bytes copied to it from host memory, since jobs have used it.", true,
	  PLAIN, GPU(moved[STATISTICS_READ]), 1 },
	{ "to_host_bytes_total", "Bytes copied from it to host memory, since jobs have used it.", true, PLAIN,
	  GPU(moved[STATISTICS_WRITTEN]), 1 },
	{ "busy_ratio", "Part of the last moment in which a kernel of any process ran on it.", false, PLAIN,
	  GPU(busy_percent), 1e-2 },
	{ "temperature_celsius", "Its temperature.", false, PLAIN, GPU(celsius), 1 },
	{ "power_watts", "The power that it takes.", false, PLAIN, GPU(milliwatts), 1e-3 },
	{ "energy_joules_total", "What it has used since its driver was loaded, with all processes.", true,
	  PLAIN, GPU(millijoules), 1e-3 },
};

static const struct family of_jobs[] = {
	{ "step", "The last applied step.", false, PLAIN, JOB(step), 1 },
	{ "durable_step", "The last durable step.", false, PLAIN, JOB(durable_step), 1 },
	{ "durable_lag_steps", "Applied steps that are not durable.", false, PLAIN, JOB(durable_lag_steps),
	  1 },
	{ "durable_lag_seconds", "Since the first of them was applied, of a durable job.", false, PLAIN,
	  JOB(durable_lag_ns), 1e-9 },
	{ "early_updates_total", "Units updated while the backward still ran.", true, PLAIN,
	  JOB(early_updates), 1 },
	{ "epoch", "The number of its epoch.", false, PLAIN, JOB(epoch), 1 },
	{ "ranks", "Ranks that are there.", false, PLAIN, JOB(ranks), 1 },
	{ "world_size", "Ranks that it has.", false, PLAIN, JOB(world_size), 1 },
	{ "parameters", "Elements of its parameters.", false, PLAIN, JOB(parameters), 1 },
	{ "host_bytes", "Host memory that it has reserved.", false, PLAIN, JOB(host_bytes), 1 },
	{ "cache_bytes", "Of its host memory, what it gives up when others need it.", false, PLAIN,
	  JOB(cache_bytes), 1 },
	{ "warm_bytes",
	  "Of that, the kept (warm) optimizer state: its place is on NVMe, and steps find it in memory.",
	  false, PLAIN, JOB(warm_bytes), 1 },
	{ "warm_most_bytes", "What that would be if all of its optimizer's state on NVMe were kept.", false,
	  PLAIN, JOB(warm_most_bytes), 1 },
	{ "nvme_bytes", "NVMe space that it has reserved.", false, PLAIN, JOB(nvme_bytes), 1 },
	{ "gpu_bytes", "GPU memory that it has.", false, PLAIN, JOB(gpu_bytes), 1 },
	{ "gpu_energy_joules_total",
	  "What its GPUs have used, with all who use them, from one look at their counters to a later one.",
	  true, PLAIN, JOB(gpu_millijoules), 1e-3 },
	{ "gpu_energy_steps_total", "The steps that it has applied between these looks.", true, PLAIN,
	  JOB(gpu_steps), 1 },
};

/* Families that the node has, and each job. */
static const struct family of_both[] = {
	{ "io_bytes_total", "Bytes asked from and given to NVMe, by what for.", true, BY_KIND, FIGURE(bytes),
	  1 },
	{ "io_transfers_total", "Transfers from and to NVMe, by what for.", true, BY_KIND, FIGURE(transfers),
	  1 },
	{ "gathers_total", "Units gathered.", true, PLAIN, FIGURE(gathers), 1 },
	{ "gather_misses_total", "Gathers that had to ask the daemon.", true, PLAIN, FIGURE(misses), 1 },
	{ "pushes_total", "Gradients of units pushed.", true, PLAIN, FIGURE(pushes), 1 },
	{ "stall_seconds_total", "Time that ranks have waited, by what for.", true, BY_CAUSE,
	  FIGURE(stall_ns), 1e-9 },
	{ "steps_total", "Steps applied, those that were skipped included.", true, PLAIN, FIGURE(steps), 1 },
	{ "skipped_steps_total", "Steps skipped: their gradients were not finite, or dropped.", true, PLAIN,
	  FIGURE(skipped_steps), 1 },
	{ "step_seconds_total", "Time from decision to applied.", true, PLAIN, FIGURE(step_ns), 1e-9 },
	{ "epochs_total", "Epochs begun.", true, PLAIN, FIGURE(epochs), 1 },
	{ "broken_epochs_total", "Epochs that ended by a loss.", true, PLAIN, FIGURE(broken_epochs), 1 },
};

/* ---- Samples ---- */

#define MAX_LABELS 4

struct sample {
	const char *name; /* whole */
	struct {
		const char *key, *value;
	} labels[MAX_LABELS];
	unsigned label_count;
	double value;
};

struct output {
	cJSON *json; /* NULL: text */
};

static void add_label(struct sample *sample, const char *key, const char *value)
{
	sample->labels[sample->label_count].key = key;
	sample->labels[sample->label_count++].value = value;
}

/* Paths may be anything. */
static void print_value(const char *text)
{
	while (*text) {
		size_t length = printable_character(text);

		if (*text == '\n')
			fputs("\\n", stdout);
		else if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else if (length == 0)
			putchar('?');
		else
			fwrite(text, 1, length, stdout);
		text += length ? length : 1;
	}
}

static void print_sample(const struct sample *sample)
{
	fputs(sample->name, stdout);
	for (unsigned i = 0; i < sample->label_count; i++) {
		printf("%c%s=\"", i ? ',' : '{', sample->labels[i].key);
		print_value(sample->labels[i].value);
		putchar('"');
	}
	printf("%s %.17g\n", sample->label_count ? "}" : "", sample->value);
}

static void put(struct output *output, const struct sample *sample)
{
	cJSON *json, *labels;

	if (!output->json) {
		print_sample(sample);
		return;
	}
	json = cJSON_CreateObject();
	cJSON_AddStringToObject(json, "name", sample->name);
	labels = cJSON_AddObjectToObject(json, "labels");
	for (unsigned i = 0; i < sample->label_count; i++)
		cJSON_AddStringToObject(labels, sample->labels[i].key, sample->labels[i].value);
	cJSON_AddNumberToObject(json, "value", sample->value);
	cJSON_AddItemToArray(output->json, json);
}

static void put_word(struct output *output, struct sample sample, const uint64_t *word, double unit)
{
	sample.value = (double)*word * unit;
	put(output, &sample);
}

static void put_kinds(struct output *output, const struct sample *sample, const uint64_t *words, double unit)
{
	for (unsigned i = 0; i < STATISTICS_KINDS * STATISTICS_DIRECTIONS; i++) {
		struct sample one = *sample;

		add_label(&one, "kind", view_kind_name(i / STATISTICS_DIRECTIONS));
		add_label(&one, "direction", view_direction_name(i % STATISTICS_DIRECTIONS));
		put_word(output, one, &words[i], unit);
	}
}

static void put_causes(struct output *output, const struct sample *sample, const uint64_t *words, double unit)
{
	for (unsigned i = 0; i < STATISTICS_CAUSES; i++) {
		struct sample one = *sample;

		add_label(&one, "cause", view_cause_name(i));
		put_word(output, one, &words[i], unit);
	}
}

/* sample: its name and the labels that it has already. */
static void put_family(struct output *output, const struct sample *sample, const struct family *family,
		       const void *body)
{
	const uint64_t *words = (const uint64_t *)((const char *)body + family->offset);

	if (family->shape == BY_KIND)
		put_kinds(output, sample, words, family->unit);
	else if (family->shape == BY_CAUSE)
		put_causes(output, sample, words, family->unit);
	else
		put_word(output, *sample, words, family->unit);
}

/* ---- Families ---- */

static void begin(const struct output *output, const char *name, const struct family *family)
{
	if (!output->json)
		printf("# HELP %s %s\n# TYPE %s %s\n", name, family->help, name,
		       family->is_counter ? "counter" : "gauge");
}

static void put_node(struct output *output, const struct family *family, const void *body)
{
	char name[64];
	struct sample sample = { .name = name };

	snprintf(name, sizeof(name), "tierd_%s", family->name);
	begin(output, name, family);
	put_family(output, &sample, family, body);
}

/* offset: of what the family is in, in a job's body. Of a job whose store cannot be opened nothing but what
 * it does is known. */
static void put_jobs(struct output *output, const struct family *family, const struct view *view,
		     size_t offset)
{
	char name[64];

	snprintf(name, sizeof(name), "tierd_job_%s", family->name);
	if (view->job_count > 0)
		begin(output, name, family);
	for (size_t i = 0; i < view->job_count; i++) {
		const struct view_job *job = &view->jobs[i];
		struct sample sample = { .name = name };

		if (job->body.is_lost && offset == 0)
			continue;
		add_label(&sample, "user", job->user);
		add_label(&sample, "job", job->body.name);
		put_family(output, &sample, family, (const char *)&job->body + offset);
	}
}

static void put_paths(struct output *output, const struct family *family, const struct statistics_node *node)
{
	char name[64];

	snprintf(name, sizeof(name), "tierd_path_%s", family->name);
	if (node->path_count > 0)
		begin(output, name, family);
	for (size_t i = 0; i < node->path_count; i++) {
		struct sample sample = { .name = name };

		add_label(&sample, "path", node->paths[i].path);
		put_family(output, &sample, family, &node->paths[i]);
	}
}

static bool is_known(const struct family *family, const struct statistics_gpu *gpu)
{
	return *(const uint64_t *)((const char *)gpu + family->offset) != STATISTICS_UNKNOWN;
}

static void put_gpus(struct output *output, const struct family *family, const struct statistics_node *node)
{
	bool has_begun = false;
	char name[64];

	snprintf(name, sizeof(name), "tierd_gpu_%s", family->name);
	for (size_t i = 0; i < node->gpu_count; i++) {
		struct sample sample = { .name = name };
		char uuid[VIEW_UUID_SIZE];

		if (!is_known(family, &node->gpus[i]))
			continue;
		if (!has_begun)
			begin(output, name, family);
		has_begun = true;
		add_label(&sample, "gpu", view_gpu_uuid(&node->gpus[i], uuid));
		put_family(output, &sample, family, &node->gpus[i]);
	}
}

static void put_times(struct output *output, const struct view *view)
{
	static const struct family silent = {
		"heartbeat_age_seconds", "Since the daemon's loop last turned.", false, PLAIN, 0, 1e-9
	};
	static const struct family uptime = {
		"uptime_seconds", "Since the daemon started, when it last turned.", false, PLAIN, 0, 1e-9
	};
	uint64_t age = view_silent_ns(view), up = view->node.heartbeat_ns - view->node.started_ns;

	put_node(output, &silent, &age);
	put_node(output, &uptime, &up);
}

static void put_all(struct output *output, const struct view *view)
{
	put_times(output, view);
	for (size_t i = 0; i < ARRAY_LENGTH(of_nodes); i++)
		put_node(output, &of_nodes[i], &view->node);
	for (size_t i = 0; i < ARRAY_LENGTH(of_paths); i++)
		put_paths(output, &of_paths[i], &view->node);
	for (size_t i = 0; i < ARRAY_LENGTH(of_gpus); i++)
		put_gpus(output, &of_gpus[i], &view->node);
	for (size_t i = 0; i < ARRAY_LENGTH(of_both); i++)
		put_node(output, &of_both[i], &view->node.figures);
	for (size_t i = 0; i < ARRAY_LENGTH(of_jobs); i++)
		put_jobs(output, &of_jobs[i], view, 0);
	for (size_t i = 0; i < ARRAY_LENGTH(of_both); i++)
		put_jobs(output, &of_both[i], view, JOB(figures));
}

int command_metrics(const struct command_context *context)
{
	struct output output = { NULL };
	struct view view = { NULL };
	int code = view_open(context, &view);

	if (code == COMMAND_DONE) {
		output.json = context->is_json ? cJSON_CreateArray() : NULL;
		put_all(&output, &view);
		code = output.json ? command_print_json(output.json) : COMMAND_DONE;
	}
	view_close(&view);
	return code;
}
