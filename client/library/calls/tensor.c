#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/window.h"

/* ---- Pieces ---- */

/* A read or a write of elements, and how far it has come. */
struct transfer {
	struct tierd_job *job;
	uint32_t unit, tensor;
	const char *state; /* that is read; NULL: elements are written */
	bool is_master;
	const char *written_state; /* that is written, of the optimizer; NULL: the parameter or its master */
	uint64_t step;
	bool has_full_elements; /* of four bytes, whatever the tensor's format */
	uint64_t first, count;
	char *data;
	uint64_t element_bytes;
	uint64_t deadline;
};

int tensor_check_range(const struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count)
{
	int r = job_check_unit(job, unit);
	uint64_t elements;

	if (r < 0)
		return r;
	if (tensor >= job->units[unit]->tensor_count)
		return message_fail(-EINVAL, "unit \"%s\" has no tensor %u: it has %u",
				    job_unit_name(job, unit), tensor, job->units[unit]->tensor_count);
	elements = job->units[unit]->tensors[tensor].elements;
	if (first > elements || count > elements - first)
		return message_fail(
			-EINVAL, "elements %lu to %lu are not within tensor %u of unit \"%s\", which has %lu",
			first, first + count, tensor, job_unit_name(job, unit), elements);
	return 0;
}

uint64_t tensor_element_bytes(const struct tierd_job *job, uint32_t unit, uint32_t tensor,
			      bool has_full_elements)
{
	return has_full_elements ? sizeof(float)
				 : section_element_bytes(job->units[unit]->tensors[tensor].section);
}

static int read_piece(const struct transfer *transfer, uint64_t count)
{
	struct tierd_job *job = transfer->job;
	Tierd__Wire__TensorRead read = TIERD__WIRE__TENSOR_READ__INIT;

	read.job = job->number;
	read.unit = transfer->unit;
	read.tensor = transfer->tensor;
	read.state = (char *)transfer->state;
	read.first = transfer->first;
	read.count = count;
	read.version = job_awaited(job, transfer->unit);
	return window_call(job, WIRE_REQUEST(TENSOR_READ, tensor_read, &read), transfer->deadline, NULL);
}

static int write_piece(const struct transfer *transfer, uint64_t count)
{
	struct tierd_job *job = transfer->job;
	Tierd__Wire__TensorWrite write = TIERD__WIRE__TENSOR_WRITE__INIT;

	write.job = job->number;
	write.unit = transfer->unit;
	write.tensor = transfer->tensor;
	write.first = transfer->first;
	write.count = count;
	write.is_master = transfer->is_master;
	if (transfer->written_state)
		write.state = (char *)transfer->written_state;
	write.step = transfer->step;
	job->has_written = true;
	return window_call(job, WIRE_REQUEST(TENSOR_WRITE, tensor_write, &write), transfer->deadline, NULL);
}

static int transfer_all(struct transfer *transfer)
{
	struct tierd_job *job = transfer->job;
	uint64_t fits = job->window_mapping.bytes / transfer->element_bytes;
	int r = window_take(job, transfer->deadline);

	if (r < 0)
		return r;
	while (transfer->count > 0) {
		uint64_t count = transfer->count < fits ? transfer->count : fits;
		uint64_t bytes = count * transfer->element_bytes;

		if (!transfer->state)
			connection_copy(job->node, job->window_mapping.address, transfer->data, bytes);
		r = transfer->state ? read_piece(transfer, count) : write_piece(transfer, count);
		if (r < 0)
			return r;
		if (transfer->state) {
			connection_copy(job->node, transfer->data, job->window_mapping.address, bytes);
			r = job_check_copied(job);
		}
		if (r != 0)
			break;
		transfer->data += bytes;
		transfer->first += count;
		transfer->count -= count;
	}
	window_give(job);
	return r;
}

/* Called again after a lost connection, it goes on where it was. */
static int transfer_checked(struct transfer *transfer)
{
	struct tierd_job *job = transfer->job;
	int r = tensor_check_range(job, transfer->unit, transfer->tensor, transfer->first, transfer->count);

	if (r < 0)
		return r;
	transfer->element_bytes =
		tensor_element_bytes(job, transfer->unit, transfer->tensor, transfer->has_full_elements);
	transfer->deadline = connection_deadline(job->node, -1);
	return transfer_all(transfer);
}

int tierd_tensor_write(struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count,
		       const void *data, bool is_master)
{
	struct transfer transfer = { .job = job,
				     .unit = unit,
				     .tensor = tensor,
				     .is_master = is_master,
				     .has_full_elements = is_master,
				     .first = first,
				     .count = count,
				     .data = (char *)data };

	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(data);
	return r < 0 ? r : JOB_CALL(job, JOB_LIVE, transfer_checked(&transfer));
}

int tierd_tensor_write_state(struct tierd_job *job, uint32_t unit, uint32_t tensor, const char *state,
			     uint64_t step, uint64_t first, uint64_t count, const void *data)
{
	struct transfer transfer = { .job = job,
				     .unit = unit,
				     .tensor = tensor,
				     .written_state = state,
				     .step = step,
				     .has_full_elements = true,
				     .first = first,
				     .count = count,
				     .data = (char *)data };

	int r = CHECK_GIVEN(job, state);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(data);
	if (r < 0)
		return r;
	if (!*state)
		return message_fail(-EINVAL,
				    "no state is named; it is a slot of the optimizer, such as \"m\"");
	return JOB_CALL(job, JOB_LIVE, transfer_checked(&transfer));
}

int tierd_tensor_read(struct tierd_job *job, uint32_t unit, uint32_t tensor, const char *state,
		      uint64_t first, uint64_t count, void *ret_data)
{
	struct transfer transfer = { .job = job,
				     .unit = unit,
				     .tensor = tensor,
				     .state = state,
				     .first = first,
				     .count = count,
				     .data = ret_data };

	int r = CHECK_GIVEN(job, state);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(ret_data);
	if (r < 0)
		return r;
	transfer.has_full_elements = strcmp(state, "parameter") != 0;
	return JOB_CALL(job, JOB_STATE, transfer_checked(&transfer));
}

/* ---- Shards ---- */

static void shard_of(const struct tierd_job *job, uint32_t unit, uint32_t number, uint64_t *ret_first,
		     uint64_t *ret_count)
{
	const struct unit_layout *layout = &job->units[unit]->layout;
	const struct tensor_layout *tensor = &job->units[unit]->tensors[number];
	/* Trainable elements are numbered through both sections. */
	uint64_t begin = tensor->first + unit_layout_section_first(layout, (int)tensor->section);
	uint64_t end = begin + tensor->elements;
	uint64_t trainable = unit_layout_trainable(layout);
	uint64_t shard_begin = unit_layout_shard(trainable, job->rank, job->world_size);
	uint64_t shard_end = unit_layout_shard(trainable, job->rank + 1, job->world_size);
	uint64_t first = begin > shard_begin ? begin : shard_begin;
	uint64_t last = end < shard_end ? end : shard_end;

	*ret_first = first < last ? first - begin : 0;
	*ret_count = first < last ? last - first : 0;
}

int tierd_tensor_shard(struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t *ret_first,
		       uint64_t *ret_count)
{
	int r = CHECK_GIVEN(job, ret_first, ret_count);

	if (r == 0)
		r = job_enter(job, JOB_LIVE);
	if (r < 0)
		return r;
	r = tensor_check_range(job, unit, tensor, 0, 0);
	if (r == 0 && unit_layout_gradient_offset(&job->units[unit]->layout,
						  &job->units[unit]->tensors[tensor]) == TIERD_NO_OFFSET)
		r = message_fail(-EINVAL, "tensor %u of unit \"%s\" is frozen: it is not partitioned", tensor,
				 job_unit_name(job, unit));
	if (r == 0)
		shard_of(job, unit, tensor, ret_first, ret_count);
	connection_exit(job->node);
	return r;
}
