/* Blobs: bytes under keys that ranks keep with their job's state, for the trainer's own use: where it is in
 * its data, random states. What a rank has set belongs to the step that it closes next, and counts when that
 * is applied.
 *
 * Those that count lie side by side in an image, in the order of the list, which commits write as it is;
 * those whose step is to come lie beside it. */
#ifndef TIERD_DAEMON_BLOBS_H
#define TIERD_DAEMON_BLOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/queue.h"
#include "offload/device/memory.h"
#include "proto/vocabulary.h"

/* Of each rank, and as many that ranks share; and of a job, whose record has room for so many, whatever its
 * world size becomes. */
#define BLOB_KEYS 16
#define BLOBS_MOST 1024
#define BLOB_SHARED UINT32_MAX /* in place of a rank */
/* Of a job. */
#define BLOBS_MOST_BYTES (UINT64_C(64) << 30)

struct job;

struct blob {
	struct queue link; /* those that count by their offsets, then the others */
	char key[WIRE_MAX_BLOB_KEY + 1];
	uint32_t rank; /* or BLOB_SHARED */
	bool counts;
	uint64_t size, offset, step; /* if it counts; step: that brought it */
	uint64_t room;		     /* the most that it takes, now or in a step to come */
};

struct blobs {
	struct queue all;		 /* struct blob */
	struct queue begun;		 /* struct staged_blob: whose bytes still come */
	struct queue staged;		 /* struct staged_blob: by step, then by rank */
	uint64_t used;			 /* of the image */
	uint64_t room;			 /* of all blobs */
	uint64_t dirty_first, dirty_end; /* bytes of the image that no commit has taken */
	struct memory image;		 /* once there is one */
	uint32_t count;			 /* of all */
	bool is_loading;		 /* from the store; the job must stay */
};

void blobs_init(struct blobs *blobs);
void blobs_free(struct job *job);

/* What the job's options ask for, in whole extents. */
uint64_t blobs_bytes(const struct job *job);
/* How many there are at most. */
uint32_t blobs_most(const struct job *job);
bool blob_key_is_valid(const char *key);

/* A blob that is set with a step: not before that is applied. size bytes at the returned address, or NULL and
 * a message: -EINVAL, -ENOSPC, -ENOMEM. It is staged by blobs_stage(), or given up. */
struct staged_blob;
int blobs_begin(struct job *job, const char *key, uint32_t rank, uint64_t size, bool is_deletion,
		struct staged_blob **ret_staged, char *message, size_t length);
char *blobs_staged_bytes(struct staged_blob *staged);
uint64_t blobs_staged_size(const struct staged_blob *staged);
/* In place of what the rank has staged under that key with that step. */
void blobs_stage(struct job *job, struct staged_blob *staged, uint32_t rank, uint64_t step);
void blobs_give_up(struct job *job, struct staged_blob *staged);

/* The applied step's count now. No commit is writing the image. */
void blobs_apply(struct job *job);
/* The rank's part of a step that is not decided is lost. */
void blobs_drop_undecided(struct job *job, uint32_t rank);
/* The open step has failed, of all ranks; what is closed as the one after it is the open one now. */
void blobs_fail_step(struct job *job);

struct blob *blobs_find(const struct job *job, const char *key, uint32_t rank);

/* One that counts comes back, behind those before it; its bytes are to be loaded. -EBADMSG, -ENOMEM. */
int blobs_restore(struct job *job, const char *key, uint32_t rank, uint64_t size, uint64_t step);
/* Memory for the image. -ENOMEM. */
int blobs_make_image(struct job *job);

/* What a commit has to write: whole extents of the image. False: nothing. */
bool blobs_take_dirty(struct job *job, uint64_t *ret_offset, uint64_t *ret_length);

#endif
