/* One rank of a job, which goes on whatever happens to job, daemon and itself: chaos KEY=VALUE…
 *
 * job, rank, stage, parameters and optimizer (nvme or host), seconds (of durability), every (of snapshots
 * that are taken by themselves), snapshots. It trains until it is killed. What each element and its momentum
 * are at a step is a formula, and which step the blobs are of is in them: all is compared wherever the rank
 * comes back, and after some steps. Each step that is durable is said in a line. look=1 instead compares what
 * a reader finds. What is wrong is said in a line that begins with "wrong", and ends the program, as what
 * cannot be helped does, in one that begins with the error's name. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "crash_support.h"

#define RANKS 2
#define UNITS 3
#define ELEMENTS 600
#define KEY "where"

struct rank {
	struct tierd_node *node;
	struct tierd_job *job;
	uint32_t number;
	uint64_t step, seed;
};

static void end_with(int r, const char *what)
{
	printf("%s: %s: %s\n", strerrorname_np(-r), what, tierd_message());
	exit(1);
}

#define DO(call)                                                                                             \
	do {                                                                                                 \
		int result = (call);                                                                         \
		if (result < 0)                                                                              \
			end_with(result, #call);                                                             \
	} while (0)

/* ---- What is there at a step ---- */

/* Of one rank, in the step that follows that many. Small, so that all sums are exact. */
static float gradient_of(uint64_t step, uint32_t unit, uint64_t element)
{
	return (step + unit + element) % 5 == 0 ? 1 : 0;
}

static void require_values(uint64_t step, uint32_t unit, const float *parameters, const float *momenta)
{
	for (uint64_t element = 0; element < ELEMENTS; element++) {
		float value = (float)unit, momentum = 0;

		for (uint64_t i = 0; i < step; i++) {
			momentum += RANKS * gradient_of(i, unit, element);
			value -= momentum;
		}
		if (parameters[element] == value && (!momenta || momenta[element] == momentum))
			continue;
		printf("wrong: step %llu, unit %u, element %llu: %g, %g instead of %g, %g\n",
		       (unsigned long long)step, unit, (unsigned long long)element,
		       (double)parameters[element], momenta ? (double)momenta[element] : 0, (double)value,
		       (double)momentum);
		exit(1);
	}
}

static int compare(struct rank *rank)
{
	static float parameters[ELEMENTS], momenta[ELEMENTS];
	int r = 0;

	for (uint32_t unit = 0; r == 0 && unit < UNITS; unit++) {
		r = tierd_tensor_read(rank->job, unit, 0, "parameter", 0, ELEMENTS, parameters);
		if (r == 0)
			r = tierd_tensor_read(rank->job, unit, 0, "momentum", 0, ELEMENTS, momenta);
		if (r == 0)
			require_values(rank->step, unit, parameters, momenta);
	}
	return r;
}

static int compare_blob(struct rank *rank, uint32_t flags)
{
	uint64_t step = 0;
	size_t size = 0;
	int r = tierd_blob_get(rank->job, KEY, &step, sizeof(step), &size, flags);

	if (r == -ENOENT && rank->step == 0)
		return 0;
	if (r == -ENOENT || (r == 0 && (size != sizeof(step) || step != rank->step))) {
		printf("wrong: at step %llu a blob of rank %u is of %lld, flags %u\n",
		       (unsigned long long)rank->step, rank->number, r < 0 ? -1ll : (long long)step, flags);
		exit(1);
	}
	return r;
}

static int compare_all(struct rank *rank)
{
	int r = compare(rank);

	if (r == 0)
		r = compare_blob(rank, 0);
	if (r == 0)
		r = compare_blob(rank, TIERD_BLOB_SHARED);
	return r;
}

/* ---- Training ---- */

static int push(struct rank *rank, uint32_t unit)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(rank->job, unit, &parameters);

	if (r < 0)
		return r;
	r = tierd_gradients(rank->job, unit, &gradients);
	for (uint64_t i = 0; r == 0 && i < ELEMENTS; i++)
		((float *)tierd_at(&gradients, 0))[i] = gradient_of(rank->step, unit, i);
	if (r == 0)
		r = tierd_push(rank->job, unit);
	DO(tierd_release(rank->job, unit));
	return r;
}

static int set_blobs(struct rank *rank)
{
	uint64_t step = rank->step + 1;
	int r = tierd_blob_set(rank->job, KEY, &step, sizeof(step), 0);

	return r < 0 ? r : tierd_blob_set(rank->job, KEY, &step, sizeof(step), TIERD_BLOB_SHARED);
}

static int close_step(struct rank *rank)
{
	struct tierd_rates rates = support_rates(1);
	struct tierd_ticket *ticket;
	int r = tierd_step(rank->job, &rates, &ticket);

	if (r < 0)
		return r;
	rank->step++;
	/* Some run ahead, and who waits for durable steps has them committed. */
	if (support_random(&rank->seed) % 3 > 0)
		r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
	if (r == 0 && support_random(&rank->seed) % 3 == 0) {
		r = tierd_ticket_wait(ticket, TIERD_DURABLE, -1);
		if (r == 0)
			printf("durable %llu\n", (unsigned long long)rank->step);
	}
	tierd_ticket_free(ticket);
	return r;
}

static int take_step(struct rank *rank)
{
	int r = 0;

	crowd_pass_time(&rank->seed, 20000);
	for (uint32_t unit = 0; r == 0 && unit < UNITS; unit++)
		r = push(rank, unit);
	if (r == 0)
		r = set_blobs(rank);
	if (r == 0)
		r = close_step(rank);
	if (r == 0 && support_random(&rank->seed) % 8 == 0)
		r = compare(rank);
	return r;
}

static int begin(struct rank *rank)
{
	struct tierd_job_state state;
	int r = tierd_job_ready(rank->job, -1, &state);

	if (r < 0)
		return r;
	rank->step = state.step;
	printf("ready %llu\n", (unsigned long long)rank->step);
	return compare_all(rank);
}

static void train(struct rank *rank)
{
	int r;

	for (;;) {
		r = begin(rank);
		if (r < 0 && r != -ESTALE)
			end_with(r, "beginning");
		while (r == 0)
			r = take_step(rank);
		/* -ECONNRESET: of a step under a daemon that is no more. */
		if (r != -ESTALE && r != -ECONNRESET)
			end_with(r, "training");
	}
}

/* ---- Its beginning ---- */

static uint32_t placement(const char *text)
{
	return strcmp(text, "host") == 0 ? TIERD_PLACE_HOST : TIERD_PLACE_NVME;
}

static void join(struct rank *rank, int count, char *arguments[])
{
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_job_options options =
		support_options(support_value(count, arguments, "job", "job"), rank->number, RANKS);
	char name[16];

	group.momentum = 1;
	group.weight_decay = 0;
	options.optimizer = TIERD_SGD;
	options.group_count = 1;
	options.groups = &group;
	options.stage = (uint32_t)support_number(count, arguments, "stage", 3);
	options.parameter_placement = placement(support_value(count, arguments, "parameters", "nvme"));
	options.optimizer_placement = placement(support_value(count, arguments, "optimizer", "nvme"));
	options.durability = (uint32_t)support_number(count, arguments, "seconds", 0);
	options.snapshot_every = (uint32_t)support_number(count, arguments, "every", 0);
	options.snapshots = (uint32_t)support_number(count, arguments, "snapshots", 2);
	options.blob_bytes = 1 << 16;
	options.takeover = true;
	DO(tierd_job_open(rank->node, &options, &rank->job));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		snprintf(name, sizeof(name), "u%u", unit);
		support_define(rank->job, name, TIERD_FP32, ELEMENTS, unit);
	}
}

static void look(struct rank *rank, const char *name)
{
	static float parameters[ELEMENTS], momenta[ELEMENTS];
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;
	struct tierd_piece pieces[2] = { TIERD_PIECE_INIT, TIERD_PIECE_INIT };

	options.name = name;
	pieces[1].state = "momentum";
	DO(tierd_reader_open(rank->node, &options, &reader));
	DO(tierd_reader_refresh(reader, pieces, 2, &rank->step));
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		DO(tierd_reader_read(reader, unit, 0, "parameter", 0, ELEMENTS, parameters));
		DO(tierd_reader_read(reader, unit, 0, "momentum", 0, ELEMENTS, momenta));
		require_values(rank->step, unit, parameters, momenta);
	}
	DO(tierd_reader_close(reader));
	printf("step %llu\n", (unsigned long long)rank->step);
}

int main(int count, char *arguments[])
{
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;
	struct rank rank = { .number = (uint32_t)support_number(count, arguments, "rank", 0),
			     .seed = (uint64_t)getpid() };

	setvbuf(stdout, NULL, _IOLBF, 0);
	options.reconnect_ms = PATIENCE_MS;
	DO(tierd_connect_with(&options, &rank.node));
	DO(tierd_set_timeout(rank.node, PATIENCE_MS));
	if (support_number(count, arguments, "look", 0)) {
		look(&rank, support_value(count, arguments, "job", "job"));
		return 0;
	}
	join(&rank, count, arguments);
	train(&rank);
}
