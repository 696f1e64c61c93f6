/* Verifies a store on devices. Its lineage finds the extents that only snapshots have. Each gets a name, and
 * is read block by block while its device is idle; then it loses the name. */
#include "offload/store/store_verify.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store/extent_store.h"

/* ---- What was found ---- */

static void name_snapshots(const struct store_verification *verification, uint32_t heads,
			   char text[STORE_NAMES_TEXT])
{
	size_t used = 0;
	unsigned more = 0;

	text[0] = '\0';
	heads &= ~verification->nodes.job;
	for (unsigned head = 0; head < HEAD_RECORDS; head++) {
		if (!(heads >> head & 1))
			continue;
		if (used + HEAD_NAME_BYTES + sizeof(" and 14 more") > STORE_NAMES_TEXT)
			more++;
		else
			used += (size_t)snprintf(text + used, STORE_NAMES_TEXT - used, "%s%s",
						 used ? ", " : "", verification->names[head]);
	}
	if (more > 0)
		snprintf(text + used, STORE_NAMES_TEXT - used, " and %u more", more);
}

static void on_flaw(struct lineage_verification *nodes, const struct lineage_flaw *found)
{
	static const enum store_part parts[] = { [LINEAGE_SUPERBLOCK] = STORE_SUPERBLOCK,
						 [LINEAGE_TABLE] = STORE_TABLE,
						 [LINEAGE_NODE] = STORE_NODE };
	struct store_verification *verification = container_of(nodes, struct store_verification, nodes);
	struct store_flaw flaw = {
		.part = parts[found->part],
		.is_of_job = found->heads & nodes->job || found->part != LINEAGE_NODE,
		.level = found->level,
		.index = found->index,
		.copy = found->copy,
		.device = found->device,
		.device_offset = found->device_offset,
		.length = found->part == LINEAGE_SUPERBLOCK ? SUPERBLOCK_BYTES : NODE_BYTES,
		.status = found->status,
		.is_mended = found->is_mended,
		.has_other = found->has_other,
	};

	name_snapshots(verification, found->heads, flaw.snapshots);
	verification->found(verification, &flaw);
}

/* The job reads that place itself. */
static bool is_current(const struct extent_store *store, const struct lineage_kept *kept)
{
	return kept->at.device == kept->extent % store->device_count &&
	       kept->at.place == store->map.extents[kept->extent].place;
}

static void on_kept(struct lineage_verification *nodes, const struct lineage_kept *kept)
{
	struct store_verification *verification = container_of(nodes, struct store_verification, nodes);
	struct extent_store *store = verification->store;
	struct lineage_kept *grown;
	int r;

	if (is_current(store, kept) || !lineage_has_place(store->lineage, &kept->at))
		return;
	if (verification->count == verification->capacity) {
		verification->capacity =
			verification->capacity ? 2 * verification->capacity : STORE_GROUP_EXTENTS;
		grown = realloc(verification->kept, verification->capacity * sizeof(*grown));
		if (!grown) {
			verification->capacity = verification->count;
			verification->status = -ENOMEM;
			return;
		}
		verification->kept = grown;
	}
	r = places_name(lineage_places(store->lineage, kept->at.device), kept->at.place);
	if (r < 0)
		verification->status = r;
	else
		verification->kept[verification->count++] = *kept;
	store->verified += r == 0;
}

/* ---- Superblocks and nodes ---- */

static void verified(struct lineage_request *step, int status)
{
	struct extent_store *store = container_of(step, struct extent_store, step);
	struct store_verification *verification = store->verification;

	store->verification = NULL;
	extent_end_request(store, status == 0 ? verification->status : status);
}

static void note_names(struct store_verification *verification, const struct extent_store *store)
{
	const struct head_table *table = lineage_table(store->lineage);

	for (unsigned i = 0; i < table->count; i++)
		memcpy(verification->names[i], table->records[i].name, sizeof(table->records[i].name));
}

static int run_nodes(struct extent_store *store)
{
	note_names(store->verification, store);
	return lineage_verify(&store->head, &store->verification->nodes, &store->step);
}

int store_verify(struct store *base, struct store_verification *verification, struct store_request *request)
{
	struct extent_store *store;
	int r = extent_may_ask(base, &store);

	if (r < 0)
		return r;
	verification->store = store;
	verification->status = 0;
	verification->count = verification->next = 0;
	verification->nodes = (struct lineage_verification){
		.leaf = verification->group, .buffer = verification->buffer, .found = on_flaw, .kept = on_kept
	};
	store->verification = verification;
	r = extent_ask(store, request, run_nodes, verified);
	if (r < 0)
		store->verification = NULL;
	return r;
}

/* ---- Extents ---- */

static const struct lineage_kept *current(const struct store_verification *verification)
{
	return &verification->kept[verification->next];
}

static void give(struct store_verification *verification)
{
	const struct node_extent *at = &current(verification)->at;

	places_give(lineage_places(verification->store->lineage, at->device), at->place);
	verification->store->verified--;
	verification->next++;
}

void store_verification_clear(struct store_verification *verification)
{
	bool has_given = verification->next < verification->count;

	while (verification->next < verification->count)
		give(verification);
	if (has_given)
		extent_feed(verification->store);
	free(verification->kept);
	verification->kept = NULL;
	verification->count = verification->capacity = verification->next = 0;
}

static uint64_t block_bytes(const struct store_verification *verification)
{
	return store_block_bytes(&verification->store->store, verification->range.stream);
}

static uint64_t block_length(const struct store_verification *verification)
{
	uint64_t rest = verification->range.length - verification->at, bytes = block_bytes(verification);

	return rest < bytes ? rest : bytes;
}

static void tell_block(struct store_verification *verification)
{
	const struct store_range *range = &verification->range;
	struct store_flaw flaw = {
		.part = STORE_EXTENT,
		.block = { range->stream, range->offset + verification->at, block_length(verification) },
		.device = verification->store->devices[current(verification)->at.device].tier->label,
		.device_offset = verification->io.offset,
		.length = block_length(verification),
		.status = verification->status,
	};

	name_snapshots(verification, current(verification)->heads, flaw.snapshots);
	verification->found(verification, &flaw);
}

static void read_next(struct store_verification *verification);

static void block_verified(struct work *work)
{
	struct store_verification *verification = container_of(work, struct store_verification, work);

	if (verification->status < 0)
		tell_block(verification);
	verification->bytes += block_length(verification);
	verification->store->store.bytes[TIER_READ] += block_length(verification);
	verification->at += block_length(verification);
	if (verification->at == verification->range.length) {
		give(verification);
		extent_feed(verification->store);
		verification->at = 0;
	}
	read_next(verification);
}

static void run_verify(struct work *work)
{
	struct store_verification *verification = container_of(work, struct store_verification, work);
	uint64_t block = verification->at / block_bytes(verification);

	if (verification->status == 0 &&
	    store_checksum(&verification->store->store, verification->range.stream,
			   verification->range.offset + verification->at, verification->buffer,
			   block_length(verification)) != current(verification)->at.checksums[block])
		verification->status = -EBADMSG;
}

/* On a worker also if the read failed, because done() does not run inside the call. */
static void check_block(struct store_verification *verification, int status)
{
	verification->status = status;
	verification->work.run = run_verify;
	verification->work.done = block_verified;
	verification->work.urgency = WORK_NORMAL;
	workers_submit(verification->store->workers, &verification->work);
}

static void block_read(struct tier_io *io, int status)
{
	check_block(container_of(io, struct store_verification, io), status);
}

static void read_block(struct store_verification *verification)
{
	const struct node_extent *at = &current(verification)->at;
	struct extent_store *store = verification->store;
	int r;

	verification->range = store_layout_range_of(store->store.layout, current(verification)->extent);
	verification->io = (struct tier_io){
		.direction = TIER_READ,
		.priority = TIER_IDLE,
		.buffer = verification->buffer,
		.offset = extent_place_offset(store, at->place) + verification->at,
		.length = block_length(verification),
		.done = block_read,
	};
	r = tier_submit(store->devices[at->device].tier, &verification->io);
	if (r < 0)
		check_block(verification, r);
}

static void read_next(struct store_verification *verification)
{
	if (verification->next < verification->count && verification->goes_on(verification)) {
		read_block(verification);
		return;
	}
	store_verification_clear(verification);
	verification->done(verification);
}

bool store_verify_extents(struct store_verification *verification)
{
	if (verification->next == verification->count) {
		store_verification_clear(verification);
		return false;
	}
	verification->at = 0;
	read_block(verification);
	return true;
}
