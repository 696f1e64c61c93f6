/* Fuzzes what libtierd makes of a daemon's answers: it opens a job, defines units, trains a step, reads
 * values and leaves, with a peer that answers as the input says. Whatever comes, calls return, and what they
 * return without an error can be used. */
#include <assert.h>
#include <string.h>

#include "client/tierd.h"
#include "tests/fuzz/liar.h"

#define ELEMENTS 300
/* A peer that leaves a request without an answer ends the stream; this is for those that it forgets. */
#define PATIENCE_MS 200

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static uint32_t define(struct tierd_job *job, const char *name, bool is_frozen)
{
	struct tierd_tensor tensors[2] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	uint32_t unit = 0;

	for (int i = 0; i < 2; i++) {
		tensors[i].name = i ? "weight" : "norm";
		tensors[i].format = i ? TIERD_BF16 : TIERD_FP32;
		tensors[i].dimensions = 1;
		tensors[i].shape[0] = ELEMENTS;
		tensors[i].is_frozen = is_frozen;
	}
	tierd_unit_define(job, name, tensors, 2, &unit);
	return unit;
}

static void use(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	char bytes[ELEMENTS * 4];

	if (tierd_gather(job, unit, &view) == 0) {
		memcpy(bytes, tierd_at(&view, 0), ELEMENTS * 4);
		memcpy(bytes, tierd_at(&view, 1), ELEMENTS * 2);
		tierd_release(job, unit);
	}
	if (tierd_gradients(job, unit, &view) == 0) {
		memset(tierd_at(&view, 0), 0, ELEMENTS * 4);
		memset(tierd_at(&view, 1), 0, ELEMENTS * 2);
		tierd_push(job, unit);
	}
}

static void train(struct tierd_job *job, uint32_t trained, uint32_t frozen)
{
	struct tierd_rates rates = { sizeof(rates), .gradient_scale = 1 };
	struct tierd_step_result result;
	struct tierd_ticket *ticket;

	use(job, trained);
	use(job, frozen);
	tierd_prefetch(job, &trained, 1);
	tierd_phase(job, "eval");
	tierd_step_begin(job, &rates, 1);
	if (tierd_step(job, &rates, &ticket) == 0) {
		if (tierd_ticket_wait(ticket, TIERD_DONE, PATIENCE_MS) == 0)
			tierd_ticket_step_result(ticket, &result);
		tierd_ticket_free(ticket);
	}
	use(job, trained);
}

static void look(struct tierd_job *job, uint32_t unit)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_job_state state;
	float values[ELEMENTS];
	uint32_t groups[2];

	tierd_job_state(job, &state);
	tierd_statistics(job, &statistics);
	tierd_tensor_read(job, unit, 0, "parameter", 0, ELEMENTS, values);
	tierd_tensor_write(job, unit, 0, 0, ELEMENTS, values, false);
	if (tierd_groups_get(job, unit, groups, 2) == 0)
		tierd_groups_set(job, unit, groups, 2);
}

static void play(struct tierd_node *node)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job_state state;
	struct tierd_job *job;
	uint32_t trained, frozen;

	tierd_set_timeout(node, PATIENCE_MS);
	options.name = "job";
	if (tierd_job_open(node, &options, &job) < 0)
		return;
	trained = define(job, "trained", false);
	frozen = define(job, "frozen", true);
	if (tierd_job_ready(job, PATIENCE_MS, &state) == 0)
		train(job, trained, frozen);
	look(job, trained);
	tierd_job_close(job);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct tierd_node *node;
	struct liar liar = { 0 };

	liar_start(&liar, bytes, length);
	if (tierd_connect(liar.peer.path, &node) == 0) {
		play(node);
		tierd_disconnect(node);
	}
	liar_stop(&liar);
	return 0;
}
