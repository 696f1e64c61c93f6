/* Segments of a job's cache are registered with its GPUs while they are there. Copies from one that is not
 * yet, or that a GPU has refused, are slow, and right. */
#include <stdlib.h>

#include "daemon/gpu/own.h"

static const struct slot_segment *slots_of(const struct gpu_segment *segment)
{
	const struct gpu_tier *tier = segment->tier;

	return &residency_slots(tier->job)->segments[segment - tier->segments];
}

static bool is_used(const struct job *job, uint32_t number)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (number < tier->segment_count && tier->segments[number].state != GPU_SEGMENT_OUT)
			return true;
	}
	return false;
}

static void go_if_unused(struct job *job, uint32_t number)
{
	if (!is_used(job, number))
		segment_go(job, number);
}

static void leave(struct gpu_segment *segment)
{
	struct gpu_tier *tier = segment->tier;
	uint32_t number = (uint32_t)(segment - tier->segments);

	segment->state = GPU_SEGMENT_OUT;
	go_if_unused(tier->job, number);
}

static void on_removed(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_segment *segment = container_of(pin, struct gpu_segment, pin);

	leave(segment);
	segment->tier->came(segment->tier);
}

static void begin_removing(struct gpu_segment *segment)
{
	segment->state = GPU_SEGMENT_GOING;
	segment->pin.request.done = on_removed;
	segment->tier->outstanding++;
	gpu_pin_remove(segment->tier->gpu->engine, &segment->pin);
}

static void tell_once(struct gpu_tier *tier, const char *problem)
{
	if (!tier->has_told_pin && tier->state == GPU_TIER_OPEN)
		log_warning("cache of job %s is not registered with its GPU, which makes copies slow: %s",
			    tier->job->name, problem);
	tier->has_told_pin = true;
}

static void on_added(struct gpu_request *request, int status)
{
	struct gpu_pin *pin = container_of(request, struct gpu_pin, request);
	struct gpu_segment *segment = container_of(pin, struct gpu_segment, pin);
	struct gpu_tier *tier = segment->tier;
	bool is_unwanted = segment->state == GPU_SEGMENT_UNWANTED;

	segment->state = GPU_SEGMENT_IN;
	if (status < 0) {
		tell_once(tier, request->problem.text);
		leave(segment);
	} else if (is_unwanted) {
		begin_removing(segment);
	}
	tier->came(tier);
}

/* Its pages are there until the segment leaves, which it does only after this has come home. */
static void begin_adding(struct gpu_tier *tier, uint32_t number)
{
	struct gpu_segment *segment = &tier->segments[number];
	const struct slot_segment *slots = slots_of(segment);

	if (segment->state != GPU_SEGMENT_OUT ||
	    (slots->state != SEGMENT_HERE && slots->state != SEGMENT_DRAINING))
		return;
	segment->state = GPU_SEGMENT_COMING;
	segment->pin = (struct gpu_pin){ .request.done = on_added,
					 .base = arena_share(tier->job).cache->base + slots->offset,
					 .bytes = slots->bytes };
	tier->outstanding++;
	gpu_pin_add(tier->gpu->engine, &segment->pin);
}

void gpu_segments_add(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier))
{
	uint32_t count = residency_slots(tier->job)->segment_count;

	tier->came = came;
	if (count > 0)
		tier->segments = calloc(count, sizeof(*tier->segments));
	if (!tier->segments)
		return;
	tier->segment_count = count;
	for (uint32_t i = 0; i < count; i++) {
		tier->segments[i].tier = tier;
		begin_adding(tier, i);
	}
}

void gpu_segments_remove(struct gpu_tier *tier)
{
	for (uint32_t i = 0; i < tier->segment_count; i++)
		if (tier->segments[i].state == GPU_SEGMENT_IN)
			begin_removing(&tier->segments[i]);
}

void gpu_segment_came(struct job *job, uint32_t segment)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (segment < tier->segment_count && tier->state == GPU_TIER_OPEN)
			begin_adding(tier, segment);
	}
}

void gpu_segment_leaves(struct job *job, uint32_t segment)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (segment >= tier->segment_count)
			continue;
		if (tier->segments[segment].state == GPU_SEGMENT_IN)
			begin_removing(&tier->segments[segment]);
		else if (tier->segments[segment].state == GPU_SEGMENT_COMING)
			tier->segments[segment].state = GPU_SEGMENT_UNWANTED;
	}
	go_if_unused(job, segment);
}
