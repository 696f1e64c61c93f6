/* What is noted of a job while somebody traces it, and how long it is kept. */
#include <errno.h>
#include <string.h>

#include "daemon/telemetry/own.h"
#include "tests/unit/scene_test.h"

/* Those that are still there die with the scene. */
static struct actor trainer, tracer, other, tracers[TRACE_MAX_PER_USER + 1];

/* What replies have brought. */
struct seen {
	unsigned counts[TRACE_CLOSE + 1];
	uint64_t events, lost, elements, bytes;
	uint64_t first, last; /* the amounts of the first and the last event */
	bool is_over;
	const char *stream; /* wanted; NULL: none */
	unsigned of_stream;
};

static int begin(struct actor *actor, const char *job)
{
	Tierd__Wire__Trace body = TIERD__WIRE__TRACE__INIT;

	body.name = (char *)job;
	return actor_ask(actor, WIRE_REQUEST(TRACE, trace, &body), NULL);
}

static void note(struct seen *seen, const Tierd__Wire__TraceEvent *event)
{
	assert_in_range(event->kind, TRACE_STEP, TRACE_CLOSE);
	if (seen->events++ == 0)
		seen->first = event->amount;
	seen->last = event->amount;
	seen->counts[event->kind]++;
	seen->of_stream += seen->stream && strcmp(event->stream, seen->stream) == 0;
	if (event->kind == TRACE_UPDATE)
		seen->elements += event->amount;
	if (event->kind == TRACE_UPDATE_READ || event->kind == TRACE_UPDATE_WRITE)
		seen->bytes += event->amount;
}

static int look(struct actor *actor, struct seen *seen)
{
	Tierd__Wire__TraceRead body = TIERD__WIRE__TRACE_READ__INIT;
	const Tierd__Wire__Reply *reply;
	bool has_more = true;

	while (has_more) {
		int r = actor_ask(actor, WIRE_REQUEST(TRACE_READ, trace_read, &body), &reply);

		if (r < 0)
			return r;
		assert_int_equal(reply->body_case, TIERD__WIRE__REPLY__BODY_TRACE);
		assert_in_range(reply->trace->n_events, 0, TRACE_EVENTS_PER_REPLY);
		for (size_t i = 0; i < reply->trace->n_events; i++)
			note(seen, reply->trace->events[i]);
		seen->lost += reply->trace->lost;
		seen->is_over = reply->trace->is_over;
		has_more = reply->trace->has_more;
	}
	return 0;
}

static void train(struct actor *actor)
{
	actor_send_push(actor, 0, 0);
	assert_int_equal(actor_take_step(actor), 0);
}

static uint64_t moved(const struct job *job)
{
	return figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_READ] +
	       figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN];
}

static void what_a_step_does_is_noted(void **state)
{
	struct job *job = actor_play(&scene, &trainer);
	struct seen seen = { .events = 0 };
	uint64_t before = moved(job);

	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	train(&trainer);
	/* What is read for the next one is noted when it has come. */
	scene_settle(&scene);
	assert_int_equal(look(&tracer, &seen), 0);
	assert_int_equal(seen.counts[TRACE_STEP], 1);
	assert_int_equal(seen.counts[TRACE_CLOSE], 1);
	assert_int_equal(seen.counts[TRACE_MEASURE], workers_count(scene.node->workers));
	assert_in_range(seen.counts[TRACE_REDUCE], 1, COLLECTIVE_TASKS);
	assert_int_equal(seen.elements, PLAY_ELEMENTS);
	assert_true(seen.bytes > 0);
	assert_int_equal(seen.bytes, moved(job) - before);
	assert_int_equal(seen.lost, 0);
}

/* The longest that there are. */
static void streams_have_their_whole_names(void **state)
{
	const struct actor_job options = { .stage = 3, .moments = MOMENTS_IN_INT8 };
	struct seen seen = { .stream = "parameter.bf16.moments-int8" };

	assert_int_equal(actor_join(&scene, &trainer, &options), 0);
	assert_int_equal(actor_define_units(&trainer, 1, 1000), 0);
	assert_int_equal(actor_ready(&trainer), 0);
	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	train(&trainer);
	assert_int_equal(look(&tracer, &seen), 0);
	assert_true(seen.of_stream > 0);
}

static void who_does_not_trace_keeps_no_memory(void **state)
{
	struct job *job = actor_play(&scene, &trainer);

	assert_false(trace_is_on(job));
	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	assert_int_equal(begin(&other, "play"), 0);
	actor_die(&tracer);
	assert_true(trace_is_on(job));
	/* One that begins anew has ended the one before, whatever comes of it. */
	assert_int_equal(begin(&other, "nothing"), -ENOENT);
	assert_false(trace_is_on(job));
	assert_true(queue_is_empty(&scene.node->telemetry->tracers));
	assert_int_equal(look(&other, &(struct seen){ .events = 0 }), -EINVAL);
}

static void add(struct job *job, uint64_t amount)
{
	trace_add(job, &(struct trace_event){ .began_ns = clock_now_ns(),
					      .ended_ns = clock_now_ns(),
					      .kind = TRACE_HOLD,
					      .amount = amount });
}

static void the_oldest_are_lost_and_counted(void **state)
{
	struct job *job = actor_play(&scene, &trainer);
	struct seen all = { .events = 0 }, rest = { .events = 0 };

	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	assert_int_equal(begin(&other, "play"), 0);
	for (uint64_t i = 1; i <= TRACE_EVENTS; i++)
		add(job, i);
	assert_int_equal(look(&other, &all), 0);
	for (uint64_t i = TRACE_EVENTS + 1; i <= TRACE_EVENTS + 100; i++)
		add(job, i);
	assert_int_equal(look(&other, &all), 0);
	assert_int_equal(look(&tracer, &rest), 0);
	assert_int_equal(all.events, TRACE_EVENTS + 100);
	assert_int_equal(all.lost, 0);
	assert_int_equal(all.first, 1);
	assert_int_equal(rest.events, TRACE_EVENTS);
	assert_int_equal(rest.lost, 100);
	assert_int_equal(rest.first, 101);
	assert_int_equal(rest.last, TRACE_EVENTS + 100);
	/* Nothing is told twice. */
	assert_int_equal(look(&tracer, &rest), 0);
	assert_int_equal(rest.events + rest.lost, all.events);
}

static void what_began_before_a_trace_is_not_of_it(void **state)
{
	struct job *job = actor_play(&scene, &trainer);
	struct seen all = { .events = 0 }, rest = { .events = 0 };
	uint64_t began_ns;

	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	began_ns = trace_now(job);
	assert_int_equal(begin(&other, "play"), 0);
	trace_span(job, TRACE_SAVE, began_ns, 7);
	trace_span(job, TRACE_SAVE, trace_now(job), 8);
	assert_int_equal(look(&tracer, &all), 0);
	assert_int_equal(look(&other, &rest), 0);
	assert_int_equal(all.events, 2);
	assert_int_equal(rest.events, 1);
}

static void what_a_job_did_can_be_read_when_it_is_gone(void **state)
{
	struct seen seen = { .events = 0 };

	actor_play(&scene, &trainer);
	assert_int_equal(actor_enter(&scene, &tracer), 0);
	assert_int_equal(begin(&tracer, "play"), 0);
	train(&trainer);
	assert_int_equal(actor_drop(&trainer, true), 0);
	while (!node_has_settled(scene.node, 1000))
		scene_wait(&scene);
	assert_int_equal(look(&tracer, &seen), 0);
	assert_int_equal(seen.counts[TRACE_STEP], 1);
	assert_true(seen.is_over);
}

static void there_is_a_bound_on_traces(void **state)
{

	actor_play(&scene, &trainer);
	for (unsigned i = 0; i <= TRACE_MAX_PER_USER; i++)
		assert_int_equal(actor_enter(&scene, &tracers[i]), 0);
	for (unsigned i = 0; i < TRACE_MAX_PER_USER; i++)
		assert_int_equal(begin(&tracers[i], "play"), 0);
	assert_int_equal(begin(&tracers[TRACE_MAX_PER_USER], "play"), -EBUSY);
	assert_non_null(strstr(actor_message(&tracers[TRACE_MAX_PER_USER]), "wait until one of them"));
	/* One's own does not count twice. */
	assert_int_equal(begin(&tracers[0], "play"), 0);
	actor_die(&tracers[1]);
	assert_int_equal(begin(&tracers[TRACE_MAX_PER_USER], "play"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(what_a_step_does_is_noted, scene_setup),
		SCENE_TEST(streams_have_their_whole_names, scene_setup),
		SCENE_TEST(who_does_not_trace_keeps_no_memory, scene_setup),
		SCENE_TEST(the_oldest_are_lost_and_counted, scene_setup),
		SCENE_TEST(what_began_before_a_trace_is_not_of_it, scene_setup),
		SCENE_TEST(what_a_job_did_can_be_read_when_it_is_gone, scene_setup),
		SCENE_TEST(there_is_a_bound_on_traces, scene_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
