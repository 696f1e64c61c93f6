#include "client/tierctl/choice.h"
#include "client/tierctl/gpus.h"
#include "client/tierctl/jobs.h"

#include <inttypes.h>
#include <string.h>

#include "common/plural.h"
#include "common/size.h"

#define LINE_SIZE 160
/* How many of the ranks that others wait for are named; the lines of the ranks have all of them. */
#define NAMED_RANKS 3
#define WORTH_TELLING_MS 1000

/* ---- What ranks wait for ---- */

/* ", waits for ranks 2, 3 and 4 more for 14 s"; nothing, as long as that may be because one is a little
 * faster than another. */
static const char *text_waits(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char duration[TEXT_SIZE], more[TEXT_SIZE] = "";
	size_t named = job->n_waited_ranks < NAMED_RANKS ? job->n_waited_ranks : NAMED_RANKS, used;

	*text = '\0';
	if (named == 0 || job->waited_ms < WORTH_TELLING_MS)
		return text;
	used = (size_t)snprintf(text, LINE_SIZE, ", waits for rank%s", PLURAL(job->waited_count));
	for (size_t i = 0; i < named; i++)
		used += (size_t)snprintf(text + used, LINE_SIZE - used, "%s %u", i ? "," : "",
					 job->waited_ranks[i]);
	if (job->waited_count > named)
		snprintf(more, sizeof(more), " and %zu more", job->waited_count - named);
	snprintf(text + used, LINE_SIZE - used, "%s for %s", more, text_duration(job->waited_ms, duration));
	return text;
}

/* ---- For people ---- */

/* It keeps what it holds, however long it is idle. */
static bool is_in_host(const Tierd__Wire__JobEntry *job)
{
	return !job->is_durable && strcmp(job->status, "broken") != 0 &&
	       (strcmp(job->parameter_placement, "nvme") != 0 ||
		strcmp(job->optimizer_placement, "nvme") != 0);
}

/* What is wrong with it, behind its status; or nothing. */
#define DAMAGE_SIZE (3 * TEXT_SIZE)
static const char *text_damage(const Tierd__Wire__JobEntry *job, char text[static DAMAGE_SIZE])
{
	size_t used = 0;

	*text = '\0';
	if (*job->removed)
		used = (size_t)snprintf(text, TEXT_SIZE, ", its store is removed");
	if (job->damaged_blocks > 0)
		used += (size_t)snprintf(text + used, TEXT_SIZE, ", %u damaged block%s", job->damaged_blocks,
					 PLURAL(job->damaged_blocks));
	if (job->lost_snapshots > 0)
		snprintf(text + used, TEXT_SIZE, ", %u lost snapshot%s", job->lost_snapshots,
			 PLURAL(job->lost_snapshots));
	return text;
}

static void add_status(struct table *table, const Tierd__Wire__JobEntry *job)
{
	char idle[TEXT_SIZE], damage[DAMAGE_SIZE], waits[LINE_SIZE];

	text_damage(job, damage);
	if (job->idle_ms > 0)
		table_add(table, "%s for %s%s%s", job->status, text_duration(job->idle_ms, idle),
			  job->is_released  ? ", on NVMe only"
			  : is_in_host(job) ? ", state in host memory"
					    : "",
			  damage);
	else
		table_add(table, "%s%s%s", job->status, text_waits(job, waits), damage);
}

/* The last step that would survive, how many would not, and since when. */
static void add_durable(struct table *table, const Tierd__Wire__JobEntry *job)
{
	char text[TEXT_SIZE];

	if (job->is_lost)
		table_add(table, "-");
	else if (!job->is_durable || *job->removed)
		table_add(table, "no");
	else if (!job->has_durable_step)
		table_add(table, "not yet");
	else if (job->durable_step < job->step)
		table_add(table, "%" PRIu64 " (-%" PRIu64 ", %s)", job->durable_step,
			  job->step - job->durable_step, text_duration(job->durable_lag_ms, text));
	else
		table_add(table, "%" PRIu64, job->durable_step);
}

static void add_placement(struct table *table, const Tierd__Wire__JobEntry *job, const char *placement,
			  bool is_auto)
{
	bool is_chosen = is_auto && strcmp(placement, "auto") != 0;

	table_add_known(table, !job->is_lost, "%s%s", placement, is_chosen ? " (auto)" : "");
}

/* fp32 moments are what everybody expects. */
static void add_optimizer(struct table *table, const Tierd__Wire__JobEntry *job)
{
	if (job->is_lost)
		table_add(table, "%s", job->is_record_read ? job->optimizer : "-");
	else if (strstr(job->moments, "bf16") || strstr(job->moments, "int8"))
		table_add(table, "%s (%s)", job->optimizer, job->moments);
	else
		table_add(table, "%s", job->optimizer);
}

static void add_stored(struct table *table, const Tierd__Wire__JobEntry *job, uint64_t bytes)
{
	char text[TEXT_SIZE];

	table_add_known(table, !job->is_lost, "%s", text_bytes(bytes, text));
}

static void add_job(struct table *table, const Tierd__Wire__JobEntry *job)
{
	bool has_record = jobs_has_record(job);
	char text[TEXT_SIZE];

	table_add(table, "%s", job->name);
	table_add(table, "%s", command_user_name(job->uid, text));
	add_status(table, job);
	table_add_known(table, has_record, "%zu/%u", job->n_members, job->world_size);
	table_add_known(table, has_record, "%u", job->stage);
	table_add_known(table, has_record, "%" PRIu64, job->step);
	add_durable(table, job);
	table_add_known(table, has_record, "%" PRIu64, job->units);
	table_add_known(table, has_record, "%s", text_count(job->parameters, text));
	table_add_bytes(table, job->host_bytes);
	table_add_bytes(table, job->cache_bytes);
	add_stored(table, job, job->nvme_bytes);
	add_stored(table, job, job->own_bytes);
	add_stored(table, job, job->shared_bytes);
	table_add_known(table, !job->is_lost, "%u", job->io_weight);
	table_add_known(table, !job->is_lost, "%u", job->io_share);
	add_placement(table, job, job->parameter_placement, job->is_parameter_placement_auto);
	add_optimizer(table, job);
	add_placement(table, job, job->optimizer_placement, job->is_optimizer_placement_auto);
	add_placement(table, job, job->gradient_placement, false);
}

static bool has_gpus(const Tierd__Wire__JobsReply *jobs)
{
	for (size_t i = 0; i < jobs->n_jobs; i++)
		if (jobs->jobs[i]->n_gpus > 0)
			return true;
	return false;
}

static int print_jobs(const Tierd__Wire__JobsReply *jobs)
{
	bool is_on_gpus = has_gpus(jobs);
	const char *const titles[] = { "~JOB",	      "3~USER",		"STATUS",
				       ">RANKS",      "5>STAGE",	">STEP",
				       "1>DURABLE",   "6>UNITS",	"4>PARAMETERS",
				       "2>HOST",      "6>OF IT CACHE",	"2>NVME",
				       "8>OWN STATE", "8>SHARED",	"9>IO WEIGHT",
				       "9>IO SHARE",  "7PARAMETERS ON", "5OPTIMIZER",
				       "7STATE ON",   "7SUMS ON",	is_on_gpus ? "2>GPUS" : NULL,
				       NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);

	for (size_t i = 0; table && i < jobs->n_jobs; i++) {
		add_job(table, jobs->jobs[i]);
		if (is_on_gpus)
			table_add_bytes(table, gpus_job_bytes(jobs->jobs[i]));
	}
	return command_print_table(table);
}

static const Tierd__Wire__Member *find_member(const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	for (size_t i = 0; i < job->n_members; i++)
		if (job->members[i]->rank == rank)
			return job->members[i];
	return NULL;
}

/* Readers have no ranks, and memory of their own. */
static const char *text_readers(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char bytes[TEXT_SIZE];

	*text = '\0';
	if (job->readers > 0)
		snprintf(text, LINE_SIZE, ", %u reader%s with %s", job->readers, PLURAL(job->readers),
			 text_bytes(job->reader_bytes, bytes));
	return text;
}

/* How much of the optimizer's state on NVMe is in memory, too. */
static const char *text_kept(const Tierd__Wire__JobEntry *job, char text[static LINE_SIZE])
{
	char kept[TEXT_SIZE], most[TEXT_SIZE];

	*text = '\0';
	if (job->warm_most_bytes > 0)
		snprintf(text, LINE_SIZE, ", %.0f %% of its optimizer's state kept in memory (%s of %s)",
			 100.0 * size_fraction(job->warm_bytes, job->warm_most_bytes),
			 text_bytes(job->warm_bytes, kept), text_bytes(job->warm_most_bytes, most));
	return text;
}

static void print_head(const Tierd__Wire__JobEntry *job)
{
	char step[TEXT_SIZE] = "", damage[DAMAGE_SIZE], waits[LINE_SIZE], kept[LINE_SIZE], readers[LINE_SIZE];
	const char *why = *job->reason ? job->reason : job->removed;

	if (jobs_has_record(job))
		snprintf(step, sizeof(step), ", step %" PRIu64, job->step);
	text_say(2, "%s: %s%s%s%s%s%s%s%s", job->name, job->status, text_damage(job, damage), step,
		 text_waits(job, waits), text_kept(job, kept), text_readers(job, readers), *why ? ": " : "",
		 why);
	if (*job->remedy)
		text_say(2, "  remedy: %s", job->remedy);
	if (jobs_has_record(job))
		putchar('\n');
}

static void add_rank(struct table *table, const Tierd__Wire__JobEntry *job, uint32_t rank)
{
	const Tierd__Wire__Member *member = find_member(job, rank);
	const char *waits = jobs_is_waited_for(job, rank) ? "; others wait for it" : "";
	char text[TEXT_SIZE];

	table_add(table, "%u", rank);
	if (!member) {
		for (unsigned i = 0; i < 3; i++)
			table_add(table, "-");
		table_add(table, "not here%s", waits);
		return;
	}
	table_add(table, "%u", member->pid);
	table_add(table, "%" PRIu64, member->pushes);
	table_add(table, "%s ago", text_duration(member->silent_ms, text));
	table_add(table, "%s%s%s", member->activity, member->is_stopped ? ", stopped by a signal" : "",
		  waits);
}

static int print_ranks(const Tierd__Wire__JobEntry *job)
{
	static const char *const titles[] = { ">RANK",	       "1>PID",	     "1>PUSHES",
					      ">LAST REQUEST", "\"ACTIVITY", NULL };
	_cleanup_(table_freep) struct table *table = table_new(titles);
	int code;

	for (uint32_t rank = 0; table && rank < job->world_size; rank++)
		add_rank(table, job, rank);
	print_head(job);
	if (!jobs_has_record(job))
		return COMMAND_DONE;
	code = command_print_table(table);
	if (code == COMMAND_DONE && job->n_gpus > 0)
		putchar('\n');
	return code == COMMAND_DONE ? gpus_print_job(job) : code;
}

static int show_jobs(const struct command_context *context, const Tierd__Wire__JobsReply *jobs)
{
	cJSON *json;

	if (!context->is_json)
		return print_jobs(jobs);
	json = cJSON_CreateArray();
	for (size_t i = 0; i < jobs->n_jobs; i++)
		cJSON_AddItemToArray(json, jobs_json(jobs->jobs[i]));
	return command_print_json(json);
}

static int show_job(const struct command_context *context, struct ask *ask, const struct choice *choice,
		    const Tierd__Wire__JobsReply *jobs)
{
	const Tierd__Wire__JobEntry *job;
	int code = choice_find(ask, choice, jobs, &job);

	if (code != COMMAND_DONE)
		return code;
	return context->is_json ? command_print_json(jobs_json(job)) : print_ranks(job);
}

int command_jobs(const struct command_context *context)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	const Tierd__Wire__JobsReply *jobs;
	struct choice choice;
	int code = choice_read(context, &choice);

	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = command_ask_jobs(ask, &jobs);
	if (code != COMMAND_DONE)
		return code;
	return choice.job ? show_job(context, ask, &choice, jobs) : show_jobs(context, jobs);
}
