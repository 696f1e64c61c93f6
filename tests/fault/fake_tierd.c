#include "tests/fault/fake_tierd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/tierd.h"
#include "common/cleanup.h"

#define RANKS 4

struct tierd_job {
	struct tierd_node *node;
};

struct tierd_node {
	struct tierd_job *jobs[RANKS];
};

struct tierd_ticket {
	struct tierd_job *job;
};

struct fake_tierd fake_tierd;

const char *tierd_message(void)
{
	return "out of memory, says libtierd";
}

int tierd_connect(const char *socket_path, struct tierd_node **ret_node)
{
	struct tierd_node *node = calloc(1, sizeof(*node));

	if (!node)
		return -ENOMEM;
	fake_tierd.nodes++;
	*ret_node = node;
	return 0;
}

struct tierd_node *tierd_disconnect(struct tierd_node *node)
{
	for (unsigned i = 0; node && i < RANKS; i++)
		if (node->jobs[i])
			tierd_job_close(node->jobs[i]);
	fake_tierd.nodes -= node != NULL;
	free(node);
	return NULL;
}

/* ---- A job ---- */

int tierd_job_open(struct tierd_node *node, const struct tierd_job_options *options,
		   struct tierd_job **ret_job)
{
	struct tierd_job *job = calloc(1, sizeof(*job));

	if (!job)
		return -ENOMEM;
	job->node = node;
	node->jobs[options->rank] = job;
	fake_tierd.jobs++;
	*ret_job = job;
	return 0;
}

int tierd_job_close(struct tierd_job *job)
{
	for (unsigned i = 0; i < RANKS; i++)
		if (job->node->jobs[i] == job)
			job->node->jobs[i] = NULL;
	fake_tierd.jobs--;
	free(job);
	return 0;
}

int tierd_unit_define(struct tierd_job *job, const char *name, const struct tierd_tensor *tensors,
		      size_t tensor_count, uint32_t *ret_unit)
{
	char *copy = malloc(strlen(name) + 1);

	free(copy);
	if (ret_unit)
		*ret_unit = 0;
	return copy ? 0 : -ENOMEM;
}

int tierd_tensor_write(struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count,
		       const void *data, bool is_master)
{
	return 0;
}

int tierd_tensor_write_state(struct tierd_job *job, uint32_t unit, uint32_t tensor, const char *state,
			     uint64_t step, uint64_t first, uint64_t count, const void *data)
{
	return 0;
}

int tierd_job_ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = calloc(1, sizeof(*ticket));

	if (!ticket)
		return -ENOMEM;
	ticket->job = job;
	fake_tierd.tickets++;
	*ret_ticket = ticket;
	return 0;
}

int tierd_ticket_wait(struct tierd_ticket *ticket, enum tierd_event event, int timeout_ms)
{
	fake_tierd.ready++;
	return 0;
}

struct tierd_ticket *tierd_ticket_free(struct tierd_ticket *ticket)
{
	fake_tierd.tickets -= ticket != NULL;
	free(ticket);
	return NULL;
}

/* ---- A reader ---- */

struct tierd_reader *fake_tierd_reader(void)
{
	static char reader;

	return (struct tierd_reader *)&reader;
}

int tierd_reader_open(struct tierd_node *node, const struct tierd_reader_options *options,
		      struct tierd_reader **ret_reader)
{
	*ret_reader = fake_tierd_reader();
	return 0;
}

int tierd_reader_state(struct tierd_reader *reader, struct tierd_reader_state *ret_state)
{
	ret_state->step = 5;
	ret_state->unit_count = 1;
	return 0;
}

int tierd_reader_unit(struct tierd_reader *reader, uint32_t unit, const char **ret_name,
		      uint32_t *ret_tensor_count)
{
	*ret_name = "unit";
	*ret_tensor_count = 2;
	return 0;
}

int tierd_reader_tensor(struct tierd_reader *reader, uint32_t unit, uint32_t tensor,
			struct tierd_tensor *ret_tensor)
{
	static const char *const names[] = { "weight", "table" };

	*ret_tensor = (struct tierd_tensor)TIERD_TENSOR_INIT;
	ret_tensor->name = names[tensor];
	ret_tensor->format = TIERD_BF16;
	ret_tensor->dimensions = 1;
	ret_tensor->shape[0] = 3;
	ret_tensor->is_frozen = tensor == 1;
	return 0;
}

/* For the other commands, which are linked, too. */
int tierd_reader_find(struct tierd_reader *reader, const char *name, uint32_t *ret_unit, uint32_t *ret_tensor)
{
	return -ENOENT;
}

int tierd_reader_refresh(struct tierd_reader *reader, const struct tierd_piece *pieces, size_t count,
			 uint64_t *ret_step)
{
	return 0;
}

int tierd_reader_read(struct tierd_reader *reader, uint32_t unit, uint32_t tensor, const char *state,
		      uint64_t first, uint64_t count, void *ret_data)
{
	char *copy = malloc(1);

	if (!copy)
		return -ENOMEM;
	free(copy);
	if (strcmp(state, "momentum") == 0)
		return -ENODATA;
	memset(ret_data, 1, count * (strcmp(state, "parameter") == 0 ? sizeof(uint16_t) : sizeof(float)));
	return 0;
}
