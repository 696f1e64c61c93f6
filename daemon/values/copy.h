/* A copy: elements of a job's state on their way to memory of the daemon, from wherever they lie, without a
 * slot of the arena. */
#ifndef TIERD_DAEMON_COPY_H
#define TIERD_DAEMON_COPY_H

#include "common/workers.h"
#include "daemon/model/model.h"
#include "offload/store/store.h"

struct job;

/* The copied elements take so much at most. */
#define COPY_BYTES (UINT64_C(1) << 20)
/* Whole blocks that are read for it from NVMe: of parameters, and of what is kept beside them. */
#define COPY_BUFFER_BYTES (2 * (COPY_BYTES + STORE_MAX_BLOCK_BYTES))

/* Elements of a pack's section, as a parameter or a state beside it. */
struct copy_range {
	uint32_t pack;
	enum unit_section section;
	int state; /* STATE_PARAMETER or a state's number */
	uint64_t first, count;
};

/* A copied element: a parameter in its format, everything else as fp32. */
uint64_t copy_element_bytes(enum unit_section section, int state);

/* Copies elements of a range: from the parameter, and from what is kept beside it. For workers, too. */
void copy_values(const struct copy_range *range, const void *parameter, const void *kept, void *target);

enum copy_outlook {
	COPY_POSSIBLE,
	COPY_LATER, /* a sweep is at the pack: look again in the job's next turn */
	COPY_GONE,  /* the values of that version are overwritten, or about to be */
};

/* version: of a step whose sweep had ended. */
enum copy_outlook copy_look(const struct job *job, const struct copy_range *range, uint64_t version);

/* One of the streams that a copy reads. */
struct copy_source {
	struct copy *copy;
	struct store *store;
	struct store_transfer transfer;
	bool is_reading;
	const void *data;
};

struct copy {
	struct queue link; /* of the job's waiting ones */
	/* The caller sets these, and leaves them, the target and the buffer alone until done(), which runs
	 * once, on the loop. */
	struct job *job;
	struct store *snapshot; /* what is copied; NULL: the job as it is now */
	const void *ready;	/* an earlier copy, which is copied without the job; or NULL */
	struct copy_range range;
	void *target;
	char *buffer; /* COPY_BUFFER_BYTES, page-aligned; NULL if nothing of the job is on NVMe */
	void (*done)(struct copy *copy, int status);

	struct copy_source parameter, kept;
	unsigned transfers_left;
	int status;
	struct work work;
};

/* How many streams it reads, each to a half of its buffer. Job, snapshot and range are set. */
unsigned copy_streams(const struct copy *copy);

/* For a range that can be copied now. After an error done() never runs. */
int copy_start(struct copy *copy);

/* The transfer at which a copy failed; NULL: it failed at none. */
const struct store_transfer *copy_fault(const struct copy *copy);

/* Somebody waits for the pack. */
void copy_raise(struct copy *copy);

#endif
