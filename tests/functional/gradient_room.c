/* As many gradient buffers as a job was opened with are held at once, of whichever units, though the largest
 * one has a buffer of its own; each is zero at first, and nobody else's as long as it is held. Two ranks
 * take, push and discard as chance will have it, so that what one pushes waits for the other.
 * In a room of so many bytes it is as many as have a place there; and who is refused follows from what the
 * rank itself did, not from what came back when. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "crash_support.h"

#define UNITS 9
#define STEPS 6
#define MOVES 60 /* in a step */

static const uint64_t sizes[][UNITS] = {
	{ 1000, 1000, 60000, 1000, 500, 1000 },			    /* an embedding among layers */
	{ 1000, 1000, 60000, 1000, 61000, 1000, 1000, 1000, 1000 }, /* and a head */
	{ 1000, 60000, 1000, 60000, 7000, 3000 },
	{ 4000, 4000, 4000, 4000, 4000, 4000 },
	{ 10000, 9000, 8000, 7000, 6000, 5000 },
	{ 30000, 20000, 1, 1, 1, 1 },
};

struct rank {
	pthread_t thread;
	const uint64_t *sizes;
	uint32_t units, number, buffers, held;
	uint64_t seed, room;
	uint64_t refusals; /* of a room: which of all that it took */
	struct tierd_job *job;
	float *values[UNITS]; /* of what it holds; NULL */
	float stamps[UNITS];
};

static uint32_t choose(struct rank *rank, uint32_t count)
{
	return (uint32_t)(support_random(&rank->seed) >> 32) % count;
}

static void expect_all(const float *values, uint64_t count, float value)
{
	for (uint64_t i = 0; i < count; i++)
		REQUIRE(values[i] == value);
}

static void take(struct rank *rank, uint32_t unit)
{
	struct tierd_view view;
	int r = tierd_gradients(rank->job, unit, &view);

	rank->refusals = rank->refusals * 31 + (r == -ENOBUFS);
	if (r == -ENOBUFS && rank->room > 0 && rank->held > 0)
		return;
	OK(r);
	rank->values[unit] = tierd_at(&view, 0);
	rank->stamps[unit] += 1;
	expect_all(rank->values[unit], rank->sizes[unit], 0);
	for (uint64_t i = 0; i < rank->sizes[unit]; i++)
		rank->values[unit][i] = rank->stamps[unit];
	rank->held++;
}

static void give(struct rank *rank, uint32_t unit, bool is_pushed)
{
	expect_all(rank->values[unit], rank->sizes[unit], rank->stamps[unit]);
	OK(is_pushed ? tierd_push(rank->job, unit) : tierd_discard(rank->job, unit));
	rank->values[unit] = NULL;
	rank->held--;
}

/* Embedding and head have one buffer for both. */
static bool is_shared(const struct rank *rank, uint32_t unit)
{
	bool is_held = false;

	if (rank->room > 0)
		return false;
	for (uint32_t i = 0; i < rank->units; i++)
		is_held |= rank->units == UNITS && rank->sizes[i] >= 60000 && rank->values[i];
	return is_held && rank->sizes[unit] >= 60000;
}

static void move(struct rank *rank)
{
	uint32_t unit = choose(rank, rank->units);

	if (rank->values[unit])
		give(rank, unit, choose(rank, 4) > 0);
	else if (rank->held < rank->buffers && !is_shared(rank, unit))
		take(rank, unit);
}

static void train(struct rank *rank)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = 0.1f;
	for (unsigned step = 0; step < STEPS; step++) {
		for (unsigned i = 0; i < MOVES; i++)
			move(rank);
		for (uint32_t unit = 0; unit < rank->units; unit++)
			if (rank->values[unit])
				give(rank, unit, true);
		OK(tierd_step(rank->job, &rates, NULL));
	}
}

static void *run(void *argument)
{
	struct rank *rank = argument;
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("room", rank->number, 2);

	options.gradient_buffers = rank->buffers;
	options.gradient_bytes = rank->room;
	OK(tierd_job_open(node, &options, &rank->job));
	for (uint32_t i = 0; i < rank->units; i++) {
		char name[16];

		snprintf(name, sizeof(name), "u%u", i);
		support_define(rank->job, name, TIERD_FP32, rank->sizes[i], 1);
	}
	OK(tierd_job_ready(rank->job, PATIENCE_MS, NULL));
	train(rank);
	OK(tierd_job_close(rank->job));
	tierd_disconnect(node);
	return NULL;
}

static uint64_t play(const uint64_t *of, uint32_t buffers, uint64_t room, uint64_t seed)
{
	struct rank ranks[2];

	for (uint32_t i = 0; i < 2; i++) {
		ranks[i] = (struct rank){
			.sizes = of, .number = i, .buffers = buffers, .room = room, .seed = 2 * seed + i + 1
		};
		while (ranks[i].units < UNITS && of[ranks[i].units] > 0)
			ranks[i].units++;
		REQUIRE(pthread_create(&ranks[i].thread, NULL, run, &ranks[i]) == 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		REQUIRE(pthread_join(ranks[i].thread, NULL) == 0);
	support_drop("room");
	return ranks[0].refusals * 31 + ranks[1].refusals;
}

static void play_in_rooms(const uint64_t *of, uint64_t seed)
{
	static const uint64_t rooms[] = { 1, 250000, 300000, 600000 };

	for (size_t i = 0; i < sizeof(rooms) / sizeof(*rooms); i++) {
		uint64_t refusals = play(of, 1 + (uint32_t)(i + seed) % 4 * 3, rooms[i], seed + i);

		REQUIRE(play(of, 1 + (uint32_t)(i + seed) % 4 * 3, rooms[i], seed + i) == refusals);
	}
}

/* What is held beyond that is refused, with its sizes and what would help. */
static void more_is_refused_by_name(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("more", 0, 1);
	struct tierd_job *job;
	struct tierd_view view;

	OK(tierd_job_open(node, &options, &job));
	support_define(job, "embedding", TIERD_FP32, 64 * 1024, 1);
	support_define(job, "head", TIERD_FP32, 63 * 1024, 1);
	for (unsigned i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "h%u", i);
		support_define(job, name, TIERD_FP32, 1024, 1);
	}
	OK(tierd_job_ready(job, PATIENCE_MS, NULL));
	OK(tierd_gradients(job, 0, &view));
	FAILS(tierd_gradients(job, 1, &view), -ENOBUFS,
	      "the gradients of \"head\" take 252 KiB, for which this rank has one buffer, of 256 KiB, and "
	      "holds it for \"embedding\"; push or discard that, or cut one of the two into several units "
	      "(slices)");
	OK(tierd_gradients(job, 2, &view));
	OK(tierd_gradients(job, 3, &view));
	FAILS(tierd_gradients(job, 4, &view), -ENOBUFS,
	      "all 2 gradient buffers of 4 KiB are held by this rank, one of them for \"h0\"; push or "
	      "discard "
	      "one, or open the job with more");
	OK(tierd_push(job, 0));
	OK(tierd_gradients(job, 1, &view));
	for (uint32_t unit = 1; unit < 4; unit++)
		OK(tierd_discard(job, unit));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	support_drop("more");
}

/* An embedding has all of the room, or what is beside it together. */
static void more_than_the_room_is_refused_by_name(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("more", 0, 1);
	struct tierd_job *job;
	struct tierd_view view;

	options.gradient_buffers = 3;
	options.gradient_bytes = 1;
	OK(tierd_job_open(node, &options, &job));
	support_define(job, "embedding", TIERD_FP32, 64 * 1024, 1);
	for (unsigned i = 0; i < 6; i++) {
		char name[16];

		snprintf(name, sizeof(name), "h%u", i);
		support_define(job, name, TIERD_FP32, 16 * 1024, 1);
	}
	OK(tierd_job_ready(job, PATIENCE_MS, NULL));
	OK(tierd_gradients(job, 0, &view));
	FAILS(tierd_gradients(job, 1, &view), -ENOBUFS,
	      "the gradients of \"h0\" take 64 KiB, and this rank holds 256 KiB of its room of 256 KiB for 1 "
	      "unit, one of them \"embedding\"; push or discard some, or open the job with more "
	      "gradient_bytes");
	OK(tierd_push(job, 0));
	for (uint32_t unit = 1; unit < 4; unit++)
		OK(tierd_gradients(job, unit, &view));
	FAILS(tierd_gradients(job, 4, &view), -ENOBUFS,
	      "holds 192 KiB of its room of 256 KiB for 3 units, one of them \"h0\"; push or discard some, "
	      "or "
	      "open the job with more gradient_buffers");
	OK(tierd_push(job, 2));
	OK(tierd_gradients(job, 4, &view));
	for (uint32_t unit = 1; unit < 5; unit++)
		if (unit != 2)
			OK(tierd_discard(job, unit));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	support_drop("more");
}

/* It says what would help. */
static void a_room_that_does_not_fit_is_refused(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("huge", 0, 1);
	struct tierd_job *job;

	options.gradient_bytes = UINT64_C(1) << 50;
	OK(tierd_job_open(node, &options, &job));
	support_define(job, "unit", TIERD_FP32, 1000, 1);
	FAILS(tierd_job_ready(job, PATIENCE_MS, NULL), -ENOMEM,
	      "raise host_budget, or open it with less gradient_bytes than 1.0 PiB");
	OK(tierd_job_detach(job));
	tierd_disconnect(node);
}

/* What an earlier unit left behind the tensor of a later one is no part of its gradients. */
static void padding_stays_out_of_the_norm(void)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options("padding", 0, 1);
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_step_result result;
	struct tierd_ticket *ticket;
	struct tierd_job *job;
	struct tierd_view view;

	options.gradient_buffers = 1;
	rates.learning_rate = 0.1f;
	OK(tierd_job_open(node, &options, &job));
	support_define(job, "u0", TIERD_FP32, 256, 1);
	support_define(job, "u1", TIERD_FP32, 225, 1);
	OK(tierd_job_ready(job, PATIENCE_MS, NULL));
	for (uint32_t unit = 0; unit < 2; unit++) {
		OK(tierd_gradients_with(job, unit, TIERD_GRADIENTS_OVERWRITE, &view));
		for (uint32_t i = 0; i < (unit == 0 ? 256 : 225); i++)
			((float *)tierd_at(&view, 0))[i] = 1;
		OK(tierd_push(job, unit));
		OK(tierd_step(job, &rates, &ticket));
		OK(tierd_ticket_wait(ticket, TIERD_DONE, PATIENCE_MS));
		OK(tierd_ticket_step_result(ticket, &result));
		tierd_ticket_free(ticket);
		REQUIRE(result.gradient_norm == (unit == 0 ? 16 : 15));
	}
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	support_drop("padding");
}

int main(void)
{
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (uint32_t buffers = 1; buffers <= 4; buffers++)
			play(sizes[i], buffers, 0, i * 16 + buffers);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		play_in_rooms(sizes[i], i);
	more_is_refused_by_name();
	more_than_the_room_is_refused_by_name();
	a_room_that_does_not_fit_is_refused();
	padding_stays_out_of_the_norm();
	return 0;
}
