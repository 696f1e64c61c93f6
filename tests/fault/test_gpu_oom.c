/* Each allocation of a GPU engine fails in turn, until a run needs no more of them. */
#include <errno.h>
#include <sys/mman.h>

#include "tests/fault/alloc_fault.h"
#include "tests/unit/cuda/gpu_support.h"

/* Two registrations. */
#define PIN_BYTES (2 * GPU_PIN_BYTES)

static struct gpus gpus;
static void *host;

static int pin_and_unpin(struct gpu_engine *engine)
{
	struct gpu_pin pin;
	int r = gpu_pin_add_now(engine, &pin, host, PIN_BYTES);

	if (r < 0)
		assert_string_equal(pin.request.problem.text, "GPU 0 (stand-in): out of host memory");
	else
		assert_int_equal(gpu_pin_remove_now(engine, &pin), 0);
	assert_false(gpu_has_pinned(host));
	return r;
}

static int make(void)
{
	const struct gpu_engine_config config = { .gpus = &gpus };
	struct gpu_engine *engine = NULL;
	struct gpu_problem problem;
	int r = gpu_engine_new(&config, &problem, &engine);

	if (r < 0) {
		assert_null(engine);
		assert_string_equal(problem.text, "there is no host memory for a GPU engine");
		return r;
	}
	r = pin_and_unpin(engine);
	gpu_engine_free(engine);
	return r;
}

static void an_engine_survives(void **state)
{
	gpus_find(&gpus);
	host = mmap(NULL, PIN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		    0);
	assert_true(host != MAP_FAILED);
	assert_true(alloc_fault_each(make) >= 3);
	munmap(host, PIN_BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_engine_survives),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
