/* A source: another job, or a snapshot of one, of which a new job takes its first values, tensor by tensor of
 * the same name, before it is initialized. Units, ranks, stage and number formats may all be others. */
#ifndef TIERD_DAEMON_SOURCE_H
#define TIERD_DAEMON_SOURCE_H

#include "daemon/durability/durability.h"
#include "daemon/values/copy.h"
#include "daemon/values/own.h"
#include "daemon/values/source_map.h"

#define PIECE_ELEMENTS (COPY_BYTES / sizeof(float))

struct source {
	char name[WIRE_MAX_JOB_NAME + 1 + WIRE_MAX_SNAPSHOT_NAME + 1]; /* for people */
	char job_name[WIRE_MAX_JOB_NAME + 1];
	char snapshot_name[WIRE_MAX_SNAPSHOT_NAME + 1]; /* "": the job as it stands */
	uid_t uid;
	bool is_partial, has_state; /* has_state: slots and counts of updates are taken, too */

	struct job *job;  /* that takes the values; NULL: it has not begun */
	struct job *from; /* whose values they are; NULL: it has not begun, or that job is gone */
	struct queue from_link;
	struct store_task opening;
	struct store *snapshot; /* NULL: of the job as it stands, or not open yet */
	bool has_begun, may_read_all;
	uint64_t version, charged;
	struct source_map map;
	char *buffer;  /* of copies */
	float *values; /* what is copied: of the next piece, so many elements */
	uint64_t filled;
	int state; /* the next element: STATE_PARAMETER, then one slot after the other */
	uint32_t unit, tensor;
	uint64_t first;
	uint64_t tensors;		/* that have their values */
	char *record;			/* of a snapshot whose counts of updates are wanted */
	uint64_t *updates;		/* by tensor of the other job; NULL: as the job has them now */
	struct store_transfer transfer; /* of the record */
	bool is_busy;
	struct copy copy;
	int status;
	char message[SNAPSHOT_TEXT];
};

/* Something went wrong with a piece. The first such error ends the source. */
void source_fail(struct source *source, int r, const char *what);

/* ---- source_name.c: whose values they are ---- */

/* NULL: there is no such job, or the peer may not see it. */
struct job *source_find_job(const struct source *source, struct node *node, const struct port *port);
int source_refuse_missing(const struct source *source, char *message, size_t size);

/* ---- source_updates.c: how often tensors were updated ---- */

/* The memory that the counts take. */
uint64_t source_updates_bytes(const struct source *source);
/* Starts to read the counts of an open snapshot: 1; or a negative errno with a message. */
int source_read_updates(struct source *source, char *message, size_t size);
/* Of a tensor of a unit of the other job. */
uint64_t source_updates(const struct source *source, uint32_t unit, uint32_t tensor);
void source_clear_updates(struct source *source);

/* ---- source_slots.c: what the optimizer keeps ---- */

/* Finds the units that take it. -EINVAL, -EPERM with a message: a unit cannot, or none may. */
int source_match_slots(struct source *source, char *message, size_t size);

#endif
