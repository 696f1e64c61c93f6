#include "tests/unit/gpt_support.h"

#include <math.h>

#include "random.h"

/* The gradients of one micro-batch, caught where they would be pushed. */
struct catcher {
	struct backend backend;
	struct backend *plain;
	float *gradients[8][MODEL_MAX_TENSORS]; /* of unit, tensor: summed over the pushes */
	struct unit_view view;
};

static struct catcher *catcher_of(struct backend *backend)
{
	return container_of(backend, struct catcher, backend);
}

static int catcher_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	return backend_gather(catcher_of(backend)->plain, unit, ret_parameters);
}

static int catcher_release(struct backend *backend, unsigned unit)
{
	return 0;
}

static int catcher_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	struct catcher *catcher = catcher_of(backend);

	for (unsigned i = 0; i < MODEL_MAX_TENSORS; i++)
		catcher->view.tensor[i] = calloc(64 * 1024, sizeof(float));
	*ret_gradients = catcher->view;
	return 0;
}

static int catcher_push(struct backend *backend, unsigned unit)
{
	struct catcher *catcher = catcher_of(backend);

	for (unsigned i = 0; i < MODEL_MAX_TENSORS; i++) {
		float *pushed = catcher->view.tensor[i];

		for (size_t j = 0; catcher->gradients[unit][i] && j < 64 * 1024; j++)
			pushed[j] += catcher->gradients[unit][i][j];
		free(catcher->gradients[unit][i]);
		catcher->gradients[unit][i] = pushed;
	}
	return 0;
}

static const struct backend_ops catcher_ops = {
	.gather = catcher_gather,
	.release = catcher_release,
	.gradients = catcher_gradients,
	.push = catcher_push,
};

static void catcher_clear(struct catcher *catcher)
{
	for (unsigned unit = 0; unit < ARRAY_LENGTH(catcher->gradients); unit++) {
		for (unsigned i = 0; i < MODEL_MAX_TENSORS; i++)
			free(catcher->gradients[unit][i]);
	}
}

static double loss_of(struct fixture *fixture, const uint8_t *bytes)
{
	double loss;

	assert_int_equal(network_evaluate(fixture->network, fixture->backend, bytes, &loss), 0);
	return loss;
}

/* Larger values than those that training starts from, so that every part of the model matters. */
static void roughen(struct fixture *fixture)
{
	for (unsigned unit = 0; unit < fixture->model->unit_count; unit++) {
		struct unit_view view;

		assert_int_equal(backend_gather(fixture->backend, unit, &view), 0);
		for (unsigned i = 0; i < fixture->model->units[unit].tensor_count; i++) {
			float *values = view.tensor[i];

			for (uint64_t j = 0; j < tensor_elements(&fixture->model->units[unit].tensors[i]);
			     j++)
				values[j] += 0.2f * random_normal(unit * 100 + i, j);
		}
	}
}

/* The gradient's length along a random direction, by the difference of two losses. */
static void check_tensor(struct fixture *fixture, const struct catcher *catcher, const uint8_t *bytes,
			 unsigned unit, unsigned tensor)
{
	uint64_t elements = tensor_elements(&fixture->model->units[unit].tensors[tensor]);
	const float *gradient = catcher->gradients[unit][tensor];
	const double step = 2e-3;
	double expected = 0.0, length = 0.0, losses[2];
	struct unit_view view;
	float *values;

	assert_int_equal(backend_gather(fixture->backend, unit, &view), 0);
	values = view.tensor[tensor];
	for (uint64_t i = 0; i < elements; i++)
		length += (double)gradient[i] * gradient[i];
	length = sqrt(length);
	assert_true(length > 0.0);
	/* Half along the gradient, half at random: both a wrong length and a wrong direction show. */
	for (int side = 0; side < 2; side++) {
		_cleanup_free_ float *saved = malloc(elements * sizeof(float));

		memcpy(saved, values, elements * sizeof(float));
		expected = 0.0;
		for (uint64_t i = 0; i < elements; i++) {
			double direction =
				gradient[i] / length + random_normal(unit, i) / sqrt((double)elements);

			values[i] = (float)(saved[i] + (side ? -step : step) * direction);
			expected += gradient[i] * direction;
		}
		losses[side] = loss_of(fixture, bytes);
		memcpy(values, saved, elements * sizeof(float));
	}
	double found = (losses[0] - losses[1]) / (2 * step);

	if (fabs(found - expected) > 0.01 * length)
		fail_msg("%s: by differences %g, by the backward pass %g, length %g",
			 fixture->model->units[unit].tensors[tensor].name, found, expected, length);
}

static void gradients_are_the_slopes_of_the_loss(void **state)
{
	struct options options = small_options();
	struct fixture fixture;
	struct catcher catcher = { .backend = {
					   .ops = &catcher_ops, .options = &options, .loss_scale = 1.0f } };
	uint8_t bytes[1024];
	double loss;

	fixture_open(&fixture, &options);
	roughen(&fixture);
	fixture_bytes(&fixture, 5, bytes);
	catcher.plain = fixture.backend;
	assert_int_equal(network_train(fixture.network, &catcher.backend, bytes, &loss), 0);
	for (unsigned unit = 0; unit < fixture.model->unit_count; unit++) {
		for (unsigned i = 0; i < fixture.model->units[unit].tensor_count; i++)
			check_tensor(&fixture, &catcher, bytes, unit, i);
	}
	catcher_clear(&catcher);
	fixture_close(&fixture);
}

static uint64_t hash_after_steps(const struct options *options)
{
	struct fixture fixture;
	uint64_t hash;

	fixture_open(&fixture, options);
	for (uint64_t i = 0; i < 3; i++) {
		fixture_train(&fixture, 2 * i);
		fixture_train(&fixture, 2 * i + 1);
		fixture_step(&fixture);
	}
	hash = fixture_hash(&fixture);
	fixture_close(&fixture);
	return hash;
}

static void every_number_of_threads_gives_the_same_bits(void **state)
{
	struct options options = small_options();
	uint64_t hash;

	options.format = NUMBER_BF16;
	hash = hash_after_steps(&options);
	for (options.threads = 2; options.threads <= 5; options.threads++)
		assert_true(hash_after_steps(&options) == hash);
}

static void kept_activations_give_the_same_bits_as_recomputed_ones(void **state)
{
	struct options options = small_options();
	uint64_t hash = hash_after_steps(&options);

	options.keep_activations = true;
	assert_true(hash_after_steps(&options) == hash);
}

static void another_seed_gives_other_bits(void **state)
{
	struct options options = small_options();
	uint64_t hash = hash_after_steps(&options);

	options.seed++;
	assert_true(hash_after_steps(&options) != hash);
}

static void the_loss_of_a_repeated_batch_falls(void **state)
{
	struct options options = small_options();
	struct fixture fixture;
	uint8_t bytes[1024];
	double before;

	options.format = NUMBER_BF16;
	fixture_open(&fixture, &options);
	fixture_bytes(&fixture, 300, bytes);
	before = loss_of(&fixture, bytes);
	for (int i = 0; i < 40; i++) {
		fixture_train(&fixture, 3);
		fixture_step(&fixture);
	}
	assert_true(fabs(before - log(256.0)) < 0.1);
	assert_true(loss_of(&fixture, bytes) < 0.7 * before);
	fixture_close(&fixture);
}

static void the_future_does_not_change_a_prediction(void **state)
{
	struct options options = small_options();
	struct fixture fixture;
	float first[MODEL_VOCABULARY], second[MODEL_VOCABULARY];
	uint8_t bytes[] = "one text";

	fixture_open(&fixture, &options);
	assert_int_equal(network_predict(fixture.network, fixture.backend, bytes, 3, first), 0);
	memset(bytes + 3, 'x', 5);
	assert_int_equal(network_predict(fixture.network, fixture.backend, bytes, 3, second), 0);
	assert_memory_equal(first, second, sizeof(first));
	bytes[0] = 'x';
	assert_int_equal(network_predict(fixture.network, fixture.backend, bytes, 3, second), 0);
	assert_memory_not_equal(first, second, sizeof(first));
	fixture_close(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_are_the_slopes_of_the_loss),
		cmocka_unit_test(every_number_of_threads_gives_the_same_bits),
		cmocka_unit_test(kept_activations_give_the_same_bits_as_recomputed_ones),
		cmocka_unit_test(another_seed_gives_other_bits),
		cmocka_unit_test(the_loss_of_a_repeated_batch_falls),
		cmocka_unit_test(the_future_does_not_change_a_prediction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
