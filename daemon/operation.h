/* An operation moves values of a tensor between the exchange window of a member and where they lie.
 *
 * Written values of trainable tensors are kept as fp32 masters where the sums of gradients will be, until the
 * first sweep splits them; those of frozen tensors go into the pack's slot. A read takes: the pack, resident
 * and written back; then, if the state is on NVMe, staging buffers and a transfer; then a worker that copies
 * into the window.
 *
 * With the optimizer none, masters are written in the same way, and gradients read there, while a step is
 * reduced. */
#ifndef TIERD_DAEMON_OPERATION_H
#define TIERD_DAEMON_OPERATION_H

#include "daemon/job.h"

enum operation_kind { OPERATION_WRITE, OPERATION_READ, OPERATION_INITIALIZE };
enum operation_stage {
	WAITING_FOR_PACK,
	WAITING_FOR_WRITES,
	WAITING_FOR_SUMS,
	WAITING_FOR_STAGING,
	IN_FLIGHT
};

/* Beside those of daemon/state.h. */
#define READ_GRADIENT (-2)

struct tensor_operation {
	struct queue link; /* of the job's waiting ones, in WAITING_FOR_WRITES and WAITING_FOR_SUMS */
	enum operation_kind kind;
	enum operation_stage stage;
	int state; /* STATE_PARAMETER, READ_GRADIENT, STATE_MASTER or a slot's number */
	struct job *job;
	struct member *member;	 /* NULL: the daemon's own */
	struct pending *pending; /* NULL: nobody is left to answer */
	uint32_t unit;
	struct tensor *tensor;
	uint64_t first, count; /* elements of the tensor */
	bool is_master;
	bool is_of_shard; /* between the window and the sums of a reduced step */
	bool has_pin;
	struct waiter waiter;
	struct staging_wish wish;
	struct staging_buffer *buffer;
	struct store_transfer transfer;
	const void *source; /* state beside the parameters */
	int status;
	struct work work;
};

/* Of nobody, if pending is NULL; else the pending's member has no other until it has been answered. NULL: no
 * memory. It ends by itself once one of the calls below has started it. */
struct tensor_operation *operation_new(struct job *job, struct pending *pending, enum operation_kind kind,
				       uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count);

/* Starts it where the pack's sums are, once they are in host memory. */
void operation_take_sums(struct tensor_operation *operation);
/* Starts it where the pack's parameters are, once they are resident, of that version at least. */
void operation_want_pack(struct tensor_operation *operation, uint64_t version);
/* Starts it where nothing has to be waited for. */
void operation_start_work(struct tensor_operation *operation);

/* It is for the sums, not for the slot. */
bool operation_uses_sums(const struct tensor_operation *operation);

/* Answers that a tensor of that name is written in too many pieces. */
void operation_refuse_pieces(struct pending *pending, const char *name);

#endif
