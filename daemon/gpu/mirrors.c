/* Room for mirrors comes in segments, when somebody wants a mirror and there is none left. It goes with the
 * tier. Each step uses all state once, so no mirror makes room for another one as long as it is right. */
#include "daemon/gpu/mirrors.h"

#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/gpu/own.h"

/* Of a segment, where the budget has as much. */
#define PLACES 16
#define BUCKETS 1024
/* What the fastest access of a GPU has. */
#define ALIGNMENT 256

struct mirror {
	struct queue link; /* of its bucket, or of those that are free; taken: of neither */
	struct gpu_mirrors *mirrors;
	driver_address address;
	struct mirror_piece piece;
};

struct mirror_segment {
	struct queue link;
	struct gpu_mirrors *mirrors;
	struct gpu_memory memory;
	uint64_t bytes; /* that mirrors count it as */
	struct mirror places[PLACES];
};

struct gpu_mirrors {
	struct gpu_tier *tier;
	uint64_t place_bytes; /* 0: no step has said so */
	uint64_t bytes;	      /* of its segments */
	bool is_coming;	      /* one of them */
	bool is_refused;      /* the last one: the GPU is not asked again */
	void (*came)(struct gpu_tier *tier);
	struct queue segments, spare;
	struct queue buckets[BUCKETS];
};

/* ---- Life ---- */

/* Without memory for it there are no mirrors. */
void gpu_mirrors_open(struct gpu_tier *tier)
{
	bool has_room = tier->updates && tier->mirror_room >= GPU_GRAIN;
	struct gpu_mirrors *mirrors = has_room ? calloc(1, sizeof(*mirrors)) : NULL;

	tier->mirrors = mirrors;
	if (!mirrors)
		return;
	mirrors->tier = tier;
	queue_init(&mirrors->segments);
	queue_init(&mirrors->spare);
	for (unsigned i = 0; i < BUCKETS; i++)
		queue_init(&mirrors->buckets[i]);
}

uint64_t gpu_mirrors_bytes(const struct gpu_tier *tier)
{
	return tier->mirrors ? tier->mirrors->bytes : 0;
}

static struct mirror_segment *segment_of(struct gpu_request *request)
{
	return container_of(container_of(request, struct gpu_memory, request), struct mirror_segment, memory);
}

static void on_gone(struct gpu_request *request, int status)
{
	struct gpu_mirrors *mirrors = segment_of(request)->mirrors;

	mirrors->came(mirrors->tier);
}

void gpu_mirrors_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier))
{
	struct gpu_mirrors *mirrors = tier->mirrors;

	if (!mirrors)
		return;
	mirrors->came = came;
	QUEUE_FOREACH (link, &mirrors->segments) {
		struct mirror_segment *segment = queue_entry(link, struct mirror_segment, link);

		tier->outstanding++;
		segment->memory.request.done = on_gone;
		gpu_memory_destroy(tier->gpu->engine, &segment->memory);
	}
}

void gpu_mirrors_free(struct gpu_tier *tier)
{
	struct gpu_mirrors *mirrors = TAKE_PTR(tier->mirrors);
	struct queue *link;

	while (mirrors && (link = queue_pop(&mirrors->segments)))
		free(queue_entry(link, struct mirror_segment, link));
	free(mirrors);
}

/* ---- Segments that come ---- */

static void add_places(struct mirror_segment *segment)
{
	struct gpu_mirrors *mirrors = segment->mirrors;

	/* Nobody imports it. */
	segment->memory.fd = fd_close(segment->memory.fd);
	for (uint64_t i = 0; i < PLACES && (i + 1) * mirrors->place_bytes <= segment->bytes; i++) {
		struct mirror *mirror = &segment->places[i];

		mirror->mirrors = mirrors;
		mirror->address = segment->memory.address + i * mirrors->place_bytes;
		queue_push(&mirrors->spare, &mirror->link);
	}
}

static void stop_growing(struct mirror_segment *segment)
{
	struct gpu_mirrors *mirrors = segment->mirrors;

	if (mirrors->tier->state == GPU_TIER_OPEN)
		log_info("job %s: no more of its state stays on a GPU: %s", mirrors->tier->job->name,
			 segment->memory.request.problem.text);
	mirrors->is_refused = true;
	mirrors->bytes -= segment->bytes;
	queue_remove(&segment->link);
	free(segment);
}

static void on_memory(struct gpu_request *request, int status)
{
	struct mirror_segment *segment = segment_of(request);
	struct gpu_mirrors *mirrors = segment->mirrors;
	struct gpu_tier *tier = mirrors->tier;

	mirrors->is_coming = false;
	tier->outstanding--;
	if (status == 0)
		add_places(segment);
	else
		stop_growing(segment);
	job_settle(tier->job);
}

/* 0: there is no room for one more. */
static uint64_t next_bytes(const struct gpu_mirrors *mirrors)
{
	uint64_t wanted = size_round_up(PLACES * mirrors->place_bytes, GPU_GRAIN);
	uint64_t room = size_rest(mirrors->tier->mirror_room, mirrors->bytes) / GPU_GRAIN * GPU_GRAIN;
	uint64_t bytes = wanted < room ? wanted : room;

	return bytes < mirrors->place_bytes ? 0 : bytes;
}

static void fetch_more(struct gpu_mirrors *mirrors)
{
	uint64_t bytes = mirrors->is_coming || mirrors->is_refused ? 0 : next_bytes(mirrors);
	struct mirror_segment *segment = bytes > 0 ? calloc(1, sizeof(*segment)) : NULL;

	if (!segment)
		return;
	segment->mirrors = mirrors;
	segment->bytes = bytes;
	segment->memory = (struct gpu_memory){ .request.done = on_memory, .bytes = bytes, .fd = -1 };
	queue_push(&mirrors->segments, &segment->link);
	mirrors->is_coming = true;
	mirrors->bytes += bytes;
	mirrors->tier->outstanding++;
	gpu_memory_create(mirrors->tier->gpu->engine, &segment->memory);
}

/* ---- Mirrors ---- */

void mirrors_begin_step(struct job *job, uint64_t bytes)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);

		if (tier->mirrors)
			tier->mirrors->place_bytes = size_round_up(bytes, ALIGNMENT);
	}
}

static struct queue *bucket_of(struct gpu_mirrors *mirrors, const struct mirror_piece *piece)
{
	uint64_t hash =
		(piece->pack * (uint64_t)UNIT_SECTIONS + piece->section) * 7919 + (piece->first >> 12);

	return &mirrors->buckets[hash % BUCKETS];
}

/* The chunk's, whatever it has of it; NULL: there is none, or it is taken. */
static struct mirror *find(struct gpu_mirrors *mirrors, const struct mirror_piece *piece)
{
	QUEUE_FOREACH (link, bucket_of(mirrors, piece)) {
		struct mirror *mirror = queue_entry(link, struct mirror, link);

		if (mirror->piece.pack == piece->pack && mirror->piece.section == piece->section &&
		    mirror->piece.first == piece->first)
			return mirror;
	}
	return NULL;
}

static bool has(const struct mirror *mirror, const struct mirror_piece *piece)
{
	return piece->pass != 0 && mirror->piece.pass == piece->pass &&
	       mirror->piece.run_count == piece->run_count &&
	       memcmp(mirror->piece.runs, piece->runs, piece->run_count * sizeof(*piece->runs)) == 0;
}

struct gpu_updates *mirrors_find(const struct job *job, const struct mirror_piece *piece)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);
		const struct mirror *mirror =
			tier->mirrors && gpu_updates_takes_any(tier) ? find(tier->mirrors, piece) : NULL;

		if (mirror && has(mirror, piece))
			return tier->updates;
	}
	return NULL;
}

struct mirror *mirror_take(struct gpu_updates *updates, const struct mirror_piece *piece, bool *ret_is_right)
{
	struct gpu_mirrors *mirrors = gpu_updates_tier(updates)->mirrors;
	struct mirror *mirror = mirrors ? find(mirrors, piece) : NULL;
	struct queue *spare;

	*ret_is_right = mirror && has(mirror, piece);
	if (mirror) {
		queue_remove(&mirror->link);
		return mirror;
	}
	spare = mirrors ? queue_pop(&mirrors->spare) : NULL;
	if (mirrors && !spare)
		fetch_more(mirrors);
	return spare ? queue_entry(spare, struct mirror, link) : NULL;
}

driver_address mirror_address(const struct mirror *mirror)
{
	return mirror->address;
}

void mirror_give(struct mirror *mirror, const struct mirror_piece *piece)
{
	if (piece)
		mirror->piece = *piece;
	queue_push(piece ? bucket_of(mirror->mirrors, piece) : &mirror->mirrors->spare, &mirror->link);
}

void mirrors_drop(const struct job *job, const struct mirror_piece *piece)
{
	QUEUE_FOREACH (link, &job->gpu->tiers) {
		const struct gpu_tier *tier = queue_entry(link, struct gpu_tier, link);
		struct mirror *mirror = tier->mirrors ? find(tier->mirrors, piece) : NULL;

		if (!mirror)
			continue;
		queue_remove(&mirror->link);
		queue_push(&mirror->mirrors->spare, &mirror->link);
	}
}
