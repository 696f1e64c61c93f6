/* What a client can write while the daemon reads it, the daemon reads as atomic words, and only where it
 * must: a thread writes noise to all of a rank's lease page, at the address where the daemon has it, so that
 * ThreadSanitizer sees every access that is none. */
#include <pthread.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define ELEMENTS 1000
#define ROUNDS 300

static struct actor actor;

struct noise {
	struct lease_header *page;
	size_t words, first_counter;
	_Atomic bool is_over;
	_Atomic uint64_t count;
	pthread_t thread;
};

static uint64_t next(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

/* Counters only ever become 0: a lease that is never given back would end the session. */
static void *write_noise(void *argument)
{
	struct noise *noise = argument;
	_Atomic uint32_t *words = (_Atomic uint32_t *)noise->page;
	uint64_t seed = 7;

	while (!noise->is_over) {
		size_t place = next(&seed) % noise->words;
		uint32_t value = next(&seed) % 2 ? (uint32_t)(next(&seed) % 3) : (uint32_t)next(&seed);

		atomic_store_explicit(&words[place], place < noise->first_counter ? value : 0,
				      memory_order_relaxed);
		noise->count++;
	}
	return NULL;
}

static void start_noise(struct noise *noise)
{
	const struct member *member = scene_job("play")->members.ranks[0];

	*noise = (struct noise){ .page = member->leases };
	noise->words = lease_bytes(2, member->buffer_count) / sizeof(uint32_t);
	noise->first_counter = (size_t)(lease_counters(member->leases, member->buffer_count) -
					(_Atomic uint32_t *)member->leases);
	assert_int_equal(pthread_create(&noise->thread, NULL, write_noise, noise), 0);
}

static void begin(void)
{
	const struct actor_tensor tensors[] = { { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false },
						{ "v", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false } };
	const struct actor_job job = { .stage = 3 };

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &job), 0);
	assert_int_equal(actor_define(&actor, "one", &tensors[0], 1), 0);
	assert_int_equal(actor_define(&actor, "two", &tensors[1], 1), 0);
	assert_int_equal(actor_ready(&actor), 0);
}

static void ask_for_everything(void)
{
	for (uint32_t unit = 0; unit < 2; unit++) {
		actor_send_gather(&actor, unit, actor.step, false);
		actor_send_push(&actor, unit, unit);
	}
	scene_settle(&scene);
	/* Whatever the noise has left there, it gives back: else the step is refused. */
	for (uint32_t unit = 0; unit < 2; unit++)
		atomic_store(
			&lease_counters((struct lease_header *)actor.leases.base, actor.buffer_count)[unit],
			0);
	actor_send_step(&actor, 0.1f);
	scene_settle(&scene);
}

static void all_of_a_lease_page_is_read_as_atomic_words(void **state)
{
	struct noise noise;

	begin();
	start_noise(&noise);
	for (unsigned i = 0; i < ROUNDS && !actor.is_closed; i++)
		ask_for_everything();
	noise.is_over = true;
	pthread_join(noise.thread, NULL);
	assert_true(noise.count > ROUNDS);
	/* Its steps went on: what was written there was believed by nobody but itself. */
	assert_true(scene_job("play")->decided > 0);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = 32 * MIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(all_of_a_lease_page_is_read_as_atomic_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
