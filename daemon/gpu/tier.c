/* A job's tier on a GPU: made when its first rank there asks for it, and gone when the last one has left. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gpu/exchange.h"

/* ---- Plan ---- */

static uint64_t plan_bytes(const struct slots *slots)
{
	return slots->cache > 0 ? slots_cache_offset(slots) + slots->cache : slots->reserved;
}

uint64_t gpu_tier_bytes(const struct gpu_tier *tier)
{
	return plan_bytes(&tier->slots) + gpu_passes_held_bytes(tier) + gpu_mirrors_bytes(tier);
}

/* All slots are there from the start. */
static int plan_slots(struct gpu_tier *tier, uint64_t budget)
{
	int r = slots_plan(&tier->job->catalog, budget == 0, budget, budget, &tier->slots);

	for (uint32_t i = 0; r == 0 && i < tier->slots.segment_count; i++)
		slots_open_segment(&tier->slots, i);
	if (r < 0)
		snprintf(tier->problem, sizeof(tier->problem), "tierd is out of memory");
	return r;
}

/* Of the job's ranks that share the GPU; where others are asked for, more or fewer come to it. */
static uint64_t gradients_to_come(const struct gpu_tier *tier)
{
	const struct job *job = tier->job;
	unsigned gpus = job->node->gpu->gpus.count;

	return size_product(size_align(gradient_buffers_bytes(&job->gradient_buffers), 4096),
			    size_divide_up(job->options.world_size, gpus));
}

/* 1: so many bytes of the budget are left. 0: they are not, and nothing is planned. */
static int plan_beside(struct gpu_tier *tier, uint64_t budget, uint64_t others)
{
	uint64_t parameters = size_rest(budget, others);
	int r = parameters > 0 ? plan_slots(tier, parameters) : 0;

	if (r < 0 || parameters == 0)
		return r;
	if (plan_bytes(&tier->slots) <= parameters)
		return 1;
	slots_free(&tier->slots);
	return 0;
}

/* Where the budget was given, since the trainer has other uses for the rest. */
static uint64_t room_for_mirrors(const struct gpu_tier *tier, uint64_t gradients, uint64_t passes)
{
	uint64_t others =
		size_sum(size_sum(gradients, passes), size_align(plan_bytes(&tier->slots), GPU_GRAIN));

	return gpu_updates_are_wanted(tier) ? size_rest(tier->budget, others) : 0;
}

/* Gradients and passes have room where the least of parameters has room beside them; passes come last,
 * because processors can make all updates and sums, and after them what is for sums with other GPUs. Mirrors
 * have what is left. */
static int plan_within(struct gpu_tier *tier, uint64_t budget)
{
	uint64_t gradients = tier->has_gradients ? gradients_to_come(tier) : 0,
		 passes = gpu_passes_bytes(tier), pieces = gpu_pieces_bytes(tier);
	int r;

	tier->has_room_for_passes = tier->has_room_for_pieces = true;
	tier->mirror_room = 0;
	if (budget == 0)
		return plan_slots(tier, budget);
	r = plan_beside(tier, budget, size_sum(gradients, passes + pieces));
	if (r == 0 && pieces > 0) {
		tier->has_room_for_pieces = false;
		pieces = 0;
		r = plan_beside(tier, budget, size_sum(gradients, passes));
	}
	if (r > 0)
		tier->mirror_room = room_for_mirrors(tier, gradients, passes + pieces);
	if (r != 0)
		return r < 0 ? r : 0;
	tier->has_room_for_passes = passes == 0;
	r = gradients > 0 && passes > 0 ? plan_beside(tier, budget, gradients) : 0;
	if (r != 0)
		return r < 0 ? r : 0;
	return plan_slots(tier, budget);
}

/* Where less was tried because the GPU did not have more, that is what there is to say. */
static int refuse_budget(struct gpu_tier *tier, uint64_t budget)
{
	const char *refused = tier->memory.request.problem.text;
	char least[16], given[16];
	int used = snprintf(tier->problem, sizeof(tier->problem),
			    "the job needs at least %s of %s for its largest units, two of each size, ",
			    budget_print_needed(tier->slots.reserved, least),
			    gpu_engine_name(tier->gpu->engine));

	if (*refused)
		snprintf(tier->problem + used, sizeof(tier->problem) - (size_t)used,
			 "and does not get it: %s; end what else uses that GPU, or define smaller units",
			 refused);
	else
		snprintf(tier->problem + used, sizeof(tier->problem) - (size_t)used,
			 "and may have %s; raise gpu_budget, or define smaller units",
			 budget_print(budget, given));
	return -ENOMEM;
}

/* What a job gets that does not say how much: the trainer has other uses for the rest. */
static uint64_t usual_bytes(const struct gpu_tier *tier)
{
	return tier->job->node->gpu->gpus.gpus[tier->gpu->number].bytes / 2;
}

static int make_plan(struct gpu_tier *tier, uint64_t budget)
{
	uint32_t packs = tier->job->catalog.pack_count;
	int r = plan_within(tier, budget);

	if (r == 0 && budget == 0 && plan_bytes(&tier->slots) > usual_bytes(tier)) {
		slots_free(&tier->slots);
		budget = usual_bytes(tier);
		r = plan_within(tier, budget);
	}
	if (r == 0 && budget > 0 && plan_bytes(&tier->slots) > budget)
		return refuse_budget(tier, budget);
	if (r < 0)
		return r;
	/* Packs that are there have been set up. */
	tier->places = calloc(tier->slots.count, sizeof(*tier->places));
	if (tier->places && !tier->packs)
		tier->packs = calloc(packs, sizeof(*tier->packs));
	if (!tier->places || !tier->packs) {
		snprintf(tier->problem, sizeof(tier->problem), "tierd is out of memory");
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < packs; i++) {
		tier->packs[i] = (struct gpu_pack){ .slot = SLOT_NONE, .tier = tier };
		queue_init(&tier->packs[i].waiters);
		queue_init(&tier->packs[i].link);
		queue_init(&tier->packs[i].renewal);
		queue_init(&tier->packs[i].host.link);
	}
	return 0;
}

static void drop_plan(struct gpu_tier *tier)
{
	free(TAKE_PTR(tier->places));
	slots_free(&tier->slots);
}

static int make_directory(struct gpu_tier *tier)
{
	uint32_t units = tier->job->catalog.unit_count;
	int r = memory_new_shared("tierd-gpu", directory_bytes(units, 0), &tier->directory_memory);

	if (r == 0)
		r = memory_seal(&tier->directory_memory);
	if (r < 0) {
		snprintf(tier->problem, sizeof(tier->problem), "tierd has no memory for its directory: %s",
			 strerror(-r));
		return r;
	}
	tier->directory = (struct directory_header *)tier->directory_memory.base;
	tier->directory->magic = GPU_PAGES_MAGIC;
	tier->directory->version = GPU_PAGES_VERSION;
	tier->directory->unit_count = units;
	return 0;
}

/* ---- Opening: the GPU, its memory, then pins and events ---- */

static void fail_opening(struct gpu_tier *tier, int status)
{
	tier->state = GPU_TIER_FAILED;
	tier->status = status;
	log_warning("job %s has no memory on a GPU: %s", tier->job->name, tier->problem);
	gpu_ranks_go_on(tier);
	job_settle(tier->job);
}

static void fail_request(struct gpu_tier *tier, const struct gpu_request *request, int status)
{
	if (tier->status == 0)
		snprintf(tier->problem, sizeof(tier->problem), "%s", request->problem.text);
	tier->status = status;
}

static void come_home(struct gpu_tier *tier);

static void open_if_complete(struct gpu_tier *tier)
{
	char bytes[16];

	if (--tier->outstanding > 0)
		return;
	/* It has failed meanwhile. */
	if (tier->state != GPU_TIER_OPENING) {
		job_settle(tier->job);
		return;
	}
	if (tier->status == 0)
		tier->status = make_directory(tier);
	if (tier->status < 0) {
		fail_opening(tier, tier->status);
		return;
	}
	tier->state = GPU_TIER_OPEN;
	gpu_passes_open(tier);
	gpu_mirrors_open(tier);
	gpu_segments_add(tier, come_home);
	log_info("job %s has %s of %s for %u of %u units", tier->job->name,
		 budget_print(tier->memory.bytes, bytes), gpu_engine_name(tier->gpu->engine),
		 tier->slots.count, tier->job->catalog.pack_count);
	gpu_ranks_go_on(tier);
	job_settle(tier->job);
}

static void on_event(struct gpu_request *request, int status)
{
	struct gpu_event *event = container_of(request, struct gpu_event, request);
	struct gpu_tier *tier = container_of(event, struct gpu_slot, event)->tier;

	if (status < 0)
		fail_request(tier, request, status);
	open_if_complete(tier);
}

/* Copies from memory that is not registered are slow, and right. */
static void on_pinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_tier *tier = container_of(pin, struct gpu_tier, pin);

	if (status < 0 && status != -EEXIST)
		log_warning(
			"host memory of job %s is not registered with its GPU, which makes copies slow: %s",
			tier->job->name, request->problem.text);
	if (status < 0)
		pin->bytes = 0;
	open_if_complete(tier);
}

void gpu_tier_go_on(struct gpu_tier *tier)
{
	if (!tier->is_pin_put_off || arena_is_coming(tier->job))
		return;
	tier->is_pin_put_off = false;
	if (tier->state == GPU_TIER_OPENING && !job_is_ending(tier->job)) {
		gpu_pin_add(tier->gpu->engine, &tier->pin);
	} else {
		tier->pin.bytes = 0;
		open_if_complete(tier);
	}
}

static void make_events_and_pin(struct gpu_tier *tier)
{
	const struct memory *arena = arena_share(tier->job).arena;
	struct gpu_engine *engine = tier->gpu->engine;

	tier->outstanding = tier->slots.count + 1;
	tier->pin =
		(struct gpu_pin){ .request.done = on_pinned, .base = arena->base, .bytes = arena->length };
	tier->is_pin_put_off = true;
	gpu_tier_go_on(tier);
	gpu_passes_make(tier, open_if_complete);
	for (uint32_t i = 0; i < tier->slots.count; i++) {
		tier->places[i] = (struct gpu_slot){ .tier = tier, .event.request.done = on_event };
		gpu_event_create(engine, &tier->places[i].event);
	}
}

static void create_memory(struct gpu_tier *tier, uint64_t budget);

/* Without a budget it takes what there is. */
static void on_memory(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);
	struct gpu_tier *tier = container_of(memory, struct gpu_tier, memory);
	uint64_t tried = plan_bytes(&tier->slots);

	tier->outstanding--;
	tier->has_memory = status == 0;
	if (tier->state != GPU_TIER_OPENING) {
		job_settle(tier->job);
		return;
	}
	if (status == 0) {
		make_events_and_pin(tier);
		return;
	}
	fail_request(tier, request, status);
	drop_plan(tier);
	if (status == -ENOMEM && tier->budget == 0 && tried / 4 > 0) {
		tier->status = 0;
		create_memory(tier, tried / 4 * 3);
	} else {
		fail_opening(tier, status);
	}
}

static void create_memory(struct gpu_tier *tier, uint64_t budget)
{
	int r = make_plan(tier, budget);

	if (r < 0) {
		drop_plan(tier);
		fail_opening(tier, r);
		return;
	}
	tier->memory =
		(struct gpu_memory){ .request.done = on_memory, .bytes = plan_bytes(&tier->slots), .fd = -1 };
	tier->outstanding++;
	gpu_memory_create(tier->gpu->engine, &tier->memory);
}

void gpu_tier_opened(struct gpu_tier *tier)
{
	tier->outstanding--;
	tier->gpu = tier->opening.gpu;
	/* That took so long that it has failed. */
	if (tier->state != GPU_TIER_OPENING) {
		job_settle(tier->job);
	} else if (tier->opening.status < 0) {
		snprintf(tier->problem, sizeof(tier->problem), "%s", tier->opening.problem);
		fail_opening(tier, tier->opening.status);
	} else {
		create_memory(tier, tier->budget);
	}
}

struct gpu_tier *gpu_tier_find(struct job *job, const Tierd__Wire__GpuAttach *attach)
{
	struct gpu_tier *tier;

	QUEUE_FOREACH (link, &job->gpu->tiers) {
		tier = queue_entry(link, struct gpu_tier, link);
		if (memcmp(tier->opening.uuid, attach->uuid.data, GPU_UUID_BYTES) == 0 &&
		    tier->state <= GPU_TIER_OPEN)
			return tier;
	}
	tier = calloc(1, sizeof(*tier));
	if (!tier || gpu_node_new(job->node) < 0) {
		free(tier);
		return NULL;
	}
	*tier = (struct gpu_tier){ .job = job,
				   .budget = attach->budget,
				   .has_gradients = attach->has_gradients,
				   .update_fraction = attach->update_fraction,
				   .may_sum = job->node->settings.gpu_sums != GPU_SUMS_NEVER,
				   .opening = { .tier = tier },
				   .memory = { .fd = -1 },
				   .directory_memory = MEMORY_INIT,
				   .energy_seen = GPU_SENSOR_UNKNOWN,
				   .outstanding = 1 };
	memcpy(tier->opening.uuid, attach->uuid.data, GPU_UUID_BYTES);
	queue_init(&tier->slot_queue);
	queue_init(&tier->renewals);
	queue_push(&job->gpu->tiers, &tier->link);
	gpu_open(&tier->opening);
	return tier;
}

/* ---- The end ---- */

static void on_memory_gone(struct gpu_request *request, int status)
{
	struct gpu_memory *memory = container_of(request, struct gpu_memory, request);
	struct gpu_tier *tier = container_of(memory, struct gpu_tier, memory);

	tier->state = GPU_TIER_GONE;
	tier->has_memory = false;
	job_settle(tier->job);
}

/* Clients that have imported it keep it, for themselves. */
static void give_memory_back(struct gpu_tier *tier)
{
	tier->memory.request.done = on_memory_gone;
	if (!tier->has_memory)
		on_memory_gone(&tier->memory.request, 0);
	else
		gpu_memory_destroy(tier->gpu->engine, &tier->memory);
}

static void come_home(struct gpu_tier *tier)
{
	if (--tier->outstanding == 0 && tier->state == GPU_TIER_ENDING)
		give_memory_back(tier);
	job_settle(tier->job);
}

static void on_event_closed(struct gpu_request *request, int status)
{
	struct gpu_event *event = container_of(request, struct gpu_event, request);

	come_home(container_of(event, struct gpu_slot, event)->tier);
}

static void on_unpinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);

	come_home(container_of(pin, struct gpu_tier, pin));
}

static void empty(struct gpu_tier *tier)
{
	tier->outstanding = 1;
	for (uint32_t i = 0; tier->places && i < tier->slots.count; i++) {
		struct gpu_event *event = &tier->places[i].event;

		if (!event->event)
			continue;
		tier->outstanding++;
		event->request.done = on_event_closed;
		gpu_event_close(tier->gpu->engine, event);
	}
	if (tier->pin.bytes > 0) {
		tier->outstanding++;
		tier->pin.request.done = on_unpinned;
		gpu_pin_remove(tier->gpu->engine, &tier->pin);
	}
	gpu_passes_close(tier, come_home);
	gpu_mirrors_close(tier, come_home);
	gpu_segments_remove(tier);
	come_home(tier);
}

static void forget_packs(struct gpu_tier *tier, int status)
{
	for (uint32_t i = 0; tier->packs && i < tier->job->catalog.pack_count; i++) {
		struct gpu_pack *pack = &tier->packs[i];

		residency_forget(&pack->host);
		gpu_pack_fail(pack, status);
		if (pack->state == GPU_QUEUED)
			gpu_step(pack, GPU_LEAVE_QUEUE);
		else if (pack->state == GPU_EXPECTED)
			gpu_step(pack, GPU_FAIL);
		/* A copy that never ends may read anything: nobody uses what it writes. */
		if (tier->state == GPU_TIER_FAILED)
			gpu_pack_unpin(pack);
	}
}

/* In the job's turn: nobody up the stack uses it, or its GPU. */
static void free_tier(struct gpu_tier *tier)
{
	struct job *job = tier->job;

	if (tier->gpu)
		gpu_let_go(tier->gpu, job);
	drop_plan(tier);
	gpu_passes_free(tier);
	gpu_mirrors_free(tier);
	free(tier->packs);
	free(tier->segments);
	disposal_start_shared(job->node, job->uid, true, &tier->directory_memory);
	queue_remove(&tier->link);
	free(tier);
	job_settle(job);
}

bool gpu_tier_ends(struct gpu_tier *tier)
{
	if (gpu_tier_has_ranks(tier) || tier->state == GPU_TIER_OPENING)
		return false;
	if (tier->state == GPU_TIER_GONE) {
		free_tier(tier);
		return true;
	}
	if (tier->state == GPU_TIER_ENDING)
		return true;
	forget_packs(tier, -ECANCELED);
	if (tier->outstanding == 0 && !gpu_exchange_has(tier)) {
		tier->state = GPU_TIER_ENDING;
		empty(tier);
	}
	return true;
}

void gpu_tier_fail(struct gpu_tier *tier, int status, const char *problem)
{
	if (tier->state >= GPU_TIER_FAILED)
		return;
	snprintf(tier->problem, sizeof(tier->problem), "%s", problem);
	tier->status = status;
	/* What is asked for may never come home. */
	if (tier->state == GPU_TIER_OPENING) {
		fail_opening(tier, status);
		return;
	}
	tier->state = GPU_TIER_FAILED;
	for (uint32_t unit = 0; unit < tier->job->catalog.unit_count; unit++)
		directory_set(&directory_entries(tier->directory)[unit], DIRECTORY_ABSENT);
	forget_packs(tier, status);
	gpu_fail_asking(tier);
	gpu_updates_fail(tier);
}

/* ---- Of a job ---- */

int gpu_new(struct job *job)
{
	job->gpu = calloc(1, sizeof(*job->gpu));
	if (!job->gpu)
		return -ENOMEM;
	queue_init(&job->gpu->tiers);
	return 0;
}

void gpu_free(struct job *job)
{
	if (job->gpu)
		gpu_exchange_free(job);
	free(TAKE_PTR(job->gpu));
}

bool gpu_is_gone(const struct job *job)
{
	return queue_is_empty(&job->gpu->tiers) && job->gpu->closing == 0;
}

bool gpu_is_quiet(const struct job *job)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		/* One that has failed to be opened, and is on its way home still, has nothing. */
		if (tier->state == GPU_TIER_FAILED && !tier->gpu)
			continue;
		if (tier->outstanding > 0 || !gpu_tier_has_ranks(tier))
			return false;
	}
	return true;
}
