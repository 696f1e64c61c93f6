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

/* COMPARE: what a writing gives a frozen tensor has to be what it has. */
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
	struct batch *batch; /* that it is a part of; NULL: of none */
	uint64_t window_at;  /* of a read: where its values go in the window */
	struct queue link;   /* of the job's waiting ones, in WAITING_FOR_WRITES and WAITING_FOR_SUMS */
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
	bool is_same_format;			   /* the tensor's own; else as masters, or converted */
	void (*done)(struct job *job, int status); /* of the daemon's own; then the job's turn follows */
	bool is_of_shard;			   /* between the window and the sums of a reduced step */
	bool has_pin, has_sums;			   /* of its pack: they stay in host memory */
	bool is_split; /* between the sums and where masters are kept: daemon/values/state_write.c */
	bool has_turn; /* to write what an optimizer keeps: one at a time in a job */
	struct waiter waiter;
	struct staging_wish wish;
	struct staging_buffer *buffer;
	struct store_transfer transfer;
	void *source;	  /* state beside the parameters */
	uint64_t updates; /* of READ_UPDATES */
	int status;
	struct work work;
};

/* What it writes: as masters, or in the tensor's format. */
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

/* Of nobody, if pending is NULL; else the pending's member has no other until it has been answered. NULL: no
 * memory. It ends by itself once one of the calls below has started it. */
struct tensor_operation *operation_new(struct job *job, struct pending *pending, enum operation_kind kind,
				       uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);

/* Starts it where the pack's sums are, once they are in host memory. */
void operation_take_sums(struct tensor_operation *operation);
/* Starts it where the pack's parameters are, once they are resident, of that version at least. */
void operation_want_pack(struct tensor_operation *operation, uint64_t version);
/* Starts it where what is kept beside the parameters lies. The pack is pinned. */
void operation_take_state(struct tensor_operation *operation);
/* Starts it where nothing has to be waited for. */
void operation_start_work(struct tensor_operation *operation);

/* Starts a write where its values belong. */
void operation_start_write(struct tensor_operation *operation);

/* On a worker: moves the values; 0, or why they cannot be taken. */
int operation_work(const struct tensor_operation *operation);

/* The pack and the element of its section at which it begins. */
uint32_t operation_pack(const struct tensor_operation *operation);
uint64_t operation_pack_element(const struct tensor_operation *operation);
/* It is freed, if it only waits; else it goes on, with nobody to answer. */
void operation_give_up(struct tensor_operation *operation);
/* For a version, sums or a turn that may not come any more. */
bool operation_only_waits(const struct tensor_operation *operation);
/* It fails if it waits for a version of its rank's that will not come. */
void operation_refuse_version(struct tensor_operation *operation);
void operation_free(struct tensor_operation *operation);
/* Answers with its status, and frees it. */
void operation_end(struct tensor_operation *operation);

/* ---- tensor.c ---- */

/* False, and the request is answered: it cannot be read. */
bool tensor_check_read(struct pending *pending, const Tierd__Wire__TensorRead *read, int *ret_state);
/* That the member can wait for. */
uint64_t tensor_version_for(const struct member *member, uint64_t version);
/* Of these elements, which are there, in the window. */
uint64_t tensor_window_bytes(const struct job *job, const Tierd__Wire__TensorRead *read, int state);

/* ---- state_write.c: what the optimizer keeps, before training, so that the job begins with it, and at the
 * step after which it was kept; or in a writing. Extents are rewritten as a whole, so one piece of a job is
 * written at a time. ---- */

/* False, and the request is answered, if it may not be; else the number of the state. The job has not been
 * ready, or a writing is open; the range is checked. */
bool state_write_check(struct pending *pending, const Tierd__Wire__TensorWrite *write, int *ret_state);
/* Of a job that has its memory and its stores: in its turn, when it comes to it; or now, as none waits. */
void state_write_start(struct tensor_operation *operation);
void state_write_begin(struct tensor_operation *operation);

/* ---- batch.c: reads of a member's that one request asks for. They go side by side, each to its own place
 * in the window, and are answered together when all of them have ended. ---- */

/* An operation of a batch has ended. NULL: others have not; else the batch has gone, and this one, which
 * has its pending, is to be answered and freed in place of all. */
struct tensor_operation *batch_collect(struct tensor_operation *operation);

/* As of an operation: daemon/values/values.h. */
bool batch_is_under_way(struct member *member, const struct pending *pending);
void batch_fail_refused(struct member *member);
void batch_forget(struct member *member);

/* Answers that a tensor of that name is written in too many pieces. */
void operation_refuse_pieces(struct pending *pending, const char *name);

#endif
