/* A reader: the units of a job, and the window through which their values are copied. */
#ifndef TIERD_CLIENT_READER_H
#define TIERD_CLIENT_READER_H

#include "client/library/connection/connection.h"
#include "client/library/connection/mapping.h"

struct ticket_kind;

struct reader_unit {
	char *name;
	uint32_t tensor_count, known_tensors;
	struct tierd_tensor *tensors; /* their strings are owned */
};

struct tierd_reader {
	struct tierd_node *node;
	struct queue link; /* of the node's */
	uint32_t generation;
	uint32_t connections; /* of the node, when it was opened */
	uint32_t number;
	char name[TIERD_MAX_JOB_NAME + 1];
	uint64_t step;
	struct mapping window;
	struct mapping
		memory; /* memory of the caller's that tierd writes to; absent until tierd_reader_memory() */
	bool is_busy;	/* a thread uses its window */
	struct reader_unit *units;
	uint32_t unit_count;
};

/* Locks the node, if the reader can be used, and takes the reader's window, which one thread uses at a time.
 * ret_deadline: until when the call waits. reader_give() gives both back. */
int reader_take(struct tierd_reader *reader, uint64_t *ret_deadline);
void reader_give(struct tierd_reader *reader);

/* The same for what does not need the window; connection_exit() ends it. */
int reader_enter(struct tierd_reader *reader);

/* ---- With the node's lock held ---- */

/* 0, or the error with which it cannot be used any more. */
int reader_check(const struct tierd_reader *reader);

/* After values were copied from the window: the same, since tierd takes the window's pages back when the
 * connection has ended, and zeros may be what was copied. */
int reader_check_copied(struct tierd_reader *reader);

/* Sends a request and waits for the answer of its kind. */
int reader_call(struct tierd_reader *reader, const struct ticket_kind *kind,
		const Tierd__Wire__Request *request, uint64_t deadline);
/* A ticket for one, not sent yet. */
int reader_ticket_new(struct tierd_reader *reader, const struct ticket_kind *kind,
		      struct tierd_ticket **ret_ticket);
/* For requests whose reply is a bare status. */
extern const struct ticket_kind reader_read_kind;

/* Asks the daemon for the units. */
int reader_learn(struct tierd_reader *reader, uint64_t deadline);
void reader_forget(struct tierd_reader *reader);

/* -EINVAL: there are no such elements. */
int reader_check_range(const struct tierd_reader *reader, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count);

/* The bytes of an element of this state in the window. */
uint64_t reader_element_bytes(const struct tierd_tensor *tensor, const char *state);

/* Frees the handle without telling the daemon. */
struct tierd_reader *reader_free(struct tierd_reader *reader);
DEFINE_FREEP(struct tierd_reader *, reader_free)

#endif
