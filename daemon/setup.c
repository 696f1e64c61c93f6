/* Setup: plans a job's memory and disk, and reserves them off the loop. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/size.h"
#include "daemon/budget.h"
#include "daemon/cache.h"
#include "daemon/disposal.h"
#include "daemon/job.h"
#include "daemon/placement.h"
#include "daemon/refuse.h"
#include "daemon/spill.h"
#include "daemon/tract.h"
#include "offload/fault.h"
#include "offload/nvme.h"

struct setup {
	struct work work;
	struct job *job;
	struct store_layout *nvme, *host; /* NULL: no such store */
	bool is_return; /* of a released job: it has its packs, its stores and their metadata */
	bool is_strict;
	uint64_t arena_bytes, sums_bytes, directory_bytes, device_bytes;
	struct placement placement;
	struct spill_plan spill; /* of sums that may be spilled */
	char file[128];
	struct made made;
	int pinning; /* what engine_buffer_add() said */
	int status;
	char message[1024];
};

/* ---- Streams and places ---- */

static int add_stream(struct store_layout *layout, const char *name, uint32_t *ret_stream)
{
	int r = store_layout_add_stream(layout, name);

	if (r < 0)
		return r;
	*ret_stream = (uint32_t)r;
	return 0;
}

static int add_parameter_streams(struct job *job, struct store_layout *layout)
{
	char name[32];
	int r = 0;

	for (int section = 0; section < UNIT_SECTIONS && r == 0; section++) {
		snprintf(name, sizeof(name), "%s.%s",
			 section < UNIT_TRAINABLE_SECTIONS ? "parameter" : "frozen",
			 section_format((enum unit_section)section));
		r = add_stream(layout, name, &job->streams.parameter[section]);
	}
	return r;
}

static int add_state_streams(struct job *job, struct store_layout *layout)
{
	char name[32];
	int r = 0;

	for (unsigned i = 0; i < UNIT_TRAINABLE_SECTIONS * state_count(&job->options) && r == 0; i++) {
		enum unit_section section = (enum unit_section)(i / state_count(&job->options));
		unsigned state = i % state_count(&job->options);

		if (state_bytes(section, state) == 0)
			continue;
		snprintf(name, sizeof(name), "%s.%s", state_stream_name(&job->options, section, state),
			 section_format(section));
		r = add_stream(layout, name, &job->streams.state[section][state]);
	}
	return r;
}

static int add_state_sections(struct job *job, uint32_t index, enum unit_section section,
			      struct store_layout *layout)
{
	uint64_t elements = job->catalog.packs[index].elements[section];
	int r = 0;

	for (unsigned state = 0; state < state_count(&job->options) && r == 0; state++)
		if (elements > 0 && state_bytes(section, state) > 0)
			r = store_layout_add_section(layout, job->streams.state[section][state],
						     elements * state_bytes(section, state),
						     &job->places[index].state[section][state]);
	return r;
}

static int add_pack(struct job *job, uint32_t index, struct store_layout *parameters,
		    struct store_layout *optimizer)
{
	const struct pack *pack = &job->catalog.packs[index];
	int r = 0;

	for (int section = 0; parameters && section < UNIT_SECTIONS && r == 0; section++)
		if (pack->elements[section] > 0)
			r = store_layout_add_section(
				parameters, job->streams.parameter[section],
				pack->elements[section] * section_element_bytes((enum unit_section)section),
				&job->places[index].parameter[section]);
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS && r == 0; section++)
		r = add_state_sections(job, index, (enum unit_section)section, optimizer);
	return r;
}

static int plan_stores(struct setup *setup)
{
	struct job *job = setup->job;
	int r = 0;

	if (job->has_nvme_parameters || job->has_nvme_optimizer)
		r = store_layout_new(&setup->nvme);
	if (r == 0 && !job->has_nvme_optimizer)
		r = store_layout_new(&setup->host);
	struct store_layout *parameters = job->has_nvme_parameters ? setup->nvme : NULL;
	struct store_layout *optimizer = job->has_nvme_optimizer ? setup->nvme : setup->host;

	if (r == 0 && parameters)
		r = add_parameter_streams(job, parameters);
	if (r == 0)
		r = add_state_streams(job, optimizer);
	for (uint32_t i = 0; i < job->catalog.pack_count && r == 0; i++)
		r = add_pack(job, i, parameters, optimizer);
	return r < 0 ? refuse(setup->message, sizeof(setup->message), r, "its streams cannot be laid out: %s",
			      strerror(-r))
		     : 0;
}

static int add_accumulator(struct setup *setup)
{
	int r = setup->nvme ? 0 : store_layout_new(&setup->nvme);

	if (r == 0)
		r = spill_lay_out(setup->job, setup->nvme);
	setup->job->has_nvme_sums = true;
	return r < 0 ? refuse(setup->message, sizeof(setup->message), r,
			      "its gradient sums cannot be laid out: %s", strerror(-r))
		     : 0;
}

/* ---- Needs ---- */

/* Beside the definitions, which are charged as they come. */
static uint64_t job_metadata_bytes(const struct job *job)
{
	const struct catalog *catalog = &job->catalog;

	return catalog->unit_count * sizeof(struct sum) * job->sum_ranks +
	       catalog->pack_count *
		       (sizeof(struct pack) + sizeof(struct residence) + sizeof(struct pack_place)) +
	       job->options.world_size * (catalog->unit_count * 2 * sizeof(uint32_t) +
					  member_phase_bytes(job) + sizeof(struct member));
}

static struct budget_needs find_needs(const struct setup *setup)
{
	const struct job *job = setup->job;
	uint64_t ranks = job->options.world_size;
	struct budget_needs needs = {
		.sums = size_sum(setup->sums_bytes, setup->spill.metadata_bytes),
		.gradients = size_product(ranks * job->options.gradient_buffers,
					  job->catalog.gradient_bytes_maximum),
		.held = gradient_held_bytes(job, job->held_count),
		.windows = (ranks - job->windows) * WINDOW_BYTES,
		.pages = setup->directory_bytes +
			 ranks * size_align(
					 lease_bytes(job->catalog.unit_count, job->options.gradient_buffers),
					 4096),
		.metadata = setup->is_return ? 0 : job_metadata_bytes(job),
	};

	if (setup->nvme)
		needs.metadata += store_layout_metadata_bytes(setup->nvme);
	if (setup->host)
		needs.state = store_layout_extents(setup->host) * STORE_EXTENT_BYTES;
	return needs;
}

/* ---- Plan ---- */

static int plan_sums(struct setup *setup)
{
	struct job *job = setup->job;
	uint64_t elements = 0, bytes;

	job->sum_ranks = job->options.stage < 2 ? job->options.world_size : 1;
	/* A rank that runs ahead of the others, or skips a unit, needs somewhere to put its gradients aside.
	 */
	job->held_count =
		job->options.stage >= 2 && job->options.world_size > 1 ? job->options.world_size : 0;
	job->sum_offsets = calloc(job->catalog.unit_count, sizeof(*job->sum_offsets));
	if (!job->sum_offsets)
		return refuse(setup->message, sizeof(setup->message), -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < job->catalog.unit_count; i++) {
		job->sum_offsets[i] = elements;
		elements += unit_layout_trainable(&job->catalog.units[i].layout);
	}
	if (!size_multiply(elements, sizeof(float) * job->sum_ranks, &bytes) || bytes > UINT64_MAX - 4096)
		return refuse(setup->message, sizeof(setup->message), -EOVERFLOW,
			      "its gradients are larger than any memory");
	setup->sums_bytes = size_align(bytes, 4096);
	return 0;
}

/* As many as there is room for beside the rest. */
static void add_buffers(struct setup *setup, struct budget_needs *needs)
{
	uint64_t arena, spare = budget_spare_host(setup->job, needs, &arena);
	uint64_t bytes = spill_more_bytes(&setup->spill, spare, arena);

	needs->sums += bytes;
	setup->sums_bytes += bytes;
}

static bool should_spill(struct setup *setup)
{
	struct job *job = setup->job;
	struct budget_needs needs = find_needs(setup);

	if (job->options.stage < 2 || job->node->path_count == 0 || setup->sums_bytes == 0)
		return false;
	if (job->options.gradient_placement != PLACEMENT_DEFAULT)
		return job->options.gradient_placement == PLACEMENT_NVME;
	return (placement_is_chosen(job) ? setup->placement.has_nvme_sums : !budget_fits_host(job, &needs)) &&
	       spill_is_worth_it(job, setup->sums_bytes);
}

static int place_sums(struct setup *setup)
{
	struct job *job = setup->job;
	int r = 0;

	if (!setup->is_return) {
		job->has_nvme_sums = false;
		if (should_spill(setup))
			r = add_accumulator(setup);
	}
	job->sum_buffer_bytes = 0;
	if (r < 0 || !job->has_nvme_sums)
		return r;
	setup->spill = spill_plan(job);
	setup->sums_bytes = setup->spill.buffer_bytes;
	spill_cut_sums(job);
	job->sum_buffer_bytes = setup->spill.buffer_bytes;
	return 0;
}

static int plan_packs(struct setup *setup)
{
	struct job *job = setup->job;
	int r = catalog_pack(&job->catalog);

	if (r < 0)
		return refuse(setup->message, sizeof(setup->message), r, "out of memory");
	job->places = calloc(job->catalog.pack_count, sizeof(*job->places));
	job->residences = calloc(job->catalog.pack_count, sizeof(*job->residences));
	job->next_use = calloc(job->catalog.pack_count, sizeof(*job->next_use));
	if (!job->places || !job->residences || !job->next_use)
		return refuse(setup->message, sizeof(setup->message), -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < job->catalog.pack_count; i++) {
		job->residences[i] = (struct residence){ .slot = SLOT_NONE, .job = job };
		queue_init(&job->residences[i].waiters);
		queue_init(&job->residences[i].link);
		queue_init(&job->residences[i].sweep_link);
	}
	return 0;
}

static int plan_budgets(struct setup *setup)
{
	struct job *job = setup->job;
	struct budget_needs needs = find_needs(setup);

	if (job->has_nvme_sums)
		add_buffers(setup, &needs);
	int r = budget_take_host(job, &needs, setup->message, sizeof(setup->message));

	setup->arena_bytes = budget_arena_bytes(job);
	if (r < 0 || !setup->nvme)
		return r;
	setup->device_bytes =
		store_layout_device_bytes(setup->nvme, job->node->path_count) / job->node->path_count;
	return budget_take_paths(job, setup->device_bytes, setup->message, sizeof(setup->message));
}

/* ---- Placement ---- */

static int plan_memory(struct setup *setup)
{
	int r = plan_sums(setup);

	if (r == 0)
		r = place_sums(setup);
	return r < 0 ? r : plan_budgets(setup);
}

static int plan_placed(struct setup *setup, struct placement placement)
{
	int r;

	setup->placement = placement;
	setup->job->has_nvme_parameters = placement.has_nvme_parameters;
	setup->job->has_nvme_optimizer = placement.has_nvme_optimizer;
	r = plan_stores(setup);
	return r < 0 ? r : plan_memory(setup);
}

static void forget_placed(struct setup *setup)
{
	setup->nvme = store_layout_free(setup->nvme);
	setup->host = store_layout_free(setup->host);
	setup->spill = (struct spill_plan){ 0 };
	free(setup->job->sum_offsets);
	setup->job->sum_offsets = NULL;
	slots_free(&setup->job->slots);
	budget_give_back(setup->job);
}

static void log_choice(const struct setup *setup, const struct placement_job *description)
{
	const struct job *job = setup->job;
	char traffic[16];

	if (!placement_is_chosen(job))
		return;
	budget_print(placement_traffic(description, setup->placement), traffic);
	log_info("job %s: placement auto: parameters on %s, optimizer state on %s, sums on %s; a step moves "
		 "%s to "
		 "and from NVMe, less what is cached",
		 job->name, placement_name(job->has_nvme_parameters), placement_name(job->has_nvme_optimizer),
		 placement_name(job->has_nvme_sums), traffic);
}

/* It does not fit, and will not when caches have shrunk. */
static bool is_hopeless(const struct job *job, int r)
{
	return r == -ENOSPC || (r == -ENOMEM && !cache_can_cover(job, job->shortage));
}

/* The best of all choices that fits; the last one's refusal is the job's, because it would take the least of
 * host memory. */
static int plan_placement(struct setup *setup)
{
	struct placement_job description = placement_describe(setup->job);
	struct placement choices[PLACEMENT_CHOICES];
	unsigned count = placement_choices(&description, choices);
	int r = plan_placed(setup, choices[0]);

	for (unsigned i = 1; i < count && is_hopeless(setup->job, r); i++) {
		forget_placed(setup);
		r = plan_placed(setup, choices[i]);
	}
	if (r == 0)
		log_choice(setup, &description);
	return r;
}

static int plan(struct setup *setup)
{
	int r = setup->is_return ? 0 : plan_packs(setup);

	setup->directory_bytes = size_align(directory_bytes(setup->job->catalog.unit_count), 4096);
	if (r == 0)
		r = setup->is_return ? plan_memory(setup) : plan_placement(setup);
	return r;
}

/* ---- On a worker ---- */

static uint64_t free_bytes(int directory_fd)
{
	struct statvfs status;

	return fstatvfs(directory_fd, &status) == 0 ? (uint64_t)status.f_bavail * status.f_frsize : 0;
}

static int make_tier(struct setup *setup, unsigned index, struct tier **ret_tier)
{
	struct node *node = setup->job->node;
	struct node_path *path = &node->paths[index];
	struct nvme_config config = { .engine = node->engine,
				      .directory_fd = path->directory_fd,
				      .directory = path->folder,
				      .name = setup->file,
				      .capacity = setup->device_bytes,
				      .is_buffered = !path->is_direct,
				      .device = path->device,
				      .weight = setup->job->options.io_weight };
	_cleanup_(tier_freep) struct tier *tier = NULL;
	struct fault_config fault;
	char needed[16], there[16];
	int r = nvme_tier_new(&config, &tier);

	if (r < 0)
		return refuse(setup->message, sizeof(setup->message), r,
			      "its file in %s cannot be created: %s", path->path, strerror(-r));
	uint64_t left = free_bytes(path->directory_fd);

	r = nvme_tier_reserve(tier);
	if (r == -ENOSPC)
		return refuse(setup->message, sizeof(setup->message), r,
			      "it needs %s in %s, and %s are left on that disk",
			      budget_print(setup->device_bytes, needed), path->path,
			      budget_print(left, there));
	if (r < 0)
		return refuse(setup->message, sizeof(setup->message), r, "%s cannot be reserved in %s: %s",
			      budget_print(setup->device_bytes, needed), path->path, strerror(-r));
	if (node->fault && fault_config_parse(node->fault, &fault) == 0) {
		r = fault_tier_new(TAKE_PTR(tier), &fault, &tier);
		if (r < 0)
			return refuse(setup->message, sizeof(setup->message), r, "out of memory");
	}
	*ret_tier = TAKE_PTR(tier);
	return 0;
}

/* A write that failed once: no harm yet, but the disk's owner wants to know. */
static void on_moved(const struct store_failure *failure, void *argument)
{
	const struct job *job = argument;

	events_of_job(
		job, EVENT_WRITE_FAILED, &(struct log_fields){ .tier = "nvme", .device = failure->device },
		"%s cannot be written at byte %llu: %s, falling back to another place: look at the disk "
		"before more of it fails",
		failure->device, (unsigned long long)failure->device_offset, strerror(-failure->status));
}

static int make_nvme_store(struct setup *setup, struct store **ret_store)
{
	struct node *node = setup->job->node;
	struct store_config config = {
		.workers = node->workers,
		.on_moved = on_moved,
		.argument = setup->job,
	};
	struct tier *tiers[NODE_MAX_PATHS] = { NULL };
	int r = 0;

	for (unsigned i = 0; i < node->path_count && r == 0; i++)
		r = make_tier(setup, i, &tiers[i]);
	if (r < 0) {
		for (unsigned i = 0; i < node->path_count; i++)
			tier_free(tiers[i]);
		return r;
	}
	r = store_new_nvme(&config, TAKE_PTR(setup->nvme), tiers, node->path_count, ret_store);
	return r < 0 ? refuse(setup->message, sizeof(setup->message), r, "its store cannot be made: %s",
			      strerror(-r))
		     : 0;
}

static int make_stores(struct setup *setup)
{
	struct job *job = setup->job;
	struct store *nvme = NULL, *host = NULL;
	int r = 0;

	if (setup->nvme)
		r = make_nvme_store(setup, &nvme);
	if (r == 0 && setup->host) {
		r = store_new_host(TAKE_PTR(setup->host), &host);
		if (r < 0)
			refuse(setup->message, sizeof(setup->message), r,
			       "no host memory for its optimizer state: %s", strerror(-r));
	}
	setup->made.parameter_store = job->has_nvme_parameters ? nvme : NULL;
	setup->made.optimizer_store = job->has_nvme_optimizer ? nvme : host;
	setup->made.gradient_store = job->has_nvme_sums ? nvme : NULL;
	/* After an error both may be unreachable otherwise. */
	if (r < 0) {
		store_free(nvme);
		store_free(host);
		setup->made.parameter_store = setup->made.optimizer_store = setup->made.gradient_store = NULL;
	}
	return r;
}

static void note_pinning(struct setup *setup, const struct memory *memory)
{
	int r = engine_buffer_add(setup->job->node->engine, memory->base, memory->length);

	if (r < 0)
		setup->pinning = r;
}

/* Huge pages first, then pinning, then the seals: the other orders fail. */
static int make_memory(struct setup *setup)
{
	int r = memory_new_shared("tierd-arena", setup->arena_bytes, &setup->made.arena);

	if (r == 0) {
		staging_use(&setup->job->node->staging, setup->job->node->engine);
		memory_make_huge(&setup->made.arena, true);
		if (setup->job->has_nvme_parameters)
			note_pinning(setup, &setup->made.arena);
		r = memory_seal(&setup->made.arena, MEMORY_READ_ONLY, setup->is_strict);
	}
	if (r == 0 && setup->job->slots.cache > 0)
		r = tract_make_cache(setup->job, &setup->made.cache, &setup->pinning);
	if (r == 0)
		r = memory_new_shared("tierd-directory", setup->directory_bytes, &setup->made.directory);
	if (r == 0)
		r = memory_seal(&setup->made.directory, MEMORY_READ_ONLY, setup->is_strict);
	if (r == 0 && setup->sums_bytes > 0) {
		r = memory_new_private(setup->sums_bytes, &setup->made.sums);
		if (r == 0)
			memory_make_huge(&setup->made.sums, false);
		if (r == 0 && setup->job->has_nvme_sums)
			note_pinning(setup, &setup->made.sums);
	}
	return r < 0 ? refuse(setup->message, sizeof(setup->message), r, "no host memory for it: %s",
			      strerror(-r))
		     : 0;
}

static void run_setup(struct work *work)
{
	struct setup *setup = container_of(work, struct setup, work);

	setup->status = make_memory(setup);
	if (setup->status == 0 && !setup->is_return)
		setup->status = make_stores(setup);
}

/* ---- Back on the loop ---- */

/* Before anything else is planned: what is given up here may be what that needs. */
static void setup_give_up(struct setup *setup)
{
	store_layout_free(setup->nvme);
	store_layout_free(setup->host);
	disposal_start(setup->job->node, &setup->made);
}

static void fill_directory(struct job *job)
{
	struct directory_header *header = job->directory;

	header->magic = PAGES_MAGIC;
	header->version = PAGES_VERSION;
	header->unit_count = job->catalog.unit_count;
	header->entries_offset = (uint64_t)((char *)directory_entries(header) - (char *)header);
	header->units_offset = (uint64_t)((char *)directory_units(header) - (char *)header);
	atomic_store(&header->epoch, job->epoch);
	for (uint32_t i = 0; i < job->catalog.unit_count; i++) {
		const struct unit *unit = &job->catalog.units[i];
		const struct pack *pack = &job->catalog.packs[unit->pack];

		for (int section = 0; section < UNIT_SECTIONS; section++)
			directory_units(header)[i].section_offsets[section] =
				pack->slot_offset[section] +
				unit->pack_first[section] * section_element_bytes((enum unit_section)section);
	}
}

/* Parameters in host memory have their slot for ever; they are published once they have values. */
static void take_all_slots(struct job *job)
{
	for (uint32_t pack = 0; !job->has_nvme_parameters && pack < job->catalog.pack_count; pack++) {
		job->residences[pack].slot = slots_take(&job->slots, pack);
		job->residences[pack].state = DIRECTORY_UPDATING;
	}
}

static int take_over(struct setup *setup)
{
	struct job *job = setup->job;

	job->arena = setup->made.arena;
	job->cache = setup->made.cache;
	job->sums_memory = setup->made.sums;
	job->directory_memory = setup->made.directory;
	job->directory = (struct directory_header *)job->directory_memory.base;
	if (!setup->is_return) {
		job->parameter_store = setup->made.parameter_store;
		job->optimizer_store = setup->made.optimizer_store;
		job->gradient_store = setup->made.gradient_store;
	}
	setup->made = (struct made)MADE_INIT;
	fill_directory(job);
	tract_open_all(job);
	take_all_slots(job);
	int r = gradient_init(job);

	return r < 0 ? refuse(setup->message, sizeof(setup->message), r,
			      "no host memory for its gradients: %s", strerror(-r))
		     : 0;
}

static void end_setup(struct setup *setup, int r)
{
	struct job *job = setup->job;

	job->setup = NULL;
	setup_give_up(setup);
	if (setup->is_return) {
		job->phase = r < 0 ? JOB_RELEASED : JOB_TRAINED;
		if (r < 0)
			setup_release(job);
		else
			events_of_job(job, EVENT_RETURNED, NULL,
				      "its ranks are back: it has %llu MiB of host memory",
				      (unsigned long long)(job->host_bytes / MIB));
	} else {
		job->phase = r < 0 ? JOB_FORMING : JOB_FILLING;
		if (r < 0)
			setup_clear(job);
	}
}

static void finish(struct setup *setup, int r)
{
	end_setup(setup, r);
	cache_end_wait(setup->job);
	job_planned(setup->job, r, setup->message);
	free(setup);
}

/* As if it had not begun: it does again when others have given up some of their memory. */
static void put_off(struct setup *setup, int r)
{
	end_setup(setup, r);
	free(setup);
}

static void on_setup_done(struct work *work)
{
	struct setup *setup = container_of(work, struct setup, work);

	node_note_pinning(setup->job->node, setup->pinning);
	if (setup->status == 0)
		setup->status = take_over(setup);
	finish(setup, setup->status);
}

void setup_start(struct job *job)
{
	struct setup *setup = calloc(1, sizeof(*setup));
	int r;

	if (!setup) {
		job_planned(job, -ENOMEM, "out of memory");
		return;
	}
	*setup = (struct setup){
		.job = job,
		.is_return = job->phase == JOB_RELEASED,
		.is_strict = job->uid == 0 || job->uid == geteuid() || job->options.sharing != SHARING_NONE,
		.made = MADE_INIT,
		.work = { .run = run_setup, .done = on_setup_done, .urgency = WORK_NORMAL },
	};
	snprintf(setup->file, sizeof(setup->file), "%u-%s-%llu.store", (unsigned)job->uid, job->name,
		 (unsigned long long)job->node->jobs_created);
	job->setup = setup;
	job->phase = setup->is_return ? JOB_RETURNING : JOB_PLANNING;
	r = plan(setup);
	if (r == -ENOMEM && cache_can_cover(job, job->shortage) && cache_await(job)) {
		put_off(setup, r);
	} else if (r < 0) {
		finish(setup, r);
	} else {
		cache_end_wait(job);
		workers_submit(job->node->slow_workers, &setup->work);
	}
}

/* What tierctl shows of a path is more than its present jobs. */
static void remember_traffic(const struct job *job)
{
	const struct store *store = job_nvme_store(job);

	for (unsigned i = 0; store && i < job->node->path_count && job->path_bytes[i] > 0; i++) {
		struct node_path *path = &job->node->paths[i];

		path->moved[TIER_READ] += store_device_bytes(store, i, TIER_READ);
		path->moved[TIER_WRITE] += store_device_bytes(store, i, TIER_WRITE);
	}
}

static void clear_memory(struct job *job, struct made *made)
{
	gradient_clear(job);
	made->arena = job->arena;
	made->cache = job->cache;
	made->sums = job->sums_memory;
	made->directory = job->directory_memory;
	disposal_start(job->node, made);
	job->arena = job->cache = job->sums_memory = job->directory_memory = (struct memory)MEMORY_INIT;
	job->directory = NULL;
	slots_free(&job->slots);
	free(job->sum_offsets);
	job->sum_offsets = NULL;
	job->has_next_uses = false;
}

void setup_release(struct job *job)
{
	struct made made = MADE_INIT;

	residency_forget_all(job);
	clear_memory(job, &made);
	budget_release_host(job);
}

void setup_clear(struct job *job)
{
	struct made made = MADE_INIT;

	made.parameter_store = job->parameter_store;
	made.optimizer_store = job->optimizer_store;
	made.gradient_store = job->gradient_store;
	sweep_free(job);
	remember_traffic(job);
	clear_memory(job, &made);
	job->parameter_store = job->optimizer_store = job->gradient_store = NULL;
	catalog_unpack(&job->catalog);
	free(job->places);
	free(job->residences);
	free(job->next_use);
	job->places = NULL;
	job->residences = NULL;
	job->next_use = NULL;
	budget_give_back(job);
}
