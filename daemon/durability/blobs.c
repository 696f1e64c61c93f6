#include "daemon/durability/blobs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/durability/own.h"
#include "daemon/resources/resources.h"
#include "daemon/request/request.h"

void blobs_init(struct blobs *blobs)
{
	queue_init(&blobs->all);
	queue_init(&blobs->begun);
	queue_init(&blobs->staged);
	blobs->image = (struct memory)MEMORY_INIT;
}

uint64_t blobs_bytes(const struct job *job)
{
	return size_align(job->options.blob_bytes, STORE_EXTENT_BYTES);
}

uint32_t blobs_most(const struct job *job)
{
	return job->options.blob_bytes > 0 ? BLOBS_MOST : 0;
}

bool blob_key_is_valid(const char *key)
{
	size_t length = strlen(key);

	if (length == 0 || length > WIRE_MAX_BLOB_KEY)
		return false;
	for (size_t i = 0; i < length; i++)
		if (key[i] <= ' ' || key[i] > '~')
			return false;
	return true;
}

/* ---- One of them ---- */

struct blob *blobs_find(const struct job *job, const char *key, uint32_t rank)
{
	QUEUE_FOREACH (link, &job->durability->blobs.all) {
		struct blob *blob = queue_entry(link, struct blob, link);

		if (blob->rank == rank && strcmp(blob->key, key) == 0)
			return blob;
	}
	return NULL;
}

static unsigned count_of(const struct job *job, uint32_t rank)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->durability->blobs.all)
		count += queue_entry(link, struct blob, link)->rank == rank;
	return count;
}

static struct blob *add(struct job *job, const char *key, uint32_t rank)
{
	struct blob *blob = calloc(1, sizeof(*blob));

	if (!blob)
		return NULL;
	strcpy(blob->key, key);
	blob->rank = rank;
	queue_push(&job->durability->blobs.all, &blob->link);
	job->durability->blobs.count++;
	return blob;
}

static void set_room(struct job *job, struct blob *blob, uint64_t room)
{
	job->durability->blobs.room += room - blob->room;
	blob->room = room;
}

/* Whether one of them is to become this blob. The room grows to what that takes. */
static bool has_of(const struct queue *queue, const struct blob *blob, uint64_t *room)
{
	bool has_one = false;

	QUEUE_FOREACH (link, queue) {
		const struct staged_blob *staged = queue_entry(link, struct staged_blob, link);

		if (staged->blob != blob)
			continue;
		has_one = true;
		*room = staged->size > *room ? staged->size : *room;
	}
	return has_one;
}

/* After something of it has gone: it takes as much as is left, and is forgotten with the last of it. What
 * another rank has begun under a key that they share is a part of it. */
static void shrink(struct job *job, struct blob *blob)
{
	uint64_t room = blob->counts ? blob->size : 0;
	bool is_begun = has_of(&job->durability->blobs.begun, blob, &room);
	bool is_staged = has_of(&job->durability->blobs.staged, blob, &room);

	set_room(job, blob, room);
	if (blob->counts || is_begun || is_staged)
		return;
	queue_remove(&blob->link);
	free(blob);
	job->durability->blobs.count--;
}

/* ---- Staged ones ---- */

static int check_room(const struct job *job, const struct blob *blob, uint64_t size, char *message,
		      size_t length)
{
	uint64_t grows = blob ? (size > blob->room ? size - blob->room : 0) : size;
	uint64_t left = blobs_bytes(job) - job->durability->blobs.room;

	if (job->options.blob_bytes > 0 && grows <= left)
		return 0;
	return refuse(
		message, length, -ENOSPC,
		job->options.blob_bytes == 0
			? "the job has no room for blobs; open it with blob_bytes"
			: "%llu bytes more of blobs do not fit: the job has room for %llu, and %llu are "
			  "left; delete some, or open it with more blob_bytes",
		(unsigned long long)grows, (unsigned long long)blobs_bytes(job), (unsigned long long)left);
}

static int check(const struct job *job, const struct blob *blob, uint32_t rank, uint64_t size, char *message,
		 size_t length)
{
	if (size > WIRE_MAX_BLOB_BYTES)
		return refuse(message, length, -EINVAL, "a blob of %llu bytes; it has %llu at most",
			      (unsigned long long)size, (unsigned long long)WIRE_MAX_BLOB_BYTES);
	if (!blob && job->options.blob_bytes > 0 && count_of(job, rank) >= BLOB_KEYS)
		return refuse(message, length, -ENOSPC, "there are %d keys already %s; delete a blob",
			      BLOB_KEYS, rank == BLOB_SHARED ? "that ranks share" : "of this rank");
	if (!blob && job->options.blob_bytes > 0 && job->durability->blobs.count >= BLOBS_MOST)
		return refuse(message, length, -ENOSPC, "the job has %d blobs already; delete some",
			      BLOBS_MOST);
	return check_room(job, blob, size, message, length);
}

static int make_staged(struct job *job, uint64_t size, struct staged_blob **ret_staged, char *message,
		       size_t length)
{
	struct staged_blob *staged;
	int r = budget_charge(job, sizeof(*staged) + size, message, length);

	if (r < 0)
		return r;
	staged = calloc(1, sizeof(*staged) + size);
	if (!staged) {
		budget_uncharge(job, sizeof(*staged) + size);
		return refuse(message, length, -ENOMEM, "out of memory");
	}
	queue_push(&job->durability->blobs.begun, &staged->link);
	staged->size = size;
	*ret_staged = staged;
	return 0;
}

static int make_image(struct job *job)
{
	return job->durability->blobs.image.base
		       ? 0
		       : memory_new_private(blobs_bytes(job), &job->durability->blobs.image);
}

int blobs_begin(struct job *job, const char *key, uint32_t rank, uint64_t size, bool is_deletion,
		struct staged_blob **ret_staged, char *message, size_t length)
{
	struct blob *blob = blobs_find(job, key, rank);
	struct staged_blob *staged = NULL;
	int r = check(job, blob, rank, size, message, length);

	if (r == 0 && make_image(job) < 0)
		r = refuse(message, length, -ENOMEM, "out of memory");
	if (r == 0)
		r = make_staged(job, size, &staged, message, length);
	if (r < 0)
		return r;
	if (!blob)
		blob = add(job, key, rank);
	staged->blob = blob;
	staged->is_deletion = is_deletion;
	if (!blob) {
		blobs_give_up(job, staged);
		return refuse(message, length, -ENOMEM, "out of memory");
	}
	if (size > blob->room)
		set_room(job, blob, size);
	*ret_staged = staged;
	return 0;
}

static void staged_free(struct job *job, struct staged_blob *staged)
{
	queue_remove(&staged->link);
	budget_uncharge(job, sizeof(*staged) + staged->size);
	free(staged);
}

void blobs_give_up(struct job *job, struct staged_blob *staged)
{
	struct blob *blob = staged->blob;

	staged_free(job, staged);
	if (blob)
		shrink(job, blob);
}

static struct queue *place_of(struct blobs *blobs, const struct staged_blob *staged)
{
	QUEUE_FOREACH (link, &blobs->staged) {
		const struct staged_blob *other = queue_entry(link, struct staged_blob, link);

		if (other->step > staged->step || (other->step == staged->step && other->rank > staged->rank))
			return link;
	}
	return &blobs->staged;
}

void blobs_stage(struct job *job, struct staged_blob *staged, uint32_t rank, uint64_t step)
{
	staged->rank = rank;
	staged->step = step;
	QUEUE_FOREACH (link, &job->durability->blobs.staged) {
		struct staged_blob *other = queue_entry(link, struct staged_blob, link);

		if (other->blob == staged->blob && other->rank == rank && other->step == step)
			staged_free(job, other);
	}
	queue_remove(&staged->link);
	queue_push(place_of(&job->durability->blobs, staged), &staged->link);
	shrink(job, staged->blob);
}

void blobs_drop_undecided(struct job *job, uint32_t rank)
{
	QUEUE_FOREACH (link, &job->durability->blobs.staged) {
		struct staged_blob *staged = queue_entry(link, struct staged_blob, link);

		if (staged->rank == rank && staged->step > job->decided)
			blobs_give_up(job, staged);
	}
}

void blobs_fail_step(struct job *job)
{
	QUEUE_FOREACH (link, &job->durability->blobs.staged) {
		struct staged_blob *staged = queue_entry(link, struct staged_blob, link);

		if (staged->step == job->decided + 1)
			blobs_give_up(job, staged);
		else if (staged->step > job->decided)
			staged->step--;
	}
}

void blobs_free(struct job *job)
{
	struct blobs *blobs = &job->durability->blobs;

	for (struct queue *link = queue_first(&blobs->staged); link; link = queue_first(&blobs->staged))
		staged_free(job, queue_entry(link, struct staged_blob, link));
	for (struct queue *link = queue_pop(&blobs->all); link; link = queue_pop(&blobs->all))
		free(queue_entry(link, struct blob, link));
	memory_free(&blobs->image);
	*blobs = (struct blobs){ .count = 0 };
	blobs_init(blobs);
}

/* ---- The image ---- */

static void mark_dirty(struct blobs *blobs, uint64_t offset, uint64_t size)
{
	if (size == 0)
		return;
	if (blobs->dirty_first == blobs->dirty_end) {
		blobs->dirty_first = offset;
		blobs->dirty_end = offset + size;
	}
	if (offset < blobs->dirty_first)
		blobs->dirty_first = offset;
	if (offset + size > blobs->dirty_end)
		blobs->dirty_end = offset + size;
}

static void write_image(struct blobs *blobs, const struct staged_blob *staged)
{
	struct blob *blob = staged->blob;

	if (staged->size > 0)
		memcpy(blobs->image.base + blob->offset, staged->bytes, staged->size);
	blob->step = staged->step;
	mark_dirty(blobs, blob->offset, staged->size);
}

/* Those behind one that has gone, or has another size now, move up. */
static void close_gaps(struct blobs *blobs)
{
	uint64_t offset = 0;

	QUEUE_FOREACH (link, &blobs->all) {
		struct blob *blob = queue_entry(link, struct blob, link);

		if (!blob->counts)
			continue;
		if (blob->offset != offset) {
			memmove(blobs->image.base + offset, blobs->image.base + blob->offset, blob->size);
			mark_dirty(blobs, offset, blob->size);
		}
		blob->offset = offset;
		offset += blob->size;
	}
	blobs->used = offset;
}

static void append(struct blobs *blobs, const struct staged_blob *staged)
{
	struct blob *blob = staged->blob;

	queue_remove(&blob->link);
	queue_push(&blobs->all, &blob->link);
	blob->counts = true;
	blob->size = staged->size;
	blob->offset = blobs->used;
	blobs->used += blob->size;
	write_image(blobs, staged);
}

static void apply(struct job *job, struct staged_blob *staged)
{
	struct blob *blob = staged->blob;

	if (blob->counts && blob->size == staged->size && !staged->is_deletion) {
		write_image(&job->durability->blobs, staged);
	} else {
		if (blob->counts) {
			blob->counts = false;
			close_gaps(&job->durability->blobs);
		}
		if (!staged->is_deletion)
			append(&job->durability->blobs, staged);
	}
	blobs_give_up(job, staged);
}

void blobs_apply(struct job *job)
{
	QUEUE_FOREACH (link, &job->durability->blobs.staged) {
		struct staged_blob *staged = queue_entry(link, struct staged_blob, link);

		if (staged->step <= job->step)
			apply(job, staged);
	}
}

bool blobs_take_dirty(struct job *job, uint64_t *ret_offset, uint64_t *ret_length)
{
	struct blobs *blobs = &job->durability->blobs;

	if (blobs->dirty_first == blobs->dirty_end)
		return false;
	*ret_offset = blobs->dirty_first / STORE_EXTENT_BYTES * STORE_EXTENT_BYTES;
	*ret_length = size_align(blobs->dirty_end, STORE_EXTENT_BYTES) - *ret_offset;
	blobs->dirty_first = blobs->dirty_end = 0;
	return true;
}

int blobs_restore(struct job *job, const char *key, uint32_t rank, uint64_t size, uint64_t step)
{
	struct blobs *blobs = &job->durability->blobs;
	struct blob *blob;

	if (!blob_key_is_valid(key) || (rank >= WIRE_MAX_WORLD_SIZE && rank != BLOB_SHARED) ||
	    size > WIRE_MAX_BLOB_BYTES || size > blobs_bytes(job) - blobs->used || step > job->step ||
	    blobs_find(job, key, rank) || count_of(job, rank) >= BLOB_KEYS || blobs->count >= blobs_most(job))
		return -EBADMSG;
	blob = add(job, key, rank);
	if (!blob)
		return -ENOMEM;
	blob->counts = true;
	blob->size = size;
	blob->step = step;
	blob->offset = blobs->used;
	blobs->used += size;
	set_room(job, blob, size);
	return 0;
}

int blobs_load(struct job *job, struct store_transfer *transfer)
{
	struct blobs *blobs = &job->durability->blobs;
	int r;

	if (blobs->used == 0)
		return -ENODATA;
	r = make_image(job);
	if (r < 0)
		return r;
	transfer->direction = TIER_READ;
	transfer->priority = TIER_DEMAND;
	transfer->stream = job->location.streams.blobs;
	transfer->offset = 0;
	transfer->length = size_align(blobs->used, STORE_EXTENT_BYTES);
	transfer->buffer = blobs->image.base;
	r = store_submit(job_nvme_store(job), transfer);
	blobs->is_loading = r == 0;
	return r;
}

void blobs_end_load(struct job *job)
{
	job->durability->blobs.is_loading = false;
}

bool blobs_are_loading(const struct job *job)
{
	return job->durability->blobs.is_loading;
}
