#include "tests/unit/cuda/update_desk.h"

#include <string.h>
#include <sys/mman.h>

#include "common/size.h"
#include "tests/unit/cuda/kernel_place.h"

#define GUARD 0x5a
#define GUARD_BYTES 64

void desk_open(struct desk *desk, size_t chunk_bytes)
{
	struct gpu_engine_config config = { .gpus = &desk->gpus };
	struct gpu_updater_config updater = { .kernels = &desk->kernels, .bytes = chunk_bytes };
	struct gpu_problem problem;

	*desk = (struct desk){ 0 };
	gpus_find(&desk->gpus);
	if (gpu_engine_new(&config, &problem, &desk->engine) < 0)
		fail_msg("%s", problem.text);
	desk->kernels = (struct gpu_kernels){ .image = place_image(),
					      .count = KERNELS_COUNT,
					      .names = kernels_names,
					      .functions = desk->functions };
	if (gpu_kernels_load_now(desk->engine, &desk->kernels) < 0)
		fail_msg("%s", desk->kernels.request.problem.text);
	assert_int_equal(gpu_memory_create_now(desk->engine, &desk->chunks, chunk_bytes), 0);
	assert_int_equal(gpu_memory_create_now(desk->engine, &desk->state, DESK_BYTES), 0);
	desk->host = mmap(NULL, DESK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(desk->host != MAP_FAILED);
	assert_int_equal(gpu_pin_add_now(desk->engine, &desk->pin, desk->host, DESK_BYTES), 0);
	updater.engine = desk->engine;
	updater.memory = desk->chunks.address;
	desk->updater = gpu_updater_new(&updater);
	assert_non_null(desk->updater);
}

void desk_close(struct desk *desk)
{
	desk->updater = gpu_updater_free(desk->updater);
	assert_int_equal(gpu_pin_remove_now(desk->engine, &desk->pin), 0);
	assert_int_equal(gpu_memory_destroy_now(desk->engine, &desk->state), 0);
	assert_int_equal(gpu_memory_destroy_now(desk->engine, &desk->chunks), 0);
	assert_int_equal(gpu_kernels_unload_now(desk->engine, &desk->kernels), 0);
	desk->engine = gpu_engine_free(desk->engine);
	munmap(desk->host, DESK_BYTES);
}

static void note_end(struct gpu_pass *pass, int status)
{
	struct test_update *test = container_of(pass, struct test_update, update.pass);

	test->ending.count++;
	test->ending.status = status;
}

/* One behind the other, not aligned to more than an element. */
static void lay_out(struct desk *desk, struct test_update *test, enum place place, size_t offset)
{
	const struct sample *sample = test->sample;

	for (unsigned i = 0; i < ARRAYS; i++) {
		size_t bytes = sample->bytes[i];
		bool is_on_gpu = place == ON_GPU || (place == GRADIENT_ON_GPU && i == GRADIENT);

		if (bytes == 0)
			continue;
		test->host[i] = desk->host + offset + 4;
		test->there[i] = is_on_gpu ? desk->state.address + offset : 0;
		offset += size_round_up(bytes + 4 + GUARD_BYTES, 16);
		assert_true(offset <= DESK_BYTES);
		memcpy(test->host[i], sample->before.arrays[i], bytes);
		memset(test->host[i] + bytes, GUARD, GUARD_BYTES);
		if (is_on_gpu)
			assert_int_equal(gpu_copy_now(desk->engine, GPU_FROM_HOST, test->there[i],
						      host_address(test->host[i]), bytes + GUARD_BYTES),
					 0);
	}
}

static struct gpu_array array_of(const struct test_update *test, unsigned i)
{
	if (test->there[i])
		return (struct gpu_array){ test->there[i], true };
	return (struct gpu_array){ host_address(test->host[i]), false };
}

void test_update_init(struct desk *desk, struct test_update *test, const struct sample *sample,
		      enum place place, size_t offset)
{
	*test = (struct test_update){ .sample = sample };
	lay_out(desk, test, place, offset);
	test->update = (struct gpu_update){
		.pass = { .done = note_end, .count = sample->count },
		.optimizer = sample->optimizer,
		.constants = sample->constants,
		.format = sample->format,
		.kind = sample->kind,
		.noise = sample->noise,
		.parameter = array_of(test, PARAMETER),
		.master = array_of(test, MASTER),
		.slots = { array_of(test, SLOTS), array_of(test, SLOTS + 1) },
		.gradient = array_of(test, GRADIENT),
	};
}

int test_update_wait(struct desk *desk, struct test_update *test)
{
	while (test->ending.count == 0)
		gpu_reap_once(desk->engine);
	assert_int_equal(test->ending.count, 1);
	return test->ending.status;
}

static void take_back(struct desk *desk, const struct test_update *test, struct state *ret_after)
{
	state_new(test->sample, ret_after);
	for (unsigned i = 0; i < ARRAYS; i++) {
		size_t bytes = test->sample->bytes[i];

		if (test->there[i])
			assert_int_equal(gpu_copy_now(desk->engine, GPU_TO_HOST, host_address(test->host[i]),
						      test->there[i], bytes + GUARD_BYTES),
					 0);
		for (unsigned j = 0; test->host[i] && j < GUARD_BYTES; j++)
			assert_int_equal(test->host[i][bytes + j], GUARD);
		if (test->host[i])
			memcpy(ret_after->arrays[i], test->host[i], bytes);
	}
}

void test_update_check(struct desk *desk, struct test_update *test)
{
	struct state ours, theirs;

	take_back(desk, test, &ours);
	update_here(test->sample, test->sample->best, &theirs);
	assert_same(test->sample, &ours, &theirs);
	state_free(&ours);
	state_free(&theirs);
}
