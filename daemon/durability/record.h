/* A record: what a job is and how far it is, as bytes (proto/record.proto) that lie beside its state; the way
 * back is daemon/recovery/record_read.h. No input and output: where the bytes are kept is the caller's. */
#ifndef TIERD_DAEMON_RECORD_H
#define TIERD_DAEMON_RECORD_H

#include "daemon/model/model.h"

/* How many bytes the definition takes: always the same for a job once its units are defined, planned or
 * not, and whatever shape it gets (daemon/life/reshape.h). */
uint64_t record_definition_bytes(const struct job *job);

/* The definition of a planned job. -EMSGSIZE: it does not fit; it cannot fail otherwise. */
int record_encode_definition(const struct job *job, void *bytes, uint64_t size);

/* How many bytes the progress takes at most: the same in all of the job's life, once its units are defined.
 */
uint64_t record_progress_bytes(const struct job *job);

/* The progress of a job that stands between two steps, into as many bytes as that; returns how many it
 * took. */
uint64_t record_encode_progress(const struct job *job, void *bytes);

/* A fingerprint of where the job's packs lie in its streams, and of what the packs are made; never 0. */
uint64_t record_layout(const struct job *job);

/* Borrowed for a call. */
struct record_message {
	const void *bytes;
	uint64_t size;
};

/* How often each tensor of the job was updated when this progress of it was written: as many numbers as it
 * has tensors; of those that are frozen they mean nothing. -EPROTONOSUPPORT, -EBADMSG, -ENOMEM, with a
 * message. */
int record_decode_updates(const struct job *job, struct record_message progress, uint64_t *ret_updates,
			  char *message, size_t size);

#endif
