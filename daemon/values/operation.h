/* An operation moves values of a tensor between the exchange window of a member and where they lie.
 *
 * Written values of trainable tensors are kept as fp32 masters where the sums of gradients will be, until the
 * first sweep splits them; those of frozen tensors go into the pack's slot. A read takes: the pack, resident
 * and written back; then, if the state is on NVMe, staging buffers and a transfer; then a worker that copies
 * into the window.
 *
 * With the optimizer none, masters are written in the same way, and gradients read there, while a step is
 * reduced. What an optimizer keeps goes to where that lies (daemon/values/state_write.c), and so does what of
 * a master finds no room in sums that are as narrow as the parameters. */
#ifndef TIERD_DAEMON_OPERATION_H
#define TIERD_DAEMON_OPERATION_H

#include "daemon/resources/resources.h"
#include "daemon/values/own.h"
#include "offload/optimizer/format.h"

/* COMPARE: values that a writing gives to a frozen tensor have to be those that it has. */
enum operation_kind { OPERATION_WRITE, OPERATION_READ, OPERATION_INITIALIZE, OPERATION_COMPARE };
enum operation_stage {
	WAITING_FOR_PACK,
	WAITING_FOR_WRITES,
	WAITING_FOR_SUMS,
	WAITING_FOR_TURN,
	WAITING_FOR_STAGING,
	IN_FLIGHT
};

/* Beside those of daemon/model/state.h. */
#define READ_GRADIENT (-2)
#define READ_UPDATES (-3) /* how often the tensor was updated, in each of its elements */

struct tensor_operation {
	struct queue batch_link;
	struct batch *batch; /* NULL: it belongs to none */
	uint64_t window_at;  /* of a read: where its values go in the window */
	struct queue link;   /* of the job's, while it waits for writes, for sums or for its turn */
	enum operation_kind kind;
	enum operation_stage stage;
	int state; /* STATE_PARAMETER, STATE_MASTER, a slot's number, or one of those above */
	struct job *job;
	struct member *member;	 /* NULL: the daemon's own */
	struct pending *pending; /* NULL: nobody is left to answer */
	uint32_t unit;
	struct tensor *tensor;
	uint64_t first, count; /* elements of the tensor */
	/* Of a write: in a rank's window, in the draft, or brought by a source. */
	const void *values;
	enum master_kind format;
	bool is_same_format; /* values are in the tensor's own format; else they are masters, or converted */
	void (*done)(struct job *job, int status); /* of the daemon's own; then the job's turn follows */
	bool is_of_shard;			   /* between the window and the sums of a reduced step */
	bool has_pin, has_sums;			   /* its pack, or the pack's sums, stay in host memory */
	bool is_split; /* it writes to the sums and to where masters are kept: daemon/values/state_write.c */
	bool has_turn; /* it writes what an optimizer keeps: one at a time in a job */
	struct waiter waiter;
	struct staging_wish wish;
	struct staging_buffer *buffer;
	struct store_transfer transfer;
	void *source;	  /* state beside the parameters */
	uint64_t updates; /* of READ_UPDATES */
	int status;
	struct work work;
};

/* Sets what it writes: masters, or values in the tensor's format. */
static inline void operation_set_values(struct tensor_operation *operation, const void *values,
					bool is_master)
{
	operation->values = values;
	/* Bytes have no format of masters; what is frozen is never converted. */
	operation->format = is_master || operation->tensor->is_frozen
				    ? MASTER_ITSELF
				    : state_master_kind(operation->tensor->layout.section);
	operation->is_same_format = !is_master;
}

/* It writes what the optimizer keeps: daemon/values/state_write.c. */
static inline bool operation_is_of_state(const struct tensor_operation *operation)
{
	return operation->kind == OPERATION_WRITE && operation->state >= STATE_SLOTS;
}

static inline enum unit_section operation_section(const struct tensor_operation *operation)
{
	return operation->tensor->layout.section;
}

/* pending: of the member that asks, which has no other operation until it has been answered; NULL: the
 * daemon's own. One of the calls below starts the operation, which then ends by itself. NULL: no memory. */
struct tensor_operation *operation_new(struct job *job, struct pending *pending, enum operation_kind kind,
				       uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);

/* Starts it at the pack's sums, once they are in host memory. */
void operation_take_sums(struct tensor_operation *operation);
/* Starts it at the pack's parameters, once they are resident at that version, or a later one. */
void operation_want_pack(struct tensor_operation *operation, uint64_t version);
/* Starts it at what is kept beside the parameters. The pack is pinned. */
void operation_take_state(struct tensor_operation *operation);
/* Starts it without waiting for anything. */
void operation_start_work(struct tensor_operation *operation);

/* Starts a write where its values belong. */
void operation_start_write(struct tensor_operation *operation);

/* On a worker: moves the values; 0, or why they cannot be taken. */
int operation_work(const struct tensor_operation *operation);

/* Its pack, and the element of the pack's section at which it begins. */
uint32_t operation_pack(const struct tensor_operation *operation);
uint64_t operation_pack_element(const struct tensor_operation *operation);
/* Frees it if it only waits; else it goes on, and nobody is answered. */
void operation_give_up(struct tensor_operation *operation);
/* It waits for a version, for sums or for a turn that may not come any more. */
bool operation_only_waits(const struct tensor_operation *operation);
/* It fails if it waits for a version that will not come. */
void operation_refuse_version(struct tensor_operation *operation);
void operation_free(struct tensor_operation *operation);
/* Answers with its status, and frees it. */
void operation_end(struct tensor_operation *operation);

/* ---- tensor.c ---- */

/* False, and the request is answered: it cannot be read. */
bool tensor_check_read(struct pending *pending, const Tierd__Wire__TensorRead *read, int *ret_state);
/* The version that the member can wait for. */
uint64_t tensor_version_for(const struct member *member, uint64_t version);
/* What these elements, which the tensor has, take in the window. */
uint64_t tensor_window_bytes(const struct job *job, const Tierd__Wire__TensorRead *read, int state);

/* ---- state_write.c: writes what the optimizer keeps: before training, so that the job begins with it, at
 * the step after which it was kept; or in a writing. Extents are rewritten as a whole, so one piece of a job
 * is written at a time. ---- */

/* False, and the request is answered: it may not be written. ret_state: the number of the state. The job has
 * not been ready, or a writing is open; the range is checked. */
bool state_write_check(struct pending *pending, const Tierd__Wire__TensorWrite *write, int *ret_state);
/* The job has its memory and its stores. The operation begins in its turn; or now, if none has the turn. */
void state_write_start(struct tensor_operation *operation);
void state_write_begin(struct tensor_operation *operation);

/* ---- batch.c: reads of a member's that one request asks for. They go side by side, each to its own place
 * in the window, and are answered together when all of them have ended. ---- */

/* An operation of a batch has ended. NULL: others have not. Else the batch has gone, and the caller answers
 * and frees the returned operation, which has the batch's pending, in place of all. */
struct tensor_operation *batch_collect(struct tensor_operation *operation);

/* As the same calls for an operation: daemon/values/values.h. */
bool batch_is_under_way(struct member *member, const struct pending *pending);
void batch_fail_refused(struct member *member);
void batch_forget(struct member *member);

/* Answers that a tensor of that name is written in too many pieces. */
void operation_refuse_pieces(struct pending *pending, const char *name);

#endif
