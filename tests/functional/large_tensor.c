/* A tensor of more than 2^31 elements, whose chunks, places and offsets no 32 bits count: each of its
 * elements is what it should be after a step, and once more under another daemon. large_tensor train|resume
 */
#include <string.h>

#include "crash_support.h"

#define ELEMENTS ((UINT64_C(1) << 31) + (UINT64_C(1) << 20) + 5)
#define RATE 0.5f
/* Small numbers, which both formats have, and no power of two after which they repeat. */
#define GRADIENTS 7

static float gradient_at(uint64_t i)
{
	return (float)(i % GRADIENTS) - 3;
}

static float expected_at(uint64_t i)
{
	return 1 - RATE * gradient_at(i);
}

static uint16_t bfloat16_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return (uint16_t)(bits >> 16);
}

static struct tierd_job *join(struct tierd_node *node)
{
	struct tierd_job_options options = support_options("large", 0, 1);
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_job *job;
	uint32_t unit;

	group.weight_decay = 0;
	options.optimizer = TIERD_SGD;
	options.group_count = 1;
	options.groups = &group;
	options.gradient_buffers = 1;
	options.gradient_placement = TIERD_PLACE_HOST;
	tensor.name = "w";
	tensor.dimensions = 1;
	tensor.shape[0] = ELEMENTS;
	tensor.initializer = TIERD_INITIALIZE_ONES;
	OK(tierd_job_open(node, &options, &job));
	OK(tierd_unit_define(job, "large", &tensor, 1, &unit));
	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void step(struct tierd_job *job)
{
	struct tierd_rates rates = support_rates(RATE);
	struct tierd_view view;
	uint16_t *gradients, values[GRADIENTS];

	for (unsigned i = 0; i < GRADIENTS; i++)
		values[i] = bfloat16_of(gradient_at(i));
	OK(tierd_gradients(job, 0, &view));
	gradients = (uint16_t *)(view.base + view.offsets[0]);
	for (uint64_t i = 0; i < ELEMENTS; i++)
		gradients[i] = values[i % GRADIENTS];
	OK(tierd_push(job, 0));
	OK(tierd_step(job, &rates, NULL));
}

static void check_parameters(struct tierd_job *job)
{
	struct tierd_view view;
	const uint16_t *parameters;
	uint16_t values[GRADIENTS];

	for (unsigned i = 0; i < GRADIENTS; i++)
		values[i] = bfloat16_of(expected_at(i));
	OK(tierd_gather(job, 0, &view));
	parameters = (const uint16_t *)(view.base + view.offsets[0]);
	for (uint64_t i = 0; i < ELEMENTS; i++)
		REQUIRE(parameters[i] == values[i % GRADIENTS]);
	OK(tierd_release(job, 0));
}

/* Around what 31 bits and 32 bits of bytes or elements can count, and at the end. */
static void check_masters(struct tierd_job *job)
{
	static const uint64_t places[] = { 0, UINT64_C(1) << 30, UINT64_C(1) << 31, ELEMENTS - 16 };
	float masters[32];

	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		uint64_t first = places[i] > 16 ? places[i] - 16 : 0;

		OK(tierd_tensor_read(job, 0, 0, "master", first, 32, masters));
		for (unsigned at = 0; at < 32; at++)
			REQUIRE(masters[at] == expected_at(first + at));
	}
}

int main(int argc, char **argv)
{
	struct tierd_node *node;
	struct tierd_job *job;

	REQUIRE(argc == 2);
	OK(tierd_connect(NULL, &node));
	job = join(node);
	if (strcmp(argv[1], "train") == 0)
		step(job);
	check_parameters(job);
	check_masters(job);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	return 0;
}
