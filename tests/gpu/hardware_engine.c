#include "tests/gpu/hardware_engine.h"

#include <string.h>
#include <sys/mman.h>

static void note_failure(void *context, const char *problem)
{
	struct gpu_fixture *fixture = context;

	fixture->failures++;
	print_message("%s\n", problem);
}

void engines_open(struct gpu_fixture *fixture)
{
	struct gpu_problem problem;

	*fixture = (struct gpu_fixture){ 0 };
	gpus_find(&fixture->gpus);
	assert_true(fixture->gpus.count > 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct gpu_engine_config config = { .gpus = &fixture->gpus,
							  .failed = note_failure,
							  .context = fixture };
		int r = gpu_engine_new(&config, &problem, &fixture->engines[i]);

		if (r < 0)
			print_message("%s\n", problem.text);
		assert_int_equal(r, 0);
	}
}

unsigned char *host_new(size_t bytes)
{
	unsigned char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(base != MAP_FAILED);
	return base;
}

void host_fill(unsigned char *bytes, size_t count, unsigned seed)
{
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (unsigned char)(seed >> 24);
	}
}

void expect_round(struct gpu_engine *engine, unsigned char *host, driver_address memory, size_t bytes,
		  unsigned seed)
{
	unsigned char *in = host, *out = host + bytes + 1;

	host_fill(in, bytes, seed);
	memset(out, 0, bytes + 1);
	assert_int_equal(gpu_copy_now(engine, GPU_FROM_HOST, memory, host_address(in), bytes), 0);
	assert_int_equal(gpu_copy_now(engine, GPU_TO_HOST, host_address(out), memory, bytes), 0);
	assert_memory_equal(in, out, bytes);
	assert_int_equal(out[bytes], 0);
}

/* By the driver's refusal to register it twice. */
bool is_pinned(void *page)
{
	int error;

	hardware_enter();
	error = hardware_driver.host_register(page, 4096, DRIVER_PORTABLE);
	if (error == DRIVER_DONE)
		hardware_expect(hardware_driver.host_unregister(page));
	else
		assert_int_equal(error, DRIVER_ALREADY_REGISTERED);
	return error != DRIVER_DONE;
}
