/* Setup: reserves the memory and disk of a job that is planned, off the loop. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/life/reshape.h"
#include "daemon/life/setup.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "offload/device/fault.h"
#include "offload/device/nvme.h"

/* ---- On a worker ---- */

/* Of each user there is a folder on each path: what is whose can be seen, and counted, without the daemon. */
static int make_folder(const struct setup *setup, const struct node_path *path)
{
	return mkdirat(path->directory_fd, setup->folder, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

#define FILE_NAME_BYTES 160

/* Beside that of its store, would it have one of its own. */
static const char *sums_name(const struct setup *setup, char name[FILE_NAME_BYTES])
{
	const struct job *job = setup->job;

	snprintf(name, FILE_NAME_BYTES, "%s/%s-%llu.sums", setup->folder, job->name,
		 (unsigned long long)job->number);
	return name;
}

/* A file of the job on each path. */
struct files {
	const char *name;
	uint64_t bytes; /* of each */
	bool is_unfinished;
};

static int make_tier(struct setup *setup, unsigned index, const struct files *files, struct tier **ret_tier)
{
	struct node *node = setup->job->node;
	struct node_path *path = &node->paths[setup->job->location.paths.paths[index]];
	struct nvme_config config = { .engine = node->engine,
				      .directory_fd = path->directory_fd,
				      .directory = path->folder,
				      .name = files->name,
				      .capacity = files->bytes,
				      .is_buffered = !path->is_direct,
				      .is_unfinished = files->is_unfinished,
				      .device = path->device,
				      .share = budget_device_share(setup->job),
				      .moved = path->moved };
	_cleanup_(tier_freep) struct tier *tier = NULL;
	struct fault_config fault;
	char needed[16], there[16];
	int r = make_folder(setup, path);

	if (r == 0)
		r = nvme_tier_new(&config, &tier);
	if (r < 0)
		return SETUP_REFUSE(setup, r, "its file in %s cannot be created: %s", path->path,
				    strerror(-r));
	uint64_t left = node_path_left(path);

	r = nvme_tier_reserve(tier);
	if (r == -ENOSPC)
		return SETUP_REFUSE(setup, r, "it needs %s in %s, and %s are left on that disk%s",
				    budget_print_needed(files->bytes, needed), path->path,
				    budget_print(left, there), setup->hint);
	if (r < 0)
		return SETUP_REFUSE(setup, r, "%s cannot be reserved in %s: %s",
				    budget_print_needed(files->bytes, needed), path->path, strerror(-r));
	if (node->fault && fault_config_parse(node->fault, &fault) == 0) {
		r = fault_tier_new(TAKE_PTR(tier), &fault, &tier);
		if (r < 0)
			return SETUP_REFUSE(setup, r, "out of memory");
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

struct store_owner setup_owner(struct job *job)
{
	return (struct store_owner){ .on_moved = on_moved,
				     .argument = job,
				     .share = budget_device_share(job) };
}

/* layout: owned from here on. */
static int make_nvme_store(struct setup *setup, struct store_layout *layout, const struct files *files,
			   struct store **ret_store)
{
	const unsigned devices = setup->job->location.paths.count;
	struct store_config config = {
		.workers = setup->job->node->workers,
		.owner = setup_owner(setup->job),
		.name = setup->job->name,
		.serial = setup->job->number,
	};
	struct tier *tiers[NODE_MAX_PATHS] = { NULL };
	int r = 0;

	for (unsigned i = 0; i < devices && r == 0; i++)
		r = make_tier(setup, i, files, &tiers[i]);
	if (r < 0) {
		for (unsigned i = 0; i < devices; i++)
			tier_free(tiers[i]);
		store_layout_free(layout);
		return r;
	}
	r = store_new_nvme(&config, layout, tiers, devices, ret_store);
	return r < 0 ? SETUP_REFUSE(setup, r, "its store cannot be made: %s", strerror(-r)) : 0;
}

/* What is there after an error goes with the setup. */
static int make_nvme_state(struct setup *setup)
{
	const struct job *job = setup->job;
	struct store *nvme = NULL;
	int r = make_nvme_store(setup, TAKE_PTR(setup->nvme),
				&(struct files){ job->location.file, setup->device_bytes, true }, &nvme);

	setup->made.parameter_store = job->location.has_stored_parameters ? nvme : NULL;
	setup->made.optimizer_store = job->location.has_nvme_optimizer ? nvme : NULL;
	return r;
}

static int make_host_state(struct setup *setup)
{
	int r = store_new_host(TAKE_PTR(setup->host), &setup->made.optimizer_store);

	return r < 0 ? SETUP_REFUSE(setup, r, "no host memory for its optimizer state: %s", strerror(-r)) : 0;
}

static int make_stores(struct setup *setup)
{
	char name[FILE_NAME_BYTES];
	int r = setup->nvme ? make_nvme_state(setup) : 0;

	if (r == 0 && setup->host)
		r = make_host_state(setup);

	if (r < 0 || !setup->sums)
		return r;
	return make_nvme_store(setup, TAKE_PTR(setup->sums),
			       &(struct files){ sums_name(setup, name), setup->sums_device_bytes, false },
			       &setup->made.gradient_store);
}

static void note_pinning(struct setup *setup, const struct memory *memory)
{
	int r = engine_buffer_add(setup->job->node->engine, memory->base, memory->length);

	if (r < 0)
		setup->pinning = r;
}

/* Only what is trained streams through it: a frozen job would have it filled with zeros for nothing. */
static bool needs_staging(const struct job *job)
{
	return job->catalog.trainable > 0;
}

static void use_staging(struct setup *setup)
{
	struct job *job = setup->job;

	setup->made.uses_staging = needs_staging(job);
	if (setup->made.uses_staging)
		staging_use(job->node->staging, job->node->engine);
}

static int make_memory(struct setup *setup)
{
	int r;

	use_staging(setup);
	r = arena_make(setup->job, setup->is_return, setup->arena_bytes, &setup->made.arena, &setup->pinning);
	if (r == 0)
		r = segment_make_cache(setup->job, &setup->made.cache);
	if (r == 0)
		r = memory_new_shared("tierd-directory", setup->directory_bytes, &setup->made.directory);
	if (r == 0)
		r = memory_seal(&setup->made.directory);
	if (r == 0 && setup->sums_bytes > 0) {
		r = memory_new_private(setup->sums_bytes, &setup->made.sums);
		if (r == 0)
			memory_make_huge(&setup->made.sums, setup->job->location.has_nvme_sums);
		if (r == 0 && setup->job->location.has_nvme_sums)
			note_pinning(setup, &setup->made.sums);
	}
	return r < 0 ? SETUP_REFUSE(setup, r, "no host memory for it: %s", strerror(-r)) : 0;
}

static void run_setup(struct work *work)
{
	struct setup *setup = container_of(work, struct setup, work);

	setup->status = make_memory(setup);
	if (setup->status == 0)
		setup->status = make_stores(setup);
}

/* ---- Back on the loop ---- */

/* Before anything else is planned: what is given up here may be what that needs. */
void setup_give_up(struct setup *setup)
{
	store_layout_free(setup->nvme);
	store_layout_free(setup->host);
	store_layout_free(setup->sums);
	disposal_start(setup->job->node, &setup->made);
}

static int take_over(struct setup *setup)
{
	struct job *job = setup->job;
	struct memory sums;

	sums = setup->made.sums;
	arena_take_over(job, &setup->made);
	if (!setup->is_return) {
		job->location.parameter_store = setup->made.parameter_store;
		residency_mark_blank(job);
	}
	if (setup->made.optimizer_store)
		job->location.optimizer_store = setup->made.optimizer_store;
	job->location.gradient_store = setup->made.gradient_store;
	setup->made = (struct made)MADE_INIT;
	arena_open(job, setup->is_return);
	int r = gradients_start(job, sums);

	if (r == 0 && job->location.is_durable && !durable_has_store(job))
		r = durable_init(job, false, &replaced_listener);
	if (r == 0)
		r = reshape_keep(job);
	return r < 0 ? SETUP_REFUSE(setup, r, "no host memory for its gradients: %s", strerror(-r)) : 0;
}

static void end_setup(struct setup *setup, int r)
{
	struct job *job = setup->job;

	job->life->setup = NULL;
	if (r < 0 && !setup->is_return)
		listing_forget(job->node, job->location.file, job->name);
	setup_give_up(setup);
	life_step(job, r < 0 ? LIFE_UNPLANNED : LIFE_PLANNED);
	if (setup->is_return) {
		if (r < 0)
			setup_release(job);
		else if (job->state == JOB_TRAINED)
			events_of_job(job, EVENT_RETURNED, NULL,
				      "its ranks are back: it has %llu MiB of host memory",
				      (unsigned long long)(budget_host_bytes(job) / MIB));
	} else if (r < 0) {
		setup_clear(job, false);
	}
}

static void finish(struct setup *setup, int r)
{
	end_setup(setup, r);
	shortage_end(budget_shortage(setup->job));
	job_planned(setup->job, r, setup->message);
	free(setup);
}

/* As if it had not begun: it does again when others have given up some of their memory. */
static void put_off(struct setup *setup, int r)
{
	end_setup(setup, r);
	free(setup);
}

static void on_loaded(struct host_load *load, int status)
{
	struct setup *setup = container_of(load, struct setup, load);

	if (status < 0)
		SETUP_REFUSE(setup, status, "%s", load->message);
	finish(setup, status);
}

static void end_made(struct setup *setup)
{
	if (setup->status == 0)
		setup->status = take_over(setup);
	if (setup->status == 0)
		arena_fetch(setup->job);
	if (setup->status == 0 && setup->is_return && setup->job->location.has_backup)
		host_load_start(&setup->load, setup->job, on_loaded);
	else
		finish(setup, setup->status);
}

static void refuse_creation(struct setup *setup, int r)
{
	setup->status = SETUP_REFUSE(setup, r, "its store cannot be made: %s", strerror(-r));
}

static void run_finishing(struct work *work)
{
	struct setup *setup = container_of(work, struct setup, work);
	struct job_file file;
	int r;

	job_file_get(setup->job, &file);
	r = job_file_finish(setup->job->node, &setup->job->location.paths, &file);
	if (r < 0)
		refuse_creation(setup, r);
}

static void on_finished(struct work *work)
{
	end_made(container_of(work, struct setup, work));
}

/* Whatever is committed from now on is the job's. */
static void on_listed(struct listing_entry *entry, int status)
{
	struct setup *setup = container_of(entry, struct setup, listing);

	if (status < 0) {
		setup->status = status;
		end_made(setup);
		return;
	}
	setup->work = (struct work){ .run = run_finishing, .done = on_finished, .urgency = WORK_NORMAL };
	workers_submit(setup->job->node->slow_workers, &setup->work);
}

/* It is on the list of jobs before any step of it can be there. */
static void on_created(struct store_request *request, int status)
{
	struct setup *setup = container_of(request, struct setup, creation);

	if (status < 0) {
		refuse_creation(setup, status);
		end_made(setup);
		return;
	}
	setup->listing = (struct listing_entry){ .job = setup->job,
						 .message = setup->message,
						 .size = sizeof(setup->message),
						 .done = on_listed };
	listing_add(&setup->listing);
}

/* A store that will be there after a crash says so on its devices. */
static void on_setup_done(struct work *work)
{
	struct setup *setup = container_of(work, struct setup, work);
	struct store *nvme = setup->made.parameter_store;
	int r = -EOPNOTSUPP;

	node_note_pinning(setup->job->node, setup->pinning);
	setup->creation.done = on_created;
	if (setup->status == 0 && nvme)
		r = store_create(nvme, &setup->creation);
	if (r == 0)
		return;
	if (r != -EOPNOTSUPP)
		refuse_creation(setup, r);
	end_made(setup);
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
		.is_return = job->state == JOB_RELEASED,
		.made = MADE_INIT,
		.work = { .run = run_setup, .done = on_setup_done, .urgency = WORK_NORMAL },
	};
	snprintf(setup->folder, sizeof(setup->folder), "%u", (unsigned)job->uid);
	budget_explain_replaced(job, setup->hint, sizeof(setup->hint));
	job->life->setup = setup;
	life_step(job, LIFE_PLAN);
	r = setup_plan(setup);
	if (r == -ENOMEM && shortage_await(budget_shortage(job))) {
		put_off(setup, r);
	} else if (r < 0) {
		finish(setup, r);
	} else {
		shortage_end(budget_shortage(job));
		workers_submit(job->node->slow_workers, &setup->work);
	}
}

static void clear_memory(struct job *job, struct made *made, bool is_read)
{
	made->sums = gradients_clear(job);
	update_release(job);
	made->gradient_store = TAKE_PTR(job->location.gradient_store);
	arena_give_up(job, made);
	made->uid = job->uid;
	made->is_read = is_read;
	made->uses_staging = made->arena.base && needs_staging(job);
	disposal_start(job->node, made);
}

void setup_release(struct job *job)
{
	struct made made = MADE_INIT;

	residency_forget_all(job);
	if (!job->location.has_nvme_optimizer)
		made.optimizer_store = TAKE_PTR(job->location.optimizer_store);
	clear_memory(job, &made, false);
	budget_release_host(job);
}

/* What several jobs have open is the loop's; only the last one closes the files. */
static void leave_family(struct job *job)
{
	struct store *store = job_nvme_store(job);
	struct store_family family;

	if (!store)
		return;
	store_get_family(store, &family);
	if (family.others == 0)
		return;
	job->location.parameter_store = NULL;
	if (job->location.optimizer_store == store)
		job->location.optimizer_store = NULL;
	store_free(store);
}

void setup_clear(struct job *job, bool is_read)
{
	struct made made = MADE_INIT;
	uint64_t step;
	bool is_kept = job_keeps_store(job) && durable_has_step(job, &step);

	if (job_nvme_store(job))
		store_keep(job_nvme_store(job), is_kept);
	if (job_nvme_store(job) && !is_kept)
		listing_forget(job->node, job->location.file, job->name);
	leave_family(job);
	made.parameter_store = job->location.parameter_store;
	made.optimizer_store = job->location.optimizer_store;
	durable_free(job);
	update_clear(job);
	clear_memory(job, &made, is_read);
	job->location.parameter_store = job->location.optimizer_store = NULL;
	catalog_unpack(&job->catalog);
	free(job->location.places);
	residency_clear(job);
	job->location.places = NULL;
	budget_give_back(job);
}
