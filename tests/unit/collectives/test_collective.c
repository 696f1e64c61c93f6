#include <poll.h>
#include <string.h>

#include "collectives/collective.h"
#include "common/size.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

#define RANKS 4
#define MAX_PUSHES 8

struct fixture {
	struct workers *workers;
	struct collective *collective;
};

static int set_up(void **state)
{
	struct fixture *fixture = allocate(sizeof(*fixture));

	assert_int_equal(workers_new(3, "test", &fixture->workers), 0);
	assert_int_equal(collective_new(fixture->workers, &fixture->collective), 0);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	assert_null(collective_free(fixture->collective));
	workers_free(fixture->workers);
	free(fixture);
	return 0;
}

/* A push with all that it points to. */
struct trial {
	struct collective_push push;
	struct collective_segment segments[3];
	void *buffers[RANKS];
	float *sum, *before;
	uint64_t elements;
	unsigned done_count;
};

static void trial_done(struct collective_push *push)
{
	container_of(push, struct trial, push)->done_count++;
}

static void reap_until_done(struct fixture *fixture, const unsigned *done_count)
{
	struct pollfd waiting = { .fd = workers_fd(fixture->workers), .events = POLLIN };

	while (*done_count == 0) {
		assert_int_equal(poll(&waiting, 1, -1), 1);
		workers_reap(fixture->workers);
	}
}

static size_t size_of(enum reduce_format format)
{
	return format == REDUCE_BF16 ? 2 : 4;
}

static void fill(struct trial *trial, void *buffer)
{
	for (unsigned s = 0; s < trial->push.segment_count; s++) {
		const struct collective_segment *segment = &trial->segments[s];
		char *place = (char *)buffer + segment->offset;

		for (uint64_t i = 0; i < segment->count; i++) {
			float value = random_ordinary(1);

			if (segment->format == REDUCE_BF16)
				((uint16_t *)place)[i] = bfloat16_from_float(value);
			else
				((float *)place)[i] = value;
		}
	}
}

/* A bf16, an fp32 and again a bf16 segment, with gaps between them; rank 1 is absent. */
static void trial_new(struct trial *trial, const uint64_t counts[3], bool is_added)
{
	static const enum reduce_format formats[3] = { REDUCE_BF16, REDUCE_FP32, REDUCE_BF16 };
	uint64_t offset = 256;

	memset(trial, 0, sizeof(*trial));
	for (unsigned s = 0; s < 3; s++) {
		trial->segments[s] = (struct collective_segment){ formats[s], offset, counts[s] };
		offset = size_align(offset + counts[s] * size_of(formats[s]) + 512, sizeof(float));
		trial->elements += counts[s];
	}
	trial->push = (struct collective_push){
		.done = trial_done,
		.contributions = (const void *const *)trial->buffers,
		.rank_count = RANKS,
		.segments = trial->segments,
		.segment_count = 3,
		.is_added = is_added,
	};
	for (unsigned rank = 0; rank < RANKS; rank++) {
		trial->buffers[rank] = rank == 1 ? NULL : allocate(offset);
		if (trial->buffers[rank])
			fill(trial, trial->buffers[rank]);
	}
	trial->push.sum = trial->sum = allocate_floats(trial->elements);
	trial->before = allocate_floats(trial->elements);
	for (uint64_t i = 0; i < trial->elements; i++)
		trial->sum[i] = trial->before[i] = random_ordinary(1);
}

static void trial_free(struct trial *trial)
{
	for (unsigned rank = 0; rank < RANKS; rank++)
		free(trial->buffers[rank]);
	free(trial->sum);
	free(trial->before);
}

static float contribution(const struct trial *trial, const struct collective_segment *segment, unsigned rank,
			  uint64_t i)
{
	const char *place = (const char *)trial->buffers[rank] + segment->offset;

	return segment->format == REDUCE_BF16 ? bfloat16_to_float(((const uint16_t *)place)[i])
					      : ((const float *)place)[i];
}

/* Ranks 0, 2 and 3: the tree of four, of which the left side is rank 0 alone. */
static void assert_summed(const struct trial *trial)
{
	uint64_t at = 0;

	assert_int_equal(trial->done_count, 1);
	for (unsigned s = 0; s < 3; s++) {
		const struct collective_segment *segment = &trial->segments[s];

		for (uint64_t i = 0; i < segment->count; i++, at++) {
			float right = contribution(trial, segment, 2, i) + contribution(trial, segment, 3, i);
			float tree = contribution(trial, segment, 0, i) + right;
			float expected = trial->push.is_added ? trial->before[at] + tree : tree;

			assert_true(is_same(trial->sum[at], expected));
		}
	}
}

static void assert_push(struct fixture *fixture, const uint64_t counts[3])
{
	for (int is_added = 0; is_added < 2; is_added++) {
		struct trial trial;

		trial_new(&trial, counts, is_added);
		collective_push(fixture->collective, &trial.push);
		assert_int_equal(trial.done_count, 0);
		reap_until_done(fixture, &trial.done_count);
		assert_summed(&trial);
		trial_free(&trial);
	}
}

static void a_small_push_is_summed(void **state)
{
	assert_push(*state, (const uint64_t[]){ 256, 512, 0 });
	assert_push(*state, (const uint64_t[]){ 1, 2, 3 });
	assert_push(*state, (const uint64_t[]){ 0, 0, 256 });
}

static void tasks_straddle_segments(void **state)
{
	assert_push(*state, (const uint64_t[]){ 100000, 77, 50000 });
	assert_push(*state, (const uint64_t[]){ 65536, 65536, 65536 });
	assert_push(*state, (const uint64_t[]){ 3, 400001, 300000 });
}

static void a_large_push_is_summed(void **state)
{
	assert_push(*state, (const uint64_t[]){ 1500000, 300, 70000 });
}

/* So that what is more urgent waits for a million elements at most, of all ranks. */
static void assert_begun_in_part(struct fixture *fixture, unsigned rank_count)
{
	const uint64_t task = (UINT64_C(1) << 20) / rank_count, count = 18 * task + 77;
	float *values = calloc(count, sizeof(*values));
	struct trial trial = { .sum = calloc(count, sizeof(*trial.sum)) };
	const void *contributions[16];
	const struct collective_segment segment = { REDUCE_FP32, 0, count };
	uint64_t started, largest;

	assert_non_null(values);
	assert_non_null(trial.sum);
	for (uint64_t i = 0; i < count; i += 1021)
		values[i] = (float)i;
	values[count - 1] = 3;
	for (unsigned rank = 0; rank < rank_count; rank++)
		contributions[rank] = values;
	trial.push = (struct collective_push){ .done = trial_done,
					       .contributions = contributions,
					       .rank_count = rank_count,
					       .segments = &segment,
					       .segment_count = 1,
					       .sum = trial.sum };
	collective_push(fixture->collective, &trial.push);
	started = trial.push.started;
	largest = trial.push.tasks[0].count;
	reap_until_done(fixture, &trial.done_count);
	assert_int_equal(started, COLLECTIVE_TASKS * task);
	assert_int_equal(largest, task);
	assert_int_equal(trial.done_count, 1);
	for (uint64_t i = 0; i < count; i++)
		values[i] *= (float)rank_count;
	assert_memory_equal(trial.sum, values, count * sizeof(*values));
	free(trial.sum);
	free(values);
}

static void a_huge_push_is_begun_in_part(void **state)
{
	assert_begun_in_part(*state, 1);
	assert_begun_in_part(*state, 16);
}

static void a_push_of_nothing_is_done_too(void **state)
{
	assert_push(*state, (const uint64_t[]){ 0, 0, 0 });
}

static void pushes_do_not_disturb_each_other(void **state)
{
	struct fixture *fixture = *state;
	struct trial trials[MAX_PUSHES];

	for (unsigned i = 0; i < MAX_PUSHES; i++) {
		trial_new(&trials[i], (const uint64_t[]){ 70000 * i, 1000, 256 }, i % 2);
		collective_push(fixture->collective, &trials[i].push);
	}
	for (unsigned i = 0; i < MAX_PUSHES; i++)
		reap_until_done(fixture, &trials[i].done_count);
	for (unsigned i = 0; i < MAX_PUSHES; i++) {
		assert_summed(&trials[i]);
		trial_free(&trials[i]);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_small_push_is_summed),	    TEST(tasks_straddle_segments),
		TEST(a_large_push_is_summed),	    TEST(a_push_of_nothing_is_done_too),
		TEST(a_huge_push_is_begun_in_part), TEST(pushes_do_not_disturb_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
