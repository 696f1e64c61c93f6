/* Requests about blobs. Their bytes come and go through the rank's exchange window, a piece at a time: the
 * loop copies them itself, so a piece is small. */

#include <errno.h>
#include <string.h>

#include "common/size.h"
#include "daemon/durability/own.h"
#include "daemon/model/model.h"

#define MOST_PER_REPLY 4096

/* ---- Checks ---- */

static bool check_key(struct pending *pending, const char *key)
{
	if (blob_key_is_valid(key))
		return true;
	pending_error(pending, -EINVAL,
		      "a blob's key has 1 to %d printable characters without blanks, of ASCII",
		      WIRE_MAX_BLOB_KEY);
	return false;
}

static bool check_piece(struct pending *pending, uint64_t count)
{
	if (count > WIRE_BLOB_PIECE)
		pending_error(pending, -E2BIG, "a piece of a blob has %d bytes at most", WIRE_BLOB_PIECE);
	else if (pending->member->operation || pending->member->batch)
		pending_error(pending, -EBUSY, "the window is in use by another request");
	else
		return true;
	return false;
}

static uint32_t owner_of(const struct member *member, bool is_shared)
{
	return is_shared ? BLOB_SHARED : member->rank;
}

/* ---- Setting ---- */

void blob_forget_upload(struct member *member)
{
	if (member->upload)
		blobs_give_up(member->job, TAKE_PTR(member->upload));
	member->uploaded = 0;
}

static bool begin(struct pending *pending, const Tierd__Wire__BlobWrite *write)
{
	struct member *member = pending->member;
	char message[640];
	int r;

	blob_forget_upload(member);
	r = blobs_begin(member->job, write->key, owner_of(member, write->is_shared), write->size,
			write->is_deletion, &member->upload, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "job %s, blob \"%s\": %s", member->job->name, write->key, message);
	return r == 0;
}

/* A step that the rank has yet to finish, or else the one that it closes next. */
static uint64_t step_of(const struct member *member)
{
	return member_last_version(member) + !member_owes_step(member);
}

/* One that goes on with another than it has begun with, or not where that has ended, is a broken client's. */
static bool check_order(struct pending *pending, const Tierd__Wire__BlobWrite *write)
{
	struct member *member = pending->member;
	uint64_t end;

	if (member->upload && member->upload->size == write->size && member->uploaded == write->offset &&
	    size_add(write->offset, write->count, &end) && end <= write->size &&
	    (write->count > 0 || write->size == 0))
		return true;
	blob_forget_upload(member);
	pending_error(pending, -EINVAL, "blob \"%s\": its pieces come in order, and are as long as it is",
		      write->key);
	return false;
}

static void take_piece(struct pending *pending, const Tierd__Wire__BlobWrite *write)
{
	struct member *member = pending->member;

	if (write->count > 0)
		memcpy(member->upload->bytes + write->offset, member->window.base, write->count);
	member->uploaded += write->count;
	if (member->uploaded == write->size) {
		member->uploaded = 0;
		blobs_stage(member->job, TAKE_PTR(member->upload), member->rank, step_of(member));
	}
	pending_reply(pending, NULL);
}

void blob_write(struct pending *pending, const Tierd__Wire__BlobWrite *write)
{
	if (!job_check_live(pending, write->epoch) || !check_key(pending, write->key) ||
	    !check_piece(pending, write->count))
		return;
	if (write->is_deletion && write->size > 0) {
		pending_error(pending, -EINVAL, "blob \"%s\": what is deleted has no bytes", write->key);
		return;
	}
	if (write->offset == 0 && !begin(pending, write))
		return;
	if (check_order(pending, write))
		take_piece(pending, write);
}

/* ---- Getting ---- */

void blob_read(struct pending *pending, const Tierd__Wire__BlobRead *read)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	Tierd__Wire__BlobReply body = TIERD__WIRE__BLOB_REPLY__INIT;
	const struct blob *blob;

	if (!check_key(pending, read->key) || !check_piece(pending, read->count))
		return;
	blob = blobs_find(job, read->key, owner_of(member, read->is_shared));
	if (!blob || !blob->counts) {
		pending_error(pending, -ENOENT, "job %s has no blob \"%s\"%s", job->name, read->key,
			      read->is_shared ? " that its ranks share" : " of this rank");
		return;
	}
	body.size = blob->size;
	body.step = blob->step;
	if (read->offset < blob->size) {
		uint64_t left = blob->size - read->offset;

		body.count = (uint32_t)(read->count < left ? read->count : left);
		memcpy(member->window.base, job->durability->blobs.image.base + blob->offset + read->offset,
		       body.count);
	}
	pending_reply(pending, WIRE_REPLY(BLOB, blob, &body));
}

/* ---- Listing ---- */

void blob_list(struct pending *pending, const Tierd__Wire__BlobsRead *read)
{
	struct job *job = access_find(pending, read->job, read->has_owner, read->owner);
	Tierd__Wire__BlobsReply body = TIERD__WIRE__BLOBS_REPLY__INIT;
	Tierd__Wire__BlobEntry *entries, **pointers;

	if (!job)
		return;
	entries = calloc(MOST_PER_REPLY, sizeof(*entries));
	pointers = calloc(MOST_PER_REPLY, sizeof(struct Tierd__Wire__BlobEntry *));
	QUEUE_FOREACH (link, &job->durability->blobs.all) {
		struct blob *blob = queue_entry(link, struct blob, link);

		if (!blob->counts || body.total++ < read->first || !entries || !pointers ||
		    body.n_blobs == MOST_PER_REPLY)
			continue;
		Tierd__Wire__BlobEntry *entry = pointers[body.n_blobs] = &entries[body.n_blobs];

		tierd__wire__blob_entry__init(entry);
		entry->key = blob->key;
		entry->is_shared = blob->rank == BLOB_SHARED;
		entry->rank = entry->is_shared ? 0 : blob->rank;
		entry->has_no_rank = !entry->is_shared && blob->rank >= job->options.world_size;
		entry->size = blob->size;
		entry->step = blob->step;
		body.n_blobs++;
	}
	body.blobs = pointers;
	body.bytes = blobs_bytes(job);
	if (entries && pointers)
		pending_reply(pending, WIRE_REPLY(BLOBS, blobs, &body));
	else
		pending_error(pending, -ENOMEM, "out of memory");
	free(entries);
	free(pointers);
}
