#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/message.h"
#include "client/library/pages/window.h"
#include "proto/vocabulary.h"

static_assert(TIERD_MAX_BLOB_KEY == WIRE_MAX_BLOB_KEY && TIERD_MAX_BLOB_BYTES == WIRE_MAX_BLOB_BYTES,
	      "limits of tierd.h and the wire");

/* A blob that is written, deleted or read. */
struct blob {
	const char *key;
	char *bytes;
	uint64_t size; /* of the blob that is written; or of the buffer that it is read to */
	uint32_t flags;
	bool is_deletion;
};

static int check_blob(const struct blob *blob)
{
	size_t length = strnlen(blob->key, TIERD_MAX_BLOB_KEY + 1);

	if (length == 0 || length > TIERD_MAX_BLOB_KEY)
		return message_fail(-EINVAL, "a blob's key has 1 to %d characters", TIERD_MAX_BLOB_KEY);
	if (blob->flags & ~(uint32_t)TIERD_BLOB_SHARED)
		return message_fail(-EINVAL, "blob \"%s\": no flags 0x%x", blob->key, blob->flags);
	return 0;
}

static uint64_t piece_bytes(const struct tierd_job *job, uint64_t left)
{
	uint64_t most =
		job->window_mapping.bytes < WIRE_BLOB_PIECE ? job->window_mapping.bytes : WIRE_BLOB_PIECE;

	return left < most ? left : most;
}

/* ---- Setting ---- */

static int send_piece(struct tierd_job *job, const struct blob *blob, uint64_t offset, uint64_t count,
		      uint64_t deadline)
{
	Tierd__Wire__BlobWrite write = TIERD__WIRE__BLOB_WRITE__INIT;

	if (count > 0)
		connection_copy(job->node, job->window_mapping.address, blob->bytes + offset, count);
	write.job = job->number;
	write.epoch = job->epoch;
	write.key = (char *)blob->key;
	write.is_shared = blob->flags & TIERD_BLOB_SHARED;
	write.size = blob->size;
	write.offset = offset;
	write.count = (uint32_t)count;
	write.is_deletion = blob->is_deletion;
	return window_call(job, WIRE_REQUEST(BLOB_WRITE, blob_write, &write), deadline, NULL);
}

static int send_all(struct tierd_job *job, const struct blob *blob)
{
	uint64_t deadline = connection_deadline(job->node, -1), offset = 0, count;
	int r = window_take(job, deadline);

	if (r < 0)
		return r;
	/* From here on the blob is a part of the coming step: a lost connection loses a part of the step. */
	job->has_undecided = true;
	do {
		count = piece_bytes(job, blob->size - offset);
		r = send_piece(job, blob, offset, count, deadline);
		if (r < 0)
			return r;
		offset += count;
	} while (offset < blob->size);
	window_give(job);
	return 0;
}

int tierd_blob_set(struct tierd_job *job, const char *key, const void *bytes, size_t size, uint32_t flags)
{
	const struct blob blob = { .key = key, .bytes = (char *)bytes, .size = size, .flags = flags };
	int r = CHECK_GIVEN(job, key);

	if (r == 0 && size > 0)
		r = CHECK_GIVEN(bytes);
	if (r == 0)
		r = check_blob(&blob);
	return r < 0 ? r : JOB_CALL(job, JOB_READY, send_all(job, &blob));
}

int tierd_blob_delete(struct tierd_job *job, const char *key, uint32_t flags)
{
	const struct blob blob = { .key = key, .flags = flags, .is_deletion = true };
	int r = CHECK_GIVEN(job, key);

	if (r == 0)
		r = check_blob(&blob);
	return r < 0 ? r : JOB_CALL(job, JOB_READY, send_all(job, &blob));
}

/* ---- Getting ---- */

static bool is_piece(const Tierd__Wire__BlobReply *reply, uint64_t offset, uint64_t count)
{
	return reply->count <= count && (reply->count > 0 || count == 0 || offset >= reply->size);
}

static int get_piece(struct tierd_job *job, const struct blob *blob, uint64_t offset, uint64_t count,
		     uint64_t deadline, Tierd__Wire__BlobReply *ret_reply)
{
	Tierd__Wire__BlobRead read = TIERD__WIRE__BLOB_READ__INIT;
	int r;

	read.job = job->number;
	read.key = (char *)blob->key;
	read.is_shared = blob->flags & TIERD_BLOB_SHARED;
	read.offset = offset;
	read.count = (uint32_t)count;
	*ret_reply = (Tierd__Wire__BlobReply)TIERD__WIRE__BLOB_REPLY__INIT;
	r = window_call(job, WIRE_REQUEST(BLOB_READ, blob_read, &read), deadline, ret_reply);
	if (r == 0 && !is_piece(ret_reply, offset, count)) {
		window_give(job);
		return message_fail(-EPROTO, "tierd answered another part of blob \"%s\" than was asked for",
				    blob->key);
	}
	if (r == 0 && ret_reply->count > 0)
		connection_copy(job->node, blob->bytes + offset, job->window_mapping.address,
				ret_reply->count);
	return r;
}

/* Begins anew when the blob has changed with a step between two pieces. */
static int get_all(struct tierd_job *job, const struct blob *blob, size_t *ret_size)
{
	Tierd__Wire__BlobReply reply;
	uint64_t deadline = connection_deadline(job->node, -1), offset = 0, step = 0;
	int r = window_take(job, deadline);

	if (r < 0)
		return r;
	do {
		r = get_piece(job, blob, offset, piece_bytes(job, blob->size - offset), deadline, &reply);
		if (r < 0)
			return r;
		if (offset > 0 && reply.step != step)
			offset = 0;
		else
			offset += reply.count;
		step = reply.step;
	} while (offset < reply.size && reply.size <= blob->size);
	r = job_check_copied(job);
	window_give(job);
	if (r != 0)
		return r;
	*ret_size = reply.size;
	if (reply.size <= blob->size || blob->size == 0)
		return 0;
	return message_fail(-ERANGE, "blob \"%s\" has %llu bytes; there is room for %llu", blob->key,
			    (unsigned long long)reply.size, (unsigned long long)blob->size);
}

int tierd_blob_get(struct tierd_job *job, const char *key, void *buffer, size_t capacity, size_t *ret_size,
		   uint32_t flags)
{
	const struct blob blob = { .key = key, .bytes = buffer, .size = capacity, .flags = flags };
	int r = CHECK_GIVEN(job, key, ret_size);

	if (r == 0 && capacity > 0)
		r = CHECK_GIVEN(buffer);
	if (r == 0)
		r = check_blob(&blob);
	return r < 0 ? r : JOB_CALL(job, JOB_LIVE, get_all(job, &blob, ret_size));
}
