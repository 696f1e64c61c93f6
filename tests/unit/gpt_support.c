#include "gpt_support.h"

#include "kernels.h"
#include "random.h"

struct options small_options(void)
{
	return (struct options){
		.layers = 2,
		.width = 32,
		.heads = 2,
		.context = 12,
		.format = NUMBER_FP32,
		.batch = 2,
		.micro_batches = 1,
		.steps = 10,
		.learning_rate = 1e-3,
		.clip = 1.0,
		.weight_decay = 0.1,
		.beta1 = 0.9,
		.beta2 = 0.95,
		.loss_scale = 1.0,
		.seed = 7,
		.threads = 1,
		.is_plain = true,
		.stage = 3,
		.ranks = 1,
		.world_size = 1,
		.prompt = "",
	};
}

static void write_values(struct fixture *fixture)
{
	for (unsigned unit = 0; unit < fixture->model->unit_count; unit++) {
		for (unsigned i = 0; i < fixture->model->units[unit].tensor_count; i++) {
			uint64_t elements = tensor_elements(&fixture->model->units[unit].tensors[i]);
			_cleanup_free_ float *values = malloc(elements * sizeof(float));

			assert_non_null(values);
			model_initial_values(fixture->model, unit, i, 0, elements, values);
			assert_int_equal(
				fixture->backend->ops->write(fixture->backend, unit, i, 0, elements, values),
				0);
		}
	}
}

void fixture_open(struct fixture *fixture, const struct options *options)
{
	struct model_shape shape = { options->layers, options->width, options->heads, options->context,
				     (enum number_format)options->format };

	kernels_choose();
	*fixture = (struct fixture){ .options = *options };
	assert_int_equal(model_new(&shape, options->seed, &fixture->model), 0);
	assert_int_equal(team_new((unsigned)options->threads, network_scratch_bytes(&shape), &fixture->team),
			 0);
	fixture->compute = processors(fixture->team);
	assert_int_equal(network_new(fixture->model, options->batch, options->keep_activations,
				     &fixture->compute, &fixture->network),
			 0);
	assert_int_equal(
		plain_backend_new(&fixture->options, fixture->model, fixture->team, &fixture->backend), 0);
	write_values(fixture);
}

void fixture_close(struct fixture *fixture)
{
	fixture->backend = backend_free(fixture->backend);
	fixture->network = network_free(fixture->network);
	fixture->team = team_free(fixture->team);
	fixture->model = model_free(fixture->model);
}

void fixture_bytes(const struct fixture *fixture, uint64_t key, uint8_t *ret_bytes)
{
	for (uint64_t i = 0; i < fixture->options.batch * (fixture->options.context + 1); i++)
		ret_bytes[i] = (uint8_t)random_at(key, i);
}

void fixture_train(struct fixture *fixture, uint64_t key)
{
	uint8_t bytes[1024];
	double loss;

	for (unsigned rank = 0; rank < fixture->backend->ranks; rank++) {
		fixture->backend->acting_rank = rank;
		fixture_bytes(fixture, key * 100 + rank, bytes);
		assert_int_equal(network_train(fixture->network, fixture->backend, bytes, &loss), 0);
	}
}

struct backend_result fixture_step(struct fixture *fixture)
{
	struct backend_rates rates = { .learning_rate = 1e-3f, .gradient_scale = 1.0f, .loss_scale = 1.0f };
	struct backend_result result;

	assert_int_equal(backend_step(fixture->backend, &rates), 0);
	assert_int_equal(backend_wait(fixture->backend, &result), 0);
	return result;
}

static uint64_t hash_bytes(uint64_t hash, const uint8_t *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash;
}

uint64_t fixture_hash(const struct fixture *fixture)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (unsigned unit = 0; unit < fixture->model->unit_count; unit++) {
		for (unsigned i = 0; i < fixture->model->units[unit].tensor_count * STATE_COUNT; i++) {
			const struct tensor *tensor = &fixture->model->units[unit].tensors[i / STATE_COUNT];
			uint64_t elements = tensor_elements(tensor);
			_cleanup_free_ uint8_t *data = calloc(elements, sizeof(float));

			assert_non_null(data);
			assert_int_equal(fixture->backend->ops->read(fixture->backend, unit, i / STATE_COUNT,
								     i % STATE_COUNT, 0, elements, data),
					 0);
			hash = hash_bytes(hash, data, elements * sizeof(float));
		}
	}
	return hash;
}
