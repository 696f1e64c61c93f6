/* The plan of a job: where its state lies, in which streams, and what memory and disk that takes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/member.h"
#include "daemon/life/setup.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/update/update.h"

/* ---- Streams and places ---- */

static int add_stream(struct store_layout *layout, const char *name, uint32_t *ret_stream)
{
	int r = store_layout_add_stream(layout, name);

	if (r < 0)
		return r;
	*ret_stream = (uint32_t)r;
	return 0;
}

/* Tensors of one format lie in streams of their own, where their moments have another. */
static const char *moments_suffix(enum unit_section section)
{
	static const char *const suffixes[MOMENT_FORMATS] = {
		[MOMENTS_FP32] = "", [MOMENTS_BF16] = ".moments-bf16", [MOMENTS_INT8] = ".moments-int8"
	};

	return section_is_trainable(section) ? suffixes[state_moments(section)] : "";
}

/* What is frozen has its values for good before the first commit. */
static int add_parameter_stream(struct store_layout *layout, enum unit_section section, uint32_t *ret_stream)
{
	bool is_trainable = section_is_trainable(section);
	char name[WIRE_MAX_STREAM_NAME + 1];
	int r;

	snprintf(name, sizeof(name), "%s.%s%s", is_trainable ? "parameter" : "frozen",
		 section_format(section), moments_suffix(section));
	r = is_trainable ? store_layout_add_stream(layout, name)
			 : store_layout_add_fixed_stream(layout, name);
	if (r < 0)
		return r;
	*ret_stream = (uint32_t)r;
	return 0;
}

static int add_parameter_streams(struct job *job, struct store_layout *layout)
{
	int r = 0;

	for (int section = 0; section < UNIT_SECTIONS && r == 0; section++)
		r = add_parameter_stream(layout, (enum unit_section)section,
					 &job->location.streams.parameter[section]);
	return r;
}

static int add_state_streams(struct job *job, struct store_layout *layout)
{
	char name[WIRE_MAX_STREAM_NAME + 1];
	int r = 0;

	for (unsigned i = 0; i < UNIT_TRAINABLE_SECTIONS * state_count(&job->options) && r == 0; i++) {
		enum unit_section section = (enum unit_section)(i / state_count(&job->options));
		unsigned state = i % state_count(&job->options);

		if (!state_exists(section, state))
			continue;
		snprintf(name, sizeof(name), "%s.%s%s", state_stream_name(&job->options, section, state),
			 section_format(section), moments_suffix(section));
		r = add_stream(layout, name, &job->location.streams.state[section][state]);
		/* So many elements are one block, or some, of every stream: chunks of a sweep are. */
		if (r == 0 && state_grain(section, state) > 1)
			r = store_layout_set_blocks(layout, job->location.streams.state[section][state],
						    state_bytes(section, state, STORE_BLOCK_BYTES));
	}
	return r;
}

static int add_state_sections(struct job *job, uint32_t index, enum unit_section section,
			      struct store_layout *layout)
{
	uint64_t elements = job->catalog.packs[index].elements[section];
	int r = 0;

	for (unsigned state = 0; state < state_count(&job->options) && r == 0; state++)
		if (elements > 0 && state_exists(section, state))
			r = store_layout_add_section(layout, job->location.streams.state[section][state],
						     state_bytes(section, state, elements),
						     &job->location.places[index].state[section][state]);
	return r;
}

static int add_parameter_sections(struct job *job, uint32_t index, struct store_layout *layout)
{
	const struct pack *pack = &job->catalog.packs[index];
	int r = 0;

	for (int section = 0; section < UNIT_SECTIONS && r == 0; section++)
		if (pack->elements[section] > 0)
			r = store_layout_add_section(
				layout, job->location.streams.parameter[section],
				pack->elements[section] * section_element_bytes((enum unit_section)section),
				&job->location.places[index].parameter[section]);
	return r;
}

/* The last one: without it the others lie as they would. */
static int add_blobs(struct job *job, struct store_layout *layout)
{
	uint64_t offset;
	int r = add_stream(layout, "blobs", &job->location.streams.blobs);

	return r < 0 ? r
		     : store_layout_add_section(layout, job->location.streams.blobs, blobs_bytes(job),
						&offset);
}

static int refuse_layout(struct setup *setup, const char *what, int r)
{
	if (r == -EOVERFLOW)
		return SETUP_REFUSE(
			setup, r,
			"%s would take more than the %llu TiB that a store can have: define less, or make "
			"several jobs of it",
			what, (unsigned long long)(STORE_MAX_EXTENTS * STORE_EXTENT_BYTES / TIB));
	return SETUP_REFUSE(setup, r, "%s cannot be laid out: %s", what, strerror(-r));
}

/* The streams have the same numbers in each store of the job, and the states the same places, wherever they
 * are: one stream after the other. */
static int add_all(struct job *job, struct store_layout *layout, bool with_parameters, bool with_states)
{
	int r = add_parameter_streams(job, layout);

	if (r == 0)
		r = add_state_streams(job, layout);
	for (uint32_t i = 0; i < job->catalog.pack_count && r == 0; i++) {
		if (with_parameters)
			r = add_parameter_sections(job, i, layout);
		for (int section = 0; section < UNIT_TRAINABLE_SECTIONS && with_states && r == 0; section++)
			r = add_state_sections(job, i, (enum unit_section)section, layout);
	}
	return r;
}

static int plan_nvme_store(struct setup *setup)
{
	struct job *job = setup->job;
	int r = store_layout_new(&setup->nvme);

	if (r == 0 && job->location.is_durable)
		r = durable_lay_out(job, setup->nvme);
	if (r == 0)
		r = add_all(job, setup->nvme, job->location.has_stored_parameters,
			    job->location.has_nvme_optimizer || job->location.has_backup);
	if (r == 0 && job->location.is_durable && job->options.blob_bytes > 0)
		r = add_blobs(job, setup->nvme);
	return r;
}

static int plan_host_store(struct setup *setup)
{
	struct job *job = setup->job;
	int r = store_layout_new(&setup->host);

	if (r == 0 && job->location.is_durable)
		r = store_layout_add_stream(setup->host, "record");
	return r < 0 ? r : add_all(job, setup->host, false, true);
}

static int plan_stores(struct setup *setup)
{
	struct job *job = setup->job;
	int r = 0;

	job->location.is_durable =
		job->location.paths.count > 0 && job->location.durability != DURABILITY_NONE;
	job->location.has_stored_parameters = job->location.has_nvme_parameters || job->location.is_durable;
	job->location.has_backup = job->location.is_durable && !job->location.has_nvme_optimizer;
	job->location.warm_most_bytes = warm_bytes_most(job);
	if (job->location.has_stored_parameters || job->location.has_nvme_optimizer)
		r = plan_nvme_store(setup);
	if (r == 0 && !job->location.has_nvme_optimizer)
		r = plan_host_store(setup);
	return r < 0 ? refuse_layout(setup, "its state", r) : 0;
}

static int add_accumulator(struct setup *setup)
{
	int r = store_layout_new(&setup->sums);

	if (r == 0)
		r = spill_lay_out(setup->job, setup->sums);
	setup->job->location.has_nvme_sums = true;
	return r < 0 ? refuse_layout(setup, "its gradients' sums", r) : 0;
}

/* ---- Needs ---- */

/* Beside the definitions, which are charged as they come. */
static uint64_t job_metadata_bytes(const struct job *job)
{
	const struct catalog *catalog = &job->catalog;

	return blobs_bytes(job) + catalog->pack_count * (sizeof(struct pack) + residency_pack_bytes() +
							 sizeof(struct pack_place) + update_pack_bytes());
}

/* What goes with its ranks. */
static uint64_t rank_metadata_bytes(const struct job *job)
{
	const struct catalog *catalog = &job->catalog;

	return gradients_metadata_bytes(job) +
	       job->options.world_size * (catalog->tensor_count * sizeof(uint16_t) + member_phase_bytes(job) +
					  member_bytes(job));
}

static struct budget_needs find_needs(const struct setup *setup)
{
	const struct job *job = setup->job;
	uint64_t ranks = job->options.world_size;
	struct gradient_buffers buffers = gradient_buffers_plan(&job->catalog, job->options.gradient_buffers,
								job->options.gradient_bytes);
	struct budget_needs needs = {
		.sums = size_sum(setup->sums_bytes, setup->spill.metadata_bytes),
		.gradients = size_product(ranks, gradient_buffers_bytes(&buffers)),
		.spares = gradients_spare_bytes(job),
		.windows = budget_window_bytes(job),
		.pages = setup->directory_bytes + rank_metadata_bytes(job) + update_metadata_bytes(job) +
			 ranks * size_align(lease_bytes(job->catalog.unit_count, buffers.count), 4096),
		.metadata = setup->is_return ? 0 : job_metadata_bytes(job),
	};

	if (setup->nvme)
		needs.metadata += store_layout_metadata_bytes(setup->nvme);
	if (setup->sums)
		needs.sums = size_sum(needs.sums, store_layout_metadata_bytes(setup->sums));
	if (setup->host)
		needs.state = store_layout_whole_bytes(setup->host);
	return needs;
}

/* ---- Plan ---- */

static int plan_sums(struct setup *setup)
{
	int r = gradients_plan(setup->job, &setup->sums_bytes);

	return r < 0 ? SETUP_REFUSE(setup, r,
				    r == -ENOMEM ? "out of memory"
						 : "its gradients are larger than any memory")
		     : 0;
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
	/* A job that comes back keeps its state where it is; its sums may lie elsewhere than before. */
	return (placement_is_chosen(job) && !setup->is_return ? setup->placement.has_nvme_sums
							      : !budget_fits_host(job, &needs)) &&
	       spill_is_worth_it(job, setup->sums_bytes);
}

static int place_sums(struct setup *setup)
{
	struct job *job = setup->job;
	int r = 0;

	job->location.has_nvme_sums = false;
	if (should_spill(setup))
		r = add_accumulator(setup);
	if (r < 0 || !job->location.has_nvme_sums)
		return r;
	setup->spill = spill_plan(job);
	setup->sums_bytes = setup->spill.buffer_bytes;
	spill_take_plan(job, &setup->spill);
	return 0;
}

static int plan_packs(struct setup *setup)
{
	struct job *job = setup->job;
	int r = catalog_pack(&job->catalog);

	if (r < 0)
		return SETUP_REFUSE(setup, r, "out of memory");
	job->location.places = calloc(job->catalog.pack_count, sizeof(*job->location.places));
	if (!job->location.places || residency_plan(job) < 0 || update_make_packs(job) < 0)
		return SETUP_REFUSE(setup, -ENOMEM, "out of memory");
	return 0;
}

/* On each path. */
static uint64_t device_bytes(const struct job *job, const struct store_layout *layout)
{
	unsigned paths = job->location.paths.count;

	return layout ? store_layout_device_bytes(layout, paths) / paths : 0;
}

static int plan_paths(struct setup *setup)
{
	struct job *job = setup->job;

	setup->device_bytes = device_bytes(job, setup->nvme);
	setup->sums_device_bytes = device_bytes(job, setup->sums);
	return budget_take_paths(job, setup->device_bytes, setup->sums_device_bytes, setup->message,
				 sizeof(setup->message));
}

static int plan_budgets(struct setup *setup)
{
	struct job *job = setup->job;
	struct budget_needs needs = find_needs(setup);

	if (job->location.has_nvme_sums)
		add_buffers(setup, &needs);
	setup->needs = needs;
	int r = budget_take_host(job, &needs, residency_slots(job), setup->message, sizeof(setup->message));

	setup->arena_bytes = slots_memory(residency_slots(job)->reserved);
	if (r < 0 || (!setup->nvme && !setup->sums))
		return r;
	return plan_paths(setup);
}

/* ---- Placement ---- */

static int plan_memory(struct setup *setup)
{
	int r = plan_sums(setup);

	if (r == 0)
		r = place_sums(setup);
	return r < 0 ? r : plan_budgets(setup);
}

/* Of a job that comes back: it has its other store. */
static int plan_return(struct setup *setup)
{
	int r = setup->job->location.has_backup ? plan_host_store(setup) : 0;

	return r < 0 ? refuse_layout(setup, "its state", r) : plan_memory(setup);
}

static int plan_placed(struct setup *setup, struct placement placement)
{
	int r;

	setup->placement = placement;
	setup->job->location.has_nvme_parameters = placement.has_nvme_parameters;
	setup->job->location.has_nvme_optimizer = placement.has_nvme_optimizer;
	r = plan_stores(setup);
	return r < 0 ? r : plan_memory(setup);
}

static void forget_placed(struct setup *setup)
{
	setup->nvme = store_layout_free(setup->nvme);
	setup->host = store_layout_free(setup->host);
	setup->sums = store_layout_free(setup->sums);
	setup->spill = (struct spill_plan){ 0 };
	gradients_forget_plan(setup->job);
	slots_free(residency_slots(setup->job));
	budget_give_back(setup->job);
}

static void log_choice(const struct setup *setup, const struct placement_job *description)
{
	const struct job *job = setup->job;
	char traffic[16];

	if (!placement_is_chosen(job))
		return;
	budget_print(placement_traffic(description, setup->placement), traffic);
	log_info("job %s of user %u: placement auto: parameters on %s, optimizer state on %s, sums on %s; a "
		 "step moves "
		 "%s to "
		 "and from NVMe, less what is cached",
		 job->name, (unsigned)job->uid, placement_name(job->location.has_nvme_parameters),
		 placement_name(job->location.has_nvme_optimizer),
		 placement_name(job->location.has_nvme_sums), traffic);
}

/* It does not fit, and will not when caches have shrunk. */
static bool is_hopeless(const struct job *job, int r)
{
	const struct shortage *shortage = budget_shortage(job);

	return r == -ENOSPC || (r == -ENOMEM && !shortage_can_be_covered(shortage, shortage->bytes));
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

int setup_plan(struct setup *setup)
{
	const struct catalog *catalog = &setup->job->catalog;
	int r = setup->is_return ? 0 : plan_packs(setup);

	setup->directory_bytes =
		size_align(directory_bytes(catalog->unit_count, catalog->section_count), 4096);
	if (r == 0)
		r = setup->is_return ? plan_return(setup) : plan_placement(setup);
	return r;
}

/* ---- Units that are still to come ---- */

/* What only grows with more units, and can lie nowhere else. */
static uint64_t least_host_bytes(const struct setup *setup)
{
	const struct job *job = setup->job;
	uint64_t bytes = setup->host ? store_layout_whole_bytes(setup->host) : 0;

	for (uint32_t i = 0; i < job->catalog.pack_count && !job->location.has_nvme_parameters; i++)
		bytes = size_sum(bytes, job->catalog.packs[i].slot_bytes);
	return job->node->path_count > 0 ? bytes : size_sum(bytes, gradients_bytes(job));
}

static int check_placed(struct setup *setup, struct placement placement)
{
	struct job *job = setup->job;
	int r;

	job->location.has_nvme_parameters = placement.has_nvme_parameters;
	job->location.has_nvme_optimizer = placement.has_nvme_optimizer;
	r = plan_stores(setup);
	if (r == 0)
		r = budget_check_least(job, least_host_bytes(setup), setup->message, sizeof(setup->message));
	if (r == 0 && setup->nvme)
		r = budget_take_paths(job, device_bytes(job, setup->nvme), 0, setup->message,
				      sizeof(setup->message));
	return r;
}

int setup_check(struct job *job, char *message, size_t size)
{
	struct setup setup = { .job = job, .made = MADE_INIT };
	int r;

	/* Where its state will lie depends on all of it. */
	if (placement_is_chosen(job))
		return 0;
	r = plan_packs(&setup);
	if (r == 0) {
		struct placement_job description = placement_describe(job);
		struct placement choices[PLACEMENT_CHOICES];

		placement_choices(&description, choices);
		r = check_placed(&setup, choices[0]);
	}
	setup_give_up(&setup);
	setup_clear(job, false);
	return r < 0 ? refuse(message, size, r, "%s", setup.message) : 0;
}

/* ---- Bringing back ---- */

static int restore(struct setup *setup, uint64_t layout)
{
	struct job *job = setup->job;
	uint64_t metadata;
	int r = plan_packs(setup);

	if (r == 0)
		r = plan_stores(setup);
	if (r < 0)
		return r;
	/* Or bytes of one thing would be taken for another. */
	if (layout != record_layout(job))
		return SETUP_REFUSE(
			setup, -EBADMSG,
			"its state is not laid out as this tierd would: start the one that stored it");
	metadata = job_metadata_bytes(job) + store_layout_metadata_bytes(setup->nvme);
	return budget_keep(job, metadata, setup->message, sizeof(setup->message));
}

int setup_restore(struct job *job, uint64_t layout, char *message, size_t size)
{
	struct setup setup = { .job = job };
	int r = restore(&setup, layout);

	store_layout_free(setup.nvme);
	store_layout_free(setup.host);
	if (r < 0)
		return refuse(message, size, r, "%s", setup.message);
	life_step(job, LIFE_RESTORE);
	return 0;
}

/* What it charges the job gives back. */
static int charge(struct job *job, struct store *store, bool is_fork, char *message, size_t size)
{
	int r;

	job->location.parameter_store = store;
	job->location.optimizer_store = job->location.has_nvme_optimizer ? store : NULL;
	r = reserve_find(job, store, message, size);
	if (r == 0)
		r = family_charge(job, is_fork, message, size);
	if (r == 0) {
		r = durable_init(job, true, &replaced_listener);
		if (r < 0)
			refuse(message, size, r, "out of memory");
	}
	if (r < 0)
		job->location.parameter_store = job->location.optimizer_store = NULL;
	return r;
}

int setup_adopt(struct job *job, struct store *store, bool is_fork, char *message, size_t size)
{
	struct setup setup = { .job = job };
	struct store_owner owner;
	int r = plan_stores(&setup);

	store_layout_free(setup.host);
	if (r == 0 && store_adopt(store, setup.nvme) < 0)
		r = SETUP_REFUSE(&setup, -EBADMSG, "it has other streams than its definition says");
	if (r < 0) {
		store_layout_free(setup.nvme);
		return refuse(message, size, r, "%s", setup.message);
	}
	r = charge(job, store, is_fork, message, size);
	if (r < 0)
		return r;
	owner = setup_owner(job);
	store_belong(store, &owner);
	return 0;
}
