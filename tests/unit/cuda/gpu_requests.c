/* Nothing of the stand-in, so that tests can run on a GPU, too. */
#include <poll.h>

#include "tests/unit/cuda/gpu_support.h"

void gpu_reap_once(struct gpu_engine *engine)
{
	struct pollfd wanted = { .fd = gpu_engine_fd(engine), .events = POLLIN };

	assert_int_equal(poll(&wanted, 1, 60000), 1);
	gpu_engine_reap(engine);
}

static void end_copy(struct gpu_request *request, int status)
{
	static unsigned order;
	struct test_copy *test = container_of(request, struct test_copy, copy.request);

	test->ending.count++;
	test->ending.status = status;
	test->order = ++order;
}

static void note_recorded(struct gpu_copy *copy)
{
	container_of(copy, struct test_copy, copy)->recorded++;
}

void test_copy_init(struct test_copy *test, enum gpu_direction direction, driver_address to,
		    driver_address from, size_t bytes)
{
	*test = (struct test_copy){ .copy = { .request = { .done = end_copy },
					      .direction = direction,
					      .to = to,
					      .from = from,
					      .bytes = bytes,
					      .recorded = note_recorded } };
}

int test_copy_wait(struct gpu_engine *engine, struct test_copy *test)
{
	while (test->ending.count == 0)
		gpu_reap_once(engine);
	assert_int_equal(test->ending.count, 1);
	return test->ending.status;
}

int gpu_copy_now(struct gpu_engine *engine, enum gpu_direction direction, driver_address to,
		 driver_address from, size_t bytes)
{
	struct test_copy test;

	test_copy_init(&test, direction, to, from, bytes);
	gpu_copy_submit(engine, &test.copy);
	return test_copy_wait(engine, &test);
}

/* Of the one request that is waited for. */
static struct gpu_ending ending;

static void end_request(struct gpu_request *request, int status)
{
	ending.count++;
	ending.status = status;
}

static int wait_for(struct gpu_engine *engine)
{
	while (ending.count == 0)
		gpu_reap_once(engine);
	assert_int_equal(ending.count, 1);
	ending.count = 0;
	return ending.status;
}

int gpu_memory_create_now(struct gpu_engine *engine, struct gpu_memory *memory, size_t bytes)
{
	*memory = (struct gpu_memory){ .request = { .done = end_request }, .bytes = bytes };
	gpu_memory_create(engine, memory);
	return wait_for(engine);
}

int gpu_memory_destroy_now(struct gpu_engine *engine, struct gpu_memory *memory)
{
	gpu_memory_destroy(engine, memory);
	return wait_for(engine);
}

int gpu_pin_add_now(struct gpu_engine *engine, struct gpu_pin *pin, void *base, size_t bytes)
{
	*pin = (struct gpu_pin){ .request = { .done = end_request }, .base = base, .bytes = bytes };
	gpu_pin_add(engine, pin);
	return wait_for(engine);
}

int gpu_pin_remove_now(struct gpu_engine *engine, struct gpu_pin *pin)
{
	gpu_pin_remove(engine, pin);
	return wait_for(engine);
}

int gpu_event_create_now(struct gpu_engine *engine, struct gpu_event *event)
{
	*event = (struct gpu_event){ .request = { .done = end_request } };
	gpu_event_create(engine, event);
	return wait_for(engine);
}

int gpu_event_open_now(struct gpu_engine *engine, struct gpu_event *event)
{
	event->request = (struct gpu_request){ .done = end_request };
	gpu_event_open(engine, event);
	return wait_for(engine);
}

int gpu_event_close_now(struct gpu_engine *engine, struct gpu_event *event)
{
	gpu_event_close(engine, event);
	return wait_for(engine);
}

int gpu_kernels_load_now(struct gpu_engine *engine, struct gpu_kernels *kernels)
{
	kernels->request = (struct gpu_request){ .done = end_request };
	gpu_kernels_load(engine, kernels);
	return wait_for(engine);
}

int gpu_kernels_unload_now(struct gpu_engine *engine, struct gpu_kernels *kernels)
{
	gpu_kernels_unload(engine, kernels);
	return wait_for(engine);
}
