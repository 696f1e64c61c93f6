/* A record: what a job is and how far it is, as bytes (proto/record.proto) that lie beside its state, and the
 * way back. No input and output: where the bytes are kept is the caller's. */
#ifndef TIERD_DAEMON_RECORD_H
#define TIERD_DAEMON_RECORD_H

#include "daemon/model/job.h"

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
struct record_part {
	const void *bytes;
	uint64_t size;
};

/* What a job is made from; all borrowed for the call. */
struct record_source {
	const struct path_list *paths; /* on which it lies */
	/* Whatever the definition says: a fork's says its origin's at first. NULL: that. */
	const char *name;
	struct record_part definition, progress;
	const uid_t *owner; /* in whose folder it lies; NULL: whoever the definition says */
};

/* Makes a job of them: one of the node's, idle and released, as daemon/life/idle.c leaves it, but without its
 * stores. Those are for the caller to add, in the same turn of the loop, or he calls job_free(). Its owner's
 * groups are those that the user database names now, until he opens it himself.
 *
 * Nothing in the bytes is believed: what they say is checked as if a client had said it. Errors come with a
 * message: -EPERM: it is another user's than the folder; -EPROTONOSUPPORT: a format of another tierd;
 * -EBADMSG: these are no such messages, or they cannot be of one job; -EEXIST: the user has a job of that
 * name; -EOPNOTSUPP: some of its state was in host memory alone; or what a client would be told. */
int record_decode(struct node *node, const struct record_source *source, struct job **ret_job, char *message,
		  size_t size);

/* How often each tensor of the job was updated when this progress of it was written: as many numbers as it
 * has tensors; of those that are frozen they mean nothing. Errors as those of record_decode(), with a
 * message. */
int record_decode_updates(const struct job *job, struct record_part progress, uint64_t *ret_updates,
			  char *message, size_t size);

#endif
