#include "daemon/warm.h"

#include <assert.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/budget.h"
#include "daemon/disposal.h"
#include "daemon/job.h"
#include "daemon/sweep.h"

/* Small enough that little more goes than is needed, and few enough for the kernel's table of buffers. */
#define SHARES_USUAL 32
#define SHARES_MOST (2 * SHARES_USUAL)
#define SHARE_LEAST (2 * MIB)

enum share_state { SHARE_AWAY, SHARE_COMING, SHARE_HERE, SHARE_DRAINING, SHARE_GOING };

struct share {
	struct warm *warm;
	struct memory memory;
	uint64_t bytes;
	enum share_state state;
	unsigned users; /* chunks that are taken */
	struct work work;
	int status, pinning;
};

struct warm {
	struct job *job;
	uint64_t bytes;	 /* of all chunks */
	bool is_refused; /* the kernel had no memory: it is not asked again */
	struct share shares[SHARES_MOST];
	uint32_t *first_chunk; /* by pack, and behind the last one */
	struct warm_chunk *chunks;
};

/* ---- Chunks in the order of a sweep ---- */

struct walk {
	uint32_t pack, index;
	int section;
	uint64_t first, count; /* elements of the chunk; count 0: none of the section yet */
	uint64_t bytes;
};

#define WALK_INIT                                                                                            \
	{                                                                                                    \
		.index = UINT32_MAX                                                                          \
	}

/* As they lie in a share. */
static uint64_t chunk_bytes(const struct job *job, enum unit_section section, uint64_t count)
{
	uint64_t bytes = 0;

	for (unsigned state = 0; state < state_count(&job->options); state++)
		if (state_exists(section, state))
			bytes += size_align(state_bytes(section, state, count), STORE_PAGE_BYTES);
	return bytes;
}

/* To the next section; false: there is none. */
static bool walk_on_section(const struct job *job, struct walk *walk)
{
	walk->first = walk->count = 0;
	if (++walk->section == UNIT_TRAINABLE_SECTIONS) {
		walk->section = 0;
		walk->pack++;
	}
	return walk->pack < job->catalog.pack_count;
}

/* To the next chunk; false: there is none. */
static bool walk_on(const struct job *job, struct walk *walk)
{
	uint64_t left, most;

	walk->first += walk->count;
	while (walk->first == job->catalog.packs[walk->pack].elements[walk->section])
		if (!walk_on_section(job, walk))
			return false;
	left = job->catalog.packs[walk->pack].elements[walk->section] - walk->first;
	most = chunk_elements(&job->options, (enum unit_section)walk->section);
	walk->count = left < most ? left : most;
	walk->bytes = chunk_bytes(job, (enum unit_section)walk->section, walk->count);
	walk->index++;
	return true;
}

struct size {
	uint32_t chunks;
	uint64_t bytes;
};

static struct size measure(const struct job *job)
{
	struct walk walk = WALK_INIT;
	struct size size = { 0 };

	while (walk_on(job, &walk)) {
		size.chunks++;
		size.bytes += walk.bytes;
	}
	return size;
}

uint64_t warm_metadata_bytes(const struct job *job)
{
	if (!job->has_nvme_optimizer)
		return 0;
	return sizeof(struct warm) + (job->catalog.pack_count + 1) * sizeof(uint32_t) +
	       measure(job).chunks * sizeof(struct warm_chunk);
}

/* ---- Which chunks are warm ---- */

/* Of all that the job may ever have, whoever else there is. */
static uint64_t share_target(const struct job *job, uint64_t bytes)
{
	uint64_t most = job->node->host_budget;

	if (job->host_budget && job->host_budget < most)
		most = job->host_budget;
	if (bytes < most)
		most = bytes;
	return most / SHARES_USUAL > SHARE_LEAST ? most / SHARES_USUAL : SHARE_LEAST;
}

/* Parts of the sweep that could be a share each; a power of two. */
static unsigned find_bits(const struct job *job, struct size size)
{
	uint64_t target = share_target(job, size.bytes);
	unsigned bits = 0;

	while (bits < 31 && size.bytes >> bits > target && size.chunks >> (bits + 1) > 0)
		bits++;
	return bits;
}

static uint32_t reverse(uint32_t number, unsigned bits)
{
	uint32_t reversed = 0;

	for (unsigned i = 0; i < bits; i++)
		reversed |= (number >> i & 1) << (bits - 1 - i);
	return reversed;
}

/* Chunks belong to 2^bits parts by turns, as far as they take as many bytes, and the first shares are those
 * parts whose numbers are farthest from each other: with half of them every second chunk is warm, with three
 * quarters three of four. */
static void assign(struct warm *warm, struct size size)
{
	uint64_t step = size_divide_up(size.bytes, size.chunks), before = 0;
	unsigned bits = find_bits(warm->job, size);
	struct walk walk = WALK_INIT;
	uint32_t pack = 0;

	for (; walk_on(warm->job, &walk); before += walk.bytes) {
		struct warm_chunk *chunk = &warm->chunks[walk.index];
		uint32_t part = (uint32_t)(before / step & ((UINT64_C(1) << bits) - 1));
		uint32_t share = reverse(part, bits);

		while (pack <= walk.pack)
			warm->first_chunk[pack++] = walk.index;
		*chunk = (struct warm_chunk){ .share = share < SHARES_MOST ? share : SLOT_NONE };
		if (chunk->share == SLOT_NONE)
			continue;
		chunk->offset = warm->shares[share].bytes;
		warm->shares[share].bytes += walk.bytes;
	}
	while (pack <= warm->job->catalog.pack_count)
		warm->first_chunk[pack++] = size.chunks;
}

/* ---- Life ---- */

static struct warm *discard(struct warm *warm)
{
	if (warm) {
		free(warm->first_chunk);
		free(warm->chunks);
	}
	free(warm);
	return NULL;
}

/* NULL: out of memory, or there is nothing that could be warm. */
static struct warm *warm_new(struct job *job)
{
	struct size size = measure(job);
	struct warm *warm = size.bytes > 0 ? calloc(1, sizeof(*warm)) : NULL;

	if (!warm)
		return NULL;
	warm->job = job;
	warm->first_chunk = calloc(job->catalog.pack_count + 1, sizeof(*warm->first_chunk));
	warm->chunks = calloc(size.chunks, sizeof(*warm->chunks));
	if (!warm->first_chunk || !warm->chunks)
		return discard(warm);
	warm->bytes = size.bytes;
	for (unsigned i = 0; i < SHARES_MOST; i++)
		warm->shares[i].warm = warm;
	assign(warm, size);
	return warm;
}

void warm_free(struct job *job)
{
	struct warm *warm = TAKE_PTR(job->warm);

	for (unsigned i = 0; warm && i < SHARES_MOST; i++) {
		assert(warm->shares[i].users == 0);
		disposal_start_memory(job->node, &warm->shares[i].memory);
	}
	discard(warm);
}

/* ---- Chunks ---- */

static struct warm_chunk *find_chunk(const struct warm *warm, uint32_t pack, enum unit_section section,
				     uint64_t first)
{
	const struct job_options *options = &warm->job->options;
	const uint64_t *elements = warm->job->catalog.packs[pack].elements;
	uint64_t index = warm->first_chunk[pack] + first / chunk_elements(options, section);

	for (int before = 0; before < (int)section; before++)
		index += size_divide_up(elements[before], chunk_elements(options, (enum unit_section)before));
	return &warm->chunks[index];
}

struct warm_chunk *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     char **ret_data, bool *ret_is_filled)
{
	struct warm *warm = job->warm;
	struct warm_chunk *chunk = warm ? find_chunk(warm, pack, section, first) : NULL;
	struct share *share = chunk && chunk->share != SLOT_NONE ? &warm->shares[chunk->share] : NULL;

	if (!share || share->state != SHARE_HERE)
		return NULL;
	share->users++;
	*ret_data = share->memory.base + chunk->offset;
	*ret_is_filled = chunk->is_filled;
	chunk->is_filled = false;
	return chunk;
}

void warm_give(struct job *job, struct warm_chunk *chunk, bool is_filled)
{
	chunk->is_filled = is_filled;
	job->warm->shares[chunk->share].users--;
}

void warm_forget_pack(struct job *job, uint32_t pack)
{
	const struct warm *warm = job->warm;

	for (uint32_t i = warm ? warm->first_chunk[pack] : 0; warm && i < warm->first_chunk[pack + 1]; i++)
		warm->chunks[i].is_filled = false;
}

/* ---- Shares that come ---- */

static void run_fetch(struct work *work)
{
	struct share *share = container_of(work, struct share, work);

	share->pinning = 0;
	share->status = memory_new_private(share->bytes, &share->memory);
	if (share->status < 0)
		return;
	memory_make_huge(&share->memory, true);
	share->pinning =
		engine_buffer_add(share->warm->job->node->engine, share->memory.base, share->memory.length);
}

static void on_fetched(struct work *work)
{
	struct share *share = container_of(work, struct share, work);
	struct job *job = share->warm->job;

	share->state = share->status < 0 ? SHARE_AWAY : SHARE_HERE;
	if (share->status < 0) {
		log_warning("job %s: the kernel has no memory for more of its state; it is read at each step",
			    job->name);
		share->warm->is_refused = true;
		budget_give_cache(job, share->bytes);
	}
	node_note_pinning(job->node, share->pinning);
	job->cache_moves--;
	job_settle(job);
}

static struct share *next_away(struct warm *warm)
{
	for (unsigned i = 0; i < SHARES_MOST; i++)
		if (warm->shares[i].bytes > 0 && warm->shares[i].state == SHARE_AWAY)
			return &warm->shares[i];
	return NULL;
}

static void start_move(struct share *share, enum share_state state, void (*run)(struct work *work),
		       void (*done)(struct work *work))
{
	struct job *job = share->warm->job;

	share->state = state;
	share->work = (struct work){ .run = run, .done = done, .urgency = WORK_NORMAL };
	job->cache_moves++;
	workers_submit(job->node->slow_workers, &share->work);
}

void warm_fetch(struct job *job)
{
	start_move(next_away(job->warm), SHARE_COMING, run_fetch, on_fetched);
}

/* ---- Shares that go ---- */

static void run_discard(struct work *work)
{
	struct share *share = container_of(work, struct share, work);

	/* In this order: pages that are pinned would stay. */
	engine_buffer_remove(share->warm->job->node->engine, share->memory.base, share->memory.length);
	memory_free(&share->memory);
}

static void on_discarded(struct work *work)
{
	struct share *share = container_of(work, struct share, work);
	struct job *job = share->warm->job;

	share->state = SHARE_AWAY;
	budget_give_cache(job, share->bytes);
	job->cache_moves--;
	/* The job too: if it was dropped, it waited for this. */
	job_settle(job);
	job_settle_all(job->node);
}

static void forget_share(const struct warm *warm, uint32_t share)
{
	for (uint32_t i = 0; i < warm->first_chunk[warm->job->catalog.pack_count]; i++)
		if (warm->chunks[i].share == share)
			warm->chunks[i].is_filled = false;
}

void warm_go_on(struct job *job)
{
	struct warm *warm = job->warm;

	for (unsigned i = 0; warm && i < SHARES_MOST; i++) {
		struct share *share = &warm->shares[i];

		if (share->state != SHARE_DRAINING || share->users > 0)
			continue;
		forget_share(warm, i);
		start_move(share, SHARE_GOING, run_discard, on_discarded);
	}
}

static struct share *last_here(const struct job *job)
{
	unsigned last = SHARES_MOST - 1;

	while (job->warm->shares[last].state != SHARE_HERE)
		last--;
	return &job->warm->shares[last];
}

void warm_close(struct job *job)
{
	last_here(job)->state = SHARE_DRAINING;
}

void warm_keep_all(struct job *job)
{
	for (unsigned i = 0; job->warm && i < SHARES_MOST; i++)
		if (job->warm->shares[i].state == SHARE_DRAINING)
			job->warm->shares[i].state = SHARE_HERE;
}

/* ---- Bytes ---- */

static uint64_t bytes_in(const struct job *job, enum share_state first, enum share_state last)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; job->warm && i < SHARES_MOST; i++)
		if (job->warm->shares[i].state >= first && job->warm->shares[i].state <= last)
			bytes += job->warm->shares[i].bytes;
	return bytes;
}

uint64_t warm_bytes(const struct job *job)
{
	return bytes_in(job, SHARE_COMING, SHARE_GOING);
}

uint64_t warm_bytes_most(const struct job *job)
{
	return job->warm ? job->warm->bytes : 0;
}

uint64_t warm_bytes_here(const struct job *job)
{
	return bytes_in(job, SHARE_HERE, SHARE_HERE);
}

uint64_t warm_bytes_last(const struct job *job)
{
	return last_here(job)->bytes;
}

uint64_t warm_bytes_leaving(const struct job *job)
{
	return bytes_in(job, SHARE_DRAINING, SHARE_GOING);
}

uint64_t warm_bytes_next(struct job *job)
{
	const struct share *share;

	if (!job->warm && job->has_nvme_optimizer && job->phase == JOB_TRAINED)
		job->warm = warm_new(job);
	if (!job->warm || job->warm->is_refused)
		return 0;
	share = next_away(job->warm);
	return share ? share->bytes : 0;
}
