#include "daemon/observe/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "daemon/observe/own.h"
#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/observe/endurance.h"
#include "daemon/observe/load.h"
#include "daemon/observe/report_gpus.h"
#include "daemon/observe/waits.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/scrub/scrub.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"
#include "proto/frame.h"

/* As many units as take the loop for a tenth of a millisecond; with names of full length they fit in a frame.
 */
#define UNITS_PER_REPLY 128
/* Jobs take what is left in a frame beside the rest of the reply; and there are no more of them, with so many
 * ranks in all, than unpack to less than 3 MiB: there is a bound for that, too. */
#define JOBS_BYTES (FRAME_MAX_BYTES - 1024)
#define JOBS_PER_REPLY 672
#define MEMBERS_PER_REPLY 8192

/* ---- Node ---- */

static void add_endurance(struct node *node, unsigned path, Tierd__Wire__Path *wire)
{
	struct endurance_account account;

	endurance_read(node->observe->endurance, path, &account);
	wire->written_today_bytes = account.today;
	wire->written_ever_bytes = account.total;
	wire->endurance_bytes = account.bytes;
	wire->has_days_left = account.has_days;
	wire->days_left = account.days;
}

/* What a user's jobs give up when somebody needs it. */
static uint64_t user_spare_bytes(struct node *node, uid_t uid)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		bytes += job->uid == uid ? budget_cache_bytes(job) + idle_spare_bytes(job) : 0;
	}
	return bytes;
}

static void add_limits(struct node *node, const struct port *port, Tierd__Wire__UserLimits *limits)
{
	struct quota quota = access_quota(node, port);

	tierd__wire__user_limits__init(limits);
	limits->host_default = quota.host_default;
	limits->host_maximum = quota.host_maximum;
	limits->host_held =
		holders_user_bytes(node, HOLDERS_OF_HOST, port->uid) - user_spare_bytes(node, port->uid);
	limits->nvme_default = quota.nvme_default;
	limits->nvme_maximum = quota.nvme_maximum;
	limits->nvme_held = holders_user_bytes(node, HOLDERS_OF_NVME, port->uid);
	limits->snapshots_default = access_snapshots_default(&quota);
	limits->durability = node->settings.durability;
}

void report_node(struct pending *pending, struct node *node)
{
	Tierd__Wire__NodeReply body = TIERD__WIRE__NODE_REPLY__INIT;
	Tierd__Wire__Path paths[NODE_MAX_PATHS], *path_pointers[NODE_MAX_PATHS];
	Tierd__Wire__UserLimits limits;
	struct report_gpus gpus;
	struct report_load load;

	for (unsigned i = 0; i < node->path_count; i++) {
		tierd__wire__path__init(&paths[i]);
		paths[i].path = node->paths[i].path;
		paths[i].capacity_bytes = node->paths[i].capacity;
		paths[i].used_bytes = node->paths[i].used;
		paths[i].read_bytes = node->paths[i].moved[TIER_READ];
		paths[i].written_bytes = node->paths[i].moved[TIER_WRITE];
		paths[i].is_direct = node->paths[i].is_direct;
		paths[i].is_absent = node->paths[i].is_absent;
		add_endurance(node, i, &paths[i]);
		path_pointers[i] = &paths[i];
	}
	body.version = (char *)TIERD_VERSION;
	body.pid = (uint32_t)getpid();
	body.uptime_ms = (clock_now_ns() - node->started_ns) / 1000000;
	body.clients = telemetry_clients(node)->connected;
	body.connections_per_user = node->settings.connections_per_user;
	body.is_draining = node->is_draining;
	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		body.jobs++;
		body.ranks += job->members.count;
		body.host_cache_bytes += budget_cache_bytes(job);
		body.host_idle_bytes += idle_spare_bytes(job);
	}
	body.host_budget_bytes = node->settings.host_budget;
	body.host_used_bytes = budget_host_used(node);
	body.host_withheld_bytes = disposal_withheld_by_all(node);
	add_limits(node, pending_port(pending), &limits);
	body.limits = &limits;
	body.n_paths = node->path_count;
	body.paths = path_pointers;
	load_report(node, &load, &body);
	report_gpus(node, &gpus, &body);
	body.io_engine = (char *)engine_name(node->engine);
	body.io_engine_why = (char *)(engine_why(node->engine) ? engine_why(node->engine) : "");
	body.simd = (char *)simd_level_name(simd_level());
	body.workers = workers_count(node->workers);
	body.has_huge_pages = node->staging->memory.is_huge;
	body.store = (char *)(node->path_count > 0 ? "jobs are durable"
						   : "state ends with the daemon: there is no NVMe path");
	body.requests = telemetry_clients(node)->requests;
	body.pinned_bytes = engine_pinned(node->engine);
	pending_reply(pending, WIRE_REPLY(NODE, node, &body));
}

/* ---- Jobs ---- */

static bool is_gathering(const struct member *member)
{
	QUEUE_FOREACH (link, &member->pendings) {
		const struct pending *pending = queue_entry(link, struct pending, member_link);

		if (pending->waiter.is_gather && pending->waiter.blocked)
			return true;
	}
	return false;
}

static const char *activity(const struct job *job, const struct member *member)
{
	if (member->ready)
		return "waiting in tierd_job_ready";
	if (!job_is_live(job) || member->epoch != job->epoch.number)
		return member->epoch == 0 ? "opening" : "stale";
	if (gradient_waits_since(member) > 0)
		return "waiting for a gradient buffer";
	if (is_gathering(member))
		return "waiting for a gather";
	if (step_is_reduced(&job->current) && member_owes_step(member))
		return job->current.state == WRITING_OPEN ? "writing values" : "writing its shard";
	if (member->is_closed)
		return "has closed its step";
	return member->step ? "waiting for its step" : "training";
}

struct job_entry {
	Tierd__Wire__JobEntry wire;
	Tierd__Wire__StatisticsReply statistics;
	Tierd__Wire__Member *members;
	Tierd__Wire__Member **member_pointers;
	struct report_job_gpus gpus;
	struct waits waits;
	char reason[sizeof(((struct job *)NULL)->epoch.reason)];
	char family[FAMILY_TEXT];
	char remedy[LOST_REMEDY_TEXT];
	char removed[PRESENCE_TEXT];
};

static void fill_waits(struct job_entry *entry, const struct job *job)
{
	Tierd__Wire__JobEntry *wire = &entry->wire;

	waits_find(job, &entry->waits);
	if (entry->waits.cause == WAITS_NOTHING)
		return;
	wire->waited_for = (char *)waits_name(entry->waits.cause);
	wire->waited_ms = (clock_now_ns() - entry->waits.since_ns) / 1000000;
	wire->waited_count = entry->waits.count;
	wire->n_waited_ranks = entry->waits.count < WAITS_MOST ? entry->waits.count : WAITS_MOST;
	wire->waited_ranks = entry->waits.ranks;
}

static bool is_waited_for(const struct job_entry *entry, uint32_t rank)
{
	for (size_t i = 0; i < entry->wire.n_waited_ranks; i++)
		if (entry->wire.waited_ranks[i] == rank)
			return true;
	return false;
}

static int fill_members(struct job_entry *entry, const struct job *job)
{
	size_t count = 0;

	entry->members = calloc(job->members.count + 1, sizeof(*entry->members));
	entry->member_pointers = calloc(job->members.count + 1, sizeof(*entry->member_pointers));
	if (!entry->members || !entry->member_pointers)
		return -ENOMEM;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->members.ranks[rank];
		Tierd__Wire__Member *wire = &entry->members[count];

		if (!member)
			continue;
		tierd__wire__member__init(wire);
		wire->rank = rank;
		wire->pid = (uint32_t)member->pid;
		wire->activity = (char *)activity(job, member);
		wire->silent_ms = (clock_now_ns() - member->heard_ns) / 1000000;
		wire->pushes = member->pushes;
		wire->is_stopped = is_waited_for(entry, rank) && waits_for_stopped(member);
		entry->statistics.pushes += member->pushes;
		entry->statistics.communicated_elements += member->communicated_elements;
		entry->member_pointers[count++] = wire;
	}
	entry->wire.n_members = count;
	entry->wire.members = entry->member_pointers;
	return 0;
}

static const char *moments_of(const struct job_options *options)
{
	static const char *const texts[1 << WIRE_MOMENTS] = {
		"", "fp32", "bf16", "fp32, bf16", "int8", "fp32, int8", "bf16, int8", "fp32, bf16, int8"
	};
	unsigned formats = 0;

	for (uint32_t i = 0; i < options->group_count && options->slot_count > 0; i++)
		formats |= 1U << options->groups[i].moments;
	return texts[formats];
}

static const char *gradient_placement(const struct job *job)
{
	if (job->state <= JOB_PLANNING && job->options.gradient_placement == PLACEMENT_DEFAULT)
		return "auto";
	return job->location.has_nvme_sums || job->options.gradient_placement == PLACEMENT_NVME ? "nvme"
												: "host";
}

/* What tierd chooses is chosen when the job is planned. */
static const char *placement_of(const struct job *job, uint32_t asked, bool has_nvme)
{
	if (asked != PLACEMENT_AUTO)
		return placement_name(asked == PLACEMENT_NVME);
	return job->state <= JOB_PLANNING ? "auto" : placement_name(has_nvme);
}

/* What a lost job says by itself is made up. */
static void fill_record(Tierd__Wire__JobEntry *wire, const struct loss_record *record)
{
	wire->is_lost = true;
	wire->is_record_read = record->is_read;
	wire->world_size = record->world_size;
	wire->stage = record->stage;
	wire->epoch = record->epoch;
	wire->step = record->step;
	wire->units = record->units;
	wire->parameters = record->parameters;
	wire->optimizer = (char *)(record->is_read ? record->optimizer->name : "");
}

static int fill_job(struct job_entry *entry, struct job *job)
{
	Tierd__Wire__JobEntry *wire = &entry->wire;
	int r;

	tierd__wire__job_entry__init(wire);
	tierd__wire__statistics_reply__init(&entry->statistics);
	wire->name = job->name;
	wire->uid = job->uid;
	wire->status = (char *)job_status_name(job);
	wire->idle_ms = job_is_idle(job) ? 1 + (clock_now_ns() - job->members.idle_since_ns) / 1000000 : 0;
	wire->is_released = job->state == JOB_RELEASED;
	wire->sharing = (char *)(job->options.sharing == SHARING_TRAIN	? "train"
				 : job->options.sharing == SHARING_READ ? "read"
									: "no");
	wire->share_group = job->options.share_group;
	wire->world_size = job->options.world_size;
	wire->stage = job->options.stage;
	wire->epoch = job->epoch.number;
	wire->step = job->step;
	wire->is_durable = job->location.is_durable;
	wire->damaged_blocks = scrub_damaged_blocks(job);
	wire->snapshots = snapshot_count(job);
	wire->snapshot_maximum = job->options.snapshots;
	wire->lost_snapshots = snapshot_count_lost(job);
	wire->family = (char *)family_name_others(job, entry->family, sizeof(entry->family));
	family_measure(job, &wire->own_bytes, &wire->shared_bytes);
	wire->removed = (char *)presence_describe(job, entry->removed, sizeof(entry->removed));
	wire->has_durable_step = durable_survives(job, &wire->durable_step);
	wire->durability = pace_durability(job);
	wire->durable_lag_ms = durable_lag_ns(job) / 1000000;
	wire->units = job->catalog.unit_count;
	wire->parameters = job->catalog.parameters;
	wire->host_bytes = budget_host_bytes(job);
	wire->cache_bytes = budget_cache_bytes(job);
	wire->warm_bytes = warm_bytes(job);
	wire->warm_most_bytes = job->location.warm_most_bytes;
	wire->host_budget = budget_limits(job)->host_budget;
	wire->nvme_budget = budget_limits(job)->nvme_budget;
	wire->readers = readers_count(job);
	wire->reader_bytes = readers_bytes(job);
	wire->nvme_bytes = budget_nvme_bytes(job);
	wire->is_parameter_placement_auto = job->options.parameter_placement == PLACEMENT_AUTO;
	wire->is_optimizer_placement_auto = job->options.optimizer_placement == PLACEMENT_AUTO;
	wire->parameter_placement = (char *)placement_of(job, job->options.parameter_placement,
							 job->location.has_nvme_parameters);
	wire->optimizer_placement =
		(char *)placement_of(job, job->options.optimizer_placement, job->location.has_nvme_optimizer);
	wire->gradient_placement = (char *)gradient_placement(job);
	wire->spill_bytes = gradients_spill_bytes(job);
	wire->optimizer = (char *)job->options.optimizer->name;
	wire->moments = (char *)moments_of(&job->options);
	wire->loss_scale = update_loss_scale(job)->value;
	wire->io_weight = job->options.io_weight;
	wire->io_share = budget_limits(job)->io_share;
	report_account(job, NULL, &entry->statistics);
	wire->statistics = &entry->statistics;
	if (job_is_broken(job)) {
		memcpy(entry->reason, job->epoch.reason, sizeof(entry->reason));
		wire->reason = entry->reason;
		wire->remedy = (char *)lost_remedy(job, entry->remedy);
	}
	if (job_is_lost(job))
		fill_record(wire, life_lost_record(job));
	fill_waits(entry, job);
	r = report_job_gpus(job, &entry->gpus, wire);
	return r == 0 ? fill_members(entry, job) : r;
}

static void free_entries(struct job_entry *entries, size_t count)
{
	for (size_t i = 0; entries && i < count; i++) {
		free(entries[i].members);
		free(entries[i].member_pointers);
		report_job_gpus_free(&entries[i].gpus);
	}
	free(entries);
}

/* The oldest ones that may fit together; how many, and how many there are. */
static void count_visible(const struct node *node, const struct port *port, size_t *ret_count,
			  uint32_t *ret_total)
{
	size_t count = 0, members = 0;
	uint32_t total = 0;

	QUEUE_FOREACH (link, &node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);

		if (!access_may_see(job, port))
			continue;
		/* A GPU takes as much as a member. */
		members += job->members.count + report_job_gpu_count(job);
		if (count == total && count < JOBS_PER_REPLY && members <= MEMBERS_PER_REPLY)
			count++;
		total++;
	}
	*ret_count = count;
	*ret_total = total;
}

/* Beside others of its kind: a tag and its length come before it. */
static size_t packed_bytes(const Tierd__Wire__JobEntry *wire)
{
	return protobuf_c_message_get_packed_size(&wire->base) + 1 + 5;
}

/* Of most jobs, as many as fit. */
static int fill_jobs(struct job_entry *entries, Tierd__Wire__JobEntry **pointers, size_t most,
		     struct node *node, const struct port *port, size_t *ret_count)
{
	size_t count = 0, bytes = 0;
	int r = 0;

	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (count == most)
			break;
		if (!access_may_see(job, port))
			continue;
		r = fill_job(&entries[count], job);
		if (r < 0)
			return r;
		bytes += packed_bytes(&entries[count].wire);
		if (bytes > JOBS_BYTES)
			break;
		pointers[count] = &entries[count].wire;
		count++;
	}
	*ret_count = count;
	return 0;
}

void report_jobs(struct pending *pending, struct node *node)
{
	const struct port *port = pending_port(pending);
	Tierd__Wire__JobsReply body = TIERD__WIRE__JOBS_REPLY__INIT;
	_cleanup_free_ Tierd__Wire__JobEntry **pointers = NULL;
	struct job_entry *entries;
	size_t most;
	int r = -ENOMEM;

	count_visible(node, port, &most, &body.total);
	entries = calloc(most + 1, sizeof(*entries));
	pointers = calloc(most + 1, sizeof(*pointers));
	if (entries && pointers)
		r = fill_jobs(entries, pointers, most, node, port, &body.n_jobs);
	body.jobs = pointers;
	if (r < 0)
		pending_error(pending, r, "out of memory");
	else
		pending_reply(pending, WIRE_REPLY(JOBS, jobs, &body));
	free_entries(entries, most);
}

/* ---- Units ---- */

static uint32_t count_leases(const struct job *job, uint32_t unit)
{
	uint32_t leases = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		const struct member *member = job->members.ranks[rank];

		if (member && member->has_pages)
			leases += atomic_load(&lease_counters(member->leases, member->buffer_count)[unit]);
	}
	return leases;
}

static const char *state_name(const struct job *job, uint32_t pack)
{
	static const char *const names[] = { "absent", "loading", "resident", "draining", "updating" };

	return job->state < JOB_INITIALIZING ? "forming" : names[residency_state(job, pack)];
}

static void fill_unit(const struct job *job, uint32_t index, Tierd__Wire__UnitEntry *wire, uint64_t *shards)
{
	const struct unit *unit = &job->catalog.units[index];

	tierd__wire__unit_entry__init(wire);
	wire->unit = index;
	wire->name = unit->name;
	wire->elements = unit->parameters;
	wire->bytes = unit_parameter_bytes(unit);
	wire->is_frozen = !unit_is_trainable(unit);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		shards[rank] = unit_layout_shard(unit->trainable, rank + 1, job->options.world_size) -
			       unit_layout_shard(unit->trainable, rank, job->options.world_size);
	wire->n_shard_elements = job->options.world_size;
	wire->shard_elements = shards;
	wire->state = (char *)"forming";
	wire->tiers = (char *)"";
	if (!residency_is_planned(job))
		return;
	wire->state = (char *)state_name(job, unit->pack);
	wire->tiers = (char *)(!job->location.has_stored_parameters   ? "host"
			       : !residency_has_slot(job, unit->pack) ? "nvme"
								      : "host+nvme");
	wire->leases = count_leases(job, index);
	wire->version = residency_version(job, unit->pack);
	wire->is_dirty = residency_is_dirty(job, unit->pack) || update_is_dirty(job, unit->pack);
	wire->pack = unit->pack;
}

static void reply_units(struct pending *pending, const struct job *job, uint32_t first, uint32_t count)
{
	Tierd__Wire__UnitsReply body = TIERD__WIRE__UNITS_REPLY__INIT;
	_cleanup_free_ Tierd__Wire__UnitEntry *entries = calloc(count + 1, sizeof(*entries));
	_cleanup_free_ Tierd__Wire__UnitEntry **pointers = calloc(count + 1, sizeof(*pointers));
	_cleanup_free_ uint64_t *shards =
		calloc((uint64_t)(count + 1) * job->options.world_size, sizeof(*shards));

	if (!entries || !pointers || !shards) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		fill_unit(job, first + i, &entries[i], &shards[(uint64_t)i * job->options.world_size]);
		pointers[i] = &entries[i];
	}
	body.n_units = count;
	body.units = pointers;
	body.total = job->catalog.unit_count;
	pending_reply(pending, WIRE_REPLY(UNITS, units, &body));
}

/* Of several users' jobs of this name, the oldest. */
static struct job *find_of_others(const struct node *node, const struct port *port, const char *name)
{
	QUEUE_FOREACH (link, &node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (access_may_see(job, port) && strcmp(job->name, name) == 0)
			return job;
	}
	return NULL;
}

static struct job *find_job(struct pending *pending, const Tierd__Wire__UnitsRead *request)
{
	const struct port *port = pending_port(pending);
	struct node *node = pending_node(pending);
	struct job *other = NULL;

	if (!request->has_owner && !job_find(node, port->uid, request->job))
		other = find_of_others(node, port, request->job);
	return other ? other : access_find(pending, request->job, request->has_owner, request->owner);
}

/* One whose files cannot be opened has none, and who asks is to know why. */
static bool knows_units(struct pending *pending, const struct job *job)
{
	if (!job_is_broken(job) || job->catalog.unit_count > 0)
		return true;
	pending_error(pending, -EIO, "job %s is broken: %s", job->name, job->epoch.reason);
	return false;
}

void report_units(struct pending *pending, const Tierd__Wire__UnitsRead *request)
{
	const struct job *job = find_job(pending, request);

	if (!job || !knows_units(pending, job))
		return;
	uint32_t left =
		request->first < job->catalog.unit_count ? job->catalog.unit_count - request->first : 0;
	/* Shards are the largest part of an entry. */
	uint32_t most = UNITS_PER_REPLY / (1 + job->options.world_size / 64);

	reply_units(pending, job, request->first, left < most ? left : most);
}

/* ---- Tensors ---- */

void report_tensors(struct pending *pending, const Tierd__Wire__TensorsRead *request)
{
	const struct job *job = access_find(pending, request->job, request->has_owner, request->owner);

	if (job && knows_units(pending, job))
		definition_report_all(pending, job, request->unit, request->tensor);
}
