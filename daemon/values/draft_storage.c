/* Where a draft is kept: in scratch files, or in host memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/values/draft.h"
#include "offload/device/fault.h"
#include "offload/device/nvme.h"

static bool is_in_memory(const struct draft *draft)
{
	return draft->job->location.paths.count == 0;
}

/* ---- More of it ---- */

#define FILE_NAME_BYTES 160

static int new_tier(const struct job *job, struct node_path *path, uint64_t bytes, struct tier **ret_tier)
{
	const struct node *node = job->node;
	char folder[16], name[FILE_NAME_BYTES];
	struct nvme_config config = { .engine = node->engine,
				      .directory_fd = path->directory_fd,
				      .directory = path->folder,
				      .name = name,
				      .capacity = bytes,
				      .is_buffered = !path->is_direct,
				      .device = path->device,
				      .share = budget_device_share(job),
				      .moved = path->moved };
	_cleanup_(tier_freep) struct tier *tier = NULL;
	struct fault_config fault;
	int r;

	snprintf(folder, sizeof(folder), "%u", (unsigned)job->uid);
	snprintf(name, sizeof(name), "%s/%s-%llu.draft", folder, job->name, (unsigned long long)job->number);
	if (mkdirat(path->directory_fd, folder, 0700) < 0 && errno != EEXIST)
		return -errno;
	r = nvme_tier_new(&config, &tier);
	if (r == 0)
		r = nvme_tier_reserve(tier);
	if (r == 0 && node->fault && fault_config_parse(node->fault, &fault) == 0)
		r = fault_tier_new(TAKE_PTR(tier), &fault, &tier);
	if (r == 0)
		*ret_tier = TAKE_PTR(tier);
	return r;
}

static int grow_files(struct draft *draft)
{
	const struct job *job = draft->job;
	uint64_t bytes = budget_draft_bytes(job);
	uint64_t blocks = bytes / DRAFT_BLOCK_BYTES * job->location.paths.count;
	uint64_t *checksums = realloc(draft->checksums, blocks * sizeof(*checksums));
	int r = 0;

	if (!checksums)
		return refuse(draft->message, sizeof(draft->message), -ENOMEM, "out of memory");
	draft->checksums = checksums;

	for (unsigned i = 0; i < job->location.paths.count && r == 0; i++) {
		struct node_path *path = &job->node->paths[job->location.paths.paths[i]];
		char needed[16], there[16];

		r = draft->tiers[i] ? tier_grow(draft->tiers[i], bytes)
				    : new_tier(job, path, bytes, &draft->tiers[i]);
		if (r == -ENOSPC)
			refuse(draft->message, sizeof(draft->message), r,
			       "the values that it was given take %s more in %s until it is ready, and %s "
			       "are "
			       "left on that disk; free some of it",
			       budget_print_needed(DRAFT_GROWTH_BYTES, needed), path->path,
			       budget_print(node_path_left(path), there));
		else if (r < 0)
			refuse(draft->message, sizeof(draft->message), r,
			       "the values that it was given cannot be kept in %s: %s", path->path,
			       strerror(-r));
	}
	return r;
}

static int grow_memory(struct draft *draft)
{
	char **memory = realloc(draft->memory, (draft->capacity + 1) * sizeof(*memory));

	if (memory)
		draft->memory = memory;
	if (memory)
		memory[draft->capacity] = aligned_alloc(STORE_PAGE_BYTES, DRAFT_BLOCK_BYTES);
	return memory && memory[draft->capacity]
		       ? 0
		       : refuse(draft->message, sizeof(draft->message), -ENOMEM, "out of memory");
}

static void run_growth(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	draft->status = is_in_memory(draft) ? grow_memory(draft) : grow_files(draft);
}

static void give_back(struct draft *draft)
{
	if (is_in_memory(draft))
		budget_uncharge(draft->job, DRAFT_BLOCK_BYTES);
	else
		budget_give_draft(draft->job, DRAFT_GROWTH_BYTES);
}

static void on_grown(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	if (draft->status < 0)
		give_back(draft);
	else
		draft->capacity += is_in_memory(draft) ? 1
						       : DRAFT_GROWTH_BYTES / DRAFT_BLOCK_BYTES *
								 draft->job->location.paths.count;
	draft->done(draft, draft->status);
}

void draft_grow(struct draft *draft, void (*done)(struct draft *draft, int status))
{
	struct job *job = draft->job;
	int r = is_in_memory(draft)
			? budget_charge(job, DRAFT_BLOCK_BYTES, draft->message, sizeof(draft->message))
			: budget_take_draft(job, DRAFT_GROWTH_BYTES, draft->message, sizeof(draft->message));

	if (r < 0) {
		done(draft, r);
		return;
	}
	draft->done = done;
	draft->work = (struct work){ .run = run_growth, .done = on_grown, .urgency = WORK_NORMAL };
	workers_submit(job->node->slow_workers, &draft->work);
}

/* ---- Blocks ---- */

static uint64_t checksum(const struct draft *draft)
{
	return XXH3_64bits_withSeed(draft->place, DRAFT_BLOCK_BYTES, draft->block);
}

static void end_move(struct draft *draft, int status, const char *what)
{
	if (status < 0)
		refuse(draft->message, sizeof(draft->message), status, "the values that it was given %s: %s",
		       what, strerror(-status));
	draft->done(draft, status);
}

static void on_verified(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	end_move(draft, draft->status, "are not what was written to NVMe");
}

static void run_verify(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	draft->status = checksum(draft) == draft->checksums[draft->block] ? 0 : -EBADMSG;
}

static void on_moved(struct tier_io *io, int status)
{
	struct draft *draft = container_of(io, struct draft, io);

	if (status < 0 || io->direction == TIER_WRITE) {
		end_move(draft, status, "cannot be kept on NVMe");
		return;
	}
	draft->work = (struct work){ .run = run_verify, .done = on_verified, .urgency = WORK_NORMAL };
	workers_submit(draft->job->node->workers, &draft->work);
}

static void submit(struct draft *draft)
{
	unsigned paths = draft->job->location.paths.count;
	int r;

	draft->io =
		(struct tier_io){ .direction = draft->direction,
				  .priority = draft->direction == TIER_READ ? TIER_DEMAND : TIER_WRITE_BACK,
				  .buffer = draft->place,
				  .offset = draft->block / paths * DRAFT_BLOCK_BYTES,
				  .length = DRAFT_BLOCK_BYTES,
				  .done = on_moved };
	r = tier_submit(draft->tiers[draft->block % paths], &draft->io);
	if (r < 0)
		end_move(draft, r, "cannot be kept on NVMe");
}

/* On a worker: what moves in memory, and the checksum of what is about to be written. */
static void run_move(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	if (!is_in_memory(draft))
		draft->checksums[draft->block] = checksum(draft);
	else if (draft->direction == TIER_WRITE)
		memcpy(draft->memory[draft->block], draft->place, DRAFT_BLOCK_BYTES);
	else
		memcpy(draft->place, draft->memory[draft->block], DRAFT_BLOCK_BYTES);
}

static void on_prepared(struct work *work)
{
	struct draft *draft = container_of(work, struct draft, work);

	if (is_in_memory(draft))
		draft->done(draft, 0);
	else
		submit(draft);
}

void draft_move(struct draft *draft, enum tier_direction direction, uint64_t block, char *place,
		void (*done)(struct draft *draft, int status))
{
	draft->done = done;
	draft->direction = direction;
	draft->block = block;
	draft->place = place;
	if (direction == TIER_READ && !is_in_memory(draft)) {
		submit(draft);
		return;
	}
	draft->work = (struct work){ .run = run_move, .done = on_prepared, .urgency = WORK_NORMAL };
	workers_submit(draft->job->node->workers, &draft->work);
}

/* ---- The end ---- */

void draft_forget_block(struct draft *draft, uint64_t block)
{
	if (!is_in_memory(draft) || !draft->memory[block])
		return;
	free(draft->memory[block]);
	draft->memory[block] = NULL;
	budget_uncharge(draft->job, DRAFT_BLOCK_BYTES);
}

void draft_free_storage(struct draft *draft)
{
	struct made made = MADE_INIT;

	for (uint64_t i = 0; is_in_memory(draft) && i < draft->capacity; i++)
		draft_forget_block(draft, i);
	free(draft->memory);
	free(draft->checksums);
	memcpy(made.draft, draft->tiers, sizeof(made.draft));
	disposal_start(draft->job->node, &made);
	budget_give_draft(draft->job, budget_draft_bytes(draft->job));
}
