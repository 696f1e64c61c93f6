/* Updates on the GPUs that a job uses: passes of their tiers (passes.c). */
#include "daemon/gpu/updates.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/gpu/own.h"

/* Staging, sums, states in host memory, and segments of what is left over. */
#define PINS 72

enum pinned_state { PIN_FREE, PIN_COMING, PIN_REFUSED, PIN_HERE, PIN_GOING };

struct pinned {
	struct gpu_pin pin;
	struct gpu_updates *updates;
	enum pinned_state state;
};

struct gpu_updates {
	struct gpu_tier *tier;
	void (*came)(struct gpu_tier *tier); /* a request of its end has */
	struct pinned pins[PINS];
	uint64_t waiting; /* elements in flight */
};

/* ---- With a tier ---- */

bool gpu_updates_are_wanted(const struct gpu_tier *tier)
{
	if (tier->update_fraction == 0 || tier->gpu->has_failed_update)
		return false;
	/* Whoever asks for a fraction is told why there is none. */
	return tier->update_fraction > 0 || kernels_image();
}

void gpu_updates_open(struct gpu_tier *tier, const char *problem)
{
	if (!gpu_updates_are_wanted(tier))
		return;
	if (!problem)
		tier->updates = calloc(1, sizeof(*tier->updates));
	if (tier->updates)
		tier->updates->tier = tier;
	else if (tier->update_fraction > 0)
		log_warning("job %s is updated by processors alone: %s", tier->job->name,
			    problem ? problem : "tierd is out of memory");
	else
		log_info("job %s is updated by processors alone: %s", tier->job->name,
			 problem ? problem : "tierd is out of memory");
}

static void on_unpinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_updates *updates = container_of(pin, struct pinned, pin)->updates;

	updates->came(updates->tier);
}

static void unpin(struct pinned *pinned, void (*done)(struct gpu_request *request, int status))
{
	struct gpu_tier *tier = pinned->updates->tier;

	tier->outstanding++;
	pinned->state = PIN_GOING;
	pinned->pin.request.done = done;
	gpu_pin_remove(tier->gpu->engine, &pinned->pin);
}

void gpu_updates_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier))
{
	struct gpu_updates *updates = tier->updates;

	if (!updates)
		return;
	updates->came = came;
	for (unsigned i = 0; i < PINS; i++)
		if (updates->pins[i].state == PIN_HERE)
			unpin(&updates->pins[i], on_unpinned);
}

void gpu_updates_free(struct gpu_tier *tier)
{
	free(TAKE_PTR(tier->updates));
}

void gpu_updates_fail(struct gpu_tier *tier)
{
	if (tier->updates && tier->updates->waiting > 0 && !job_is_ending(tier->job))
		job_break(tier->job, NULL, "its update on a GPU has failed: %s", tier->problem);
}

/* ---- Host memory ---- */

static void on_pinned(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct pinned *pinned = container_of(pin, struct pinned, pin);
	struct gpu_tier *tier = pinned->updates->tier;

	tier->outstanding--;
	pinned->state = status < 0 ? PIN_REFUSED : PIN_HERE;
	if (status < 0)
		log_warning("%zu MiB of host memory of job %s are not registered with its GPU, so processors "
			    "update what lies there: %s",
			    pin->bytes >> 20, tier->job->name, request->problem.text);
	job_settle(tier->job);
}

static struct pinned *find_pin(struct gpu_updates *updates, const void *base)
{
	for (unsigned i = 0; i < PINS; i++)
		if (updates->pins[i].state != PIN_FREE && updates->pins[i].pin.base == base)
			return &updates->pins[i];
	return NULL;
}

static struct pinned *find_free_pin(struct gpu_updates *updates)
{
	for (unsigned i = 0; i < PINS; i++)
		if (updates->pins[i].state == PIN_FREE)
			return &updates->pins[i];
	return NULL;
}

static void pin_for(struct gpu_updates *updates, void *base, size_t bytes)
{
	struct pinned *pinned = find_pin(updates, base) ? NULL : find_free_pin(updates);

	if (!pinned)
		return;
	pinned->state = PIN_COMING;
	pinned->updates = updates;
	pinned->pin = (struct gpu_pin){ .request.done = on_pinned, .base = base, .bytes = bytes };
	updates->tier->outstanding++;
	gpu_pin_add(updates->tier->gpu->engine, &pinned->pin);
}

bool gpu_updates_takes_any(const struct gpu_tier *tier)
{
	return tier->state == GPU_TIER_OPEN && tier->updates && !tier->gpu->has_failed_update &&
	       gpu_tier_has_ranks(tier);
}

void gpu_updates_pin(struct job *job, void *base, size_t bytes)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (bytes > 0 && gpu_updates_takes_any(tier))
			pin_for(tier->updates, base, bytes);
	}
}

static void on_given_up(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct pinned *pinned = container_of(pin, struct pinned, pin);

	pinned->state = PIN_FREE;
	pinned->updates->tier->outstanding--;
	job_settle(pinned->updates->tier->job);
}

static bool is_given_up(struct gpu_updates *updates, const void *base)
{
	struct pinned *pinned = find_pin(updates, base);

	if (pinned && pinned->state == PIN_REFUSED)
		pinned->state = PIN_FREE;
	else if (pinned && pinned->state == PIN_HERE)
		unpin(pinned, on_given_up);
	return !pinned || pinned->state == PIN_FREE;
}

bool gpu_updates_give_up(struct job *job, const void *base)
{
	bool are_all = true;

	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		are_all &= !tier->updates || is_given_up(tier->updates, base);
	}
	return are_all;
}

static bool holds(const void *base, size_t bytes, const void *memory, size_t length)
{
	const char *from = base, *at = memory;

	return at >= from && at < from + bytes && length <= (size_t)(from + bytes - at);
}

bool gpu_updates_reach(const struct gpu_updates *updates, const void *memory, size_t bytes)
{
	const struct gpu_pin *arena = &updates->tier->pin;

	if (holds(arena->base, arena->bytes, memory, bytes))
		return true;
	for (unsigned i = 0; i < PINS; i++)
		if (updates->pins[i].state == PIN_HERE &&
		    holds(updates->pins[i].pin.base, updates->pins[i].pin.bytes, memory, bytes))
			return true;
	return false;
}

/* ---- Updates ---- */

struct gpu_updates *gpu_updates_find(const struct job *job)
{
	struct gpu_updates *found = NULL;

	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (gpu_updates_takes_any(tier) && (!found || tier->updates->waiting < found->waiting))
			found = tier->updates;
	}
	return found;
}

void gpu_updates_hold(struct gpu_updates *updates)
{
	updates->tier->outstanding++;
}

/* The holder goes on with the job's turn. */
void gpu_updates_release(struct gpu_updates *updates)
{
	updates->tier->outstanding--;
}

struct gpu_tier *gpu_updates_tier(const struct gpu_updates *updates)
{
	return updates->tier;
}

float gpu_updates_fraction(const struct gpu_updates *updates)
{
	return updates->tier->update_fraction;
}

static void on_updated(struct gpu_pass *pass, int status)
{
	struct gpu_update *update = container_of(pass, struct gpu_update, pass);
	struct gpu_updates_request *request = container_of(update, struct gpu_updates_request, update);
	struct gpu_tier *tier = request->updates->tier;
	struct gpu_updates_figures *figures = &tier->job->gpu->updated;

	request->updates->waiting -= pass->count;
	figures->to_gpu_bytes += pass->moved[GPU_FROM_HOST];
	figures->from_gpu_bytes += pass->moved[GPU_TO_HOST];
	figures->spared_bytes += pass->spared;
	if (status < 0)
		tier->gpu->has_failed_update = true;
	request->done(request, status);
}

void gpu_updates_run(struct gpu_updates *updates, struct gpu_updates_request *request)
{
	request->updates = updates;
	request->update.pass.done = on_updated;
	request->update.pass.after = NULL;
	request->update.pass.kernels = &updates->tier->passes->update_kernels;
	updates->waiting += request->update.pass.count;
	gpu_updater_update(updates->tier->passes->updater, &request->update);
}

struct gpu_updates_figures gpu_updates_figures(const struct job *job)
{
	return job->gpu->updated;
}
