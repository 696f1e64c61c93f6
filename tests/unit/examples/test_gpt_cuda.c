/* The layers that a GPU computes against those of the processors. A sum of a GPU's has another order; so what
 * is compared differs in its last bits, and with 16 bits in the format's. */
#include "tests/unit/gpt_support.h"

#include <math.h>
#include <stdio.h>

#include "examples/gpt/cuda/device.h"
#include "random.h"

#include "tests/unit/gpt_kernels.h"

/* Of the largest value of an array. */
#define EXACT 2e-6
#define CLOSE 3e-5
#define CLOSE_16 4e-2

/* ---- One function after the other ---- */

/* A context of each, of rows that are no multiple of a chunk, and columns that are none of a warp. */
#define WIDTH 48
#define LENGTH 43
#define BATCH 3
#define ROWS ((size_t)BATCH * LENGTH)
#define ELEMENTS (ROWS * WIDTH)

static struct {
	struct compute processors, *gpu;
	struct team *team;
	struct model *model;
	struct layer_context contexts[2]; /* of the processors, of the GPU */
} sides;

static struct compute *side(unsigned which)
{
	return which == 0 ? &sides.processors : sides.gpu;
}

static void *place(unsigned which, const void *values, size_t bytes)
{
	void *memory;

	assert_int_equal(side(which)->ops->allocate(side(which), (bytes + 63) / 64 * 64, &memory), 0);
	assert_int_equal(side(which)->ops->upload(side(which), memory, values, bytes), 0);
	return memory;
}

/* The caller frees them. */
static float *randoms(uint64_t key, size_t count)
{
	float *values = malloc(count * sizeof(float));

	assert_non_null(values);
	for (size_t i = 0; i < count; i++)
		values[i] = random_normal(key, i);
	return values;
}

static int open_sides(void **state)
{
	const struct model_shape shape = { 1, WIDTH, 3, LENGTH, NUMBER_FP32 };

	assert_true(cuda_count() > 0);
	assert_int_equal(model_new(&shape, 1, &sides.model), 0);
	assert_int_equal(team_new(1, network_scratch_bytes(&shape), &sides.team), 0);
	sides.processors = processors(sides.team);
	assert_int_equal(cuda_new(0, &sides.gpu), 0);
	for (unsigned i = 0; i < 2; i++) {
		struct layer_context *context = &sides.contexts[i];
		float *zeros = calloc(4 * ELEMENTS, sizeof(float));

		*context = (struct layer_context){ .compute = side(i),
						   .team = sides.team,
						   .format = NUMBER_FP32,
						   .shape = { BATCH, LENGTH, WIDTH, 3 },
						   .rows = ROWS };
		assert_int_equal(side(i)->ops->prepare(side(i), sides.model, context), 0);
		context->normal = place(i, zeros, ELEMENTS * sizeof(float));
		context->normal_gradient = place(i, zeros, ELEMENTS * sizeof(float));
		context->activation = place(i, zeros, ELEMENTS * sizeof(float));
		context->mean = place(i, zeros, ROWS * sizeof(float));
		context->inverse_deviation = place(i, zeros, ROWS * sizeof(float));
		free(zeros);
	}
	return 0;
}

static int close_sides(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct layer_context *context = &sides.contexts[i];

		side(i)->ops->free(side(i), context->normal);
		side(i)->ops->free(side(i), context->normal_gradient);
		side(i)->ops->free(side(i), context->activation);
		side(i)->ops->free(side(i), context->mean);
		side(i)->ops->free(side(i), context->inverse_deviation);
	}
	sides.gpu = cuda_free(sides.gpu);
	sides.team = team_free(sides.team);
	sides.model = model_free(sides.model);
	return 0;
}

static double largest(const float *values, size_t count)
{
	double found = 1e-30;

	for (size_t i = 0; i < count; i++)
		found = fabs((double)values[i]) > found ? fabs((double)values[i]) : found;
	return found;
}

static void compare(const char *what, const float *expected, const float *found, size_t count,
		    double tolerance)
{
	double bound = tolerance * largest(expected, count);

	for (size_t i = 0; i < count; i++)
		if (!(fabs((double)expected[i] - (double)found[i]) <= bound))
			fail_msg("%s, element %zu: %.9g on the GPU, %.9g on the processors", what, i,
				 (double)found[i], (double)expected[i]);
}

static void compare_places(const char *what, float *const places[2], size_t count, double tolerance)
{
	float *values[2];

	for (unsigned i = 0; i < 2; i++) {
		values[i] = malloc(count * sizeof(float));
		assert_int_equal(side(i)->ops->download(side(i), values[i], places[i], count * sizeof(float)),
				 0);
	}
	compare(what, values[0], values[1], count, tolerance);
	free(values[0]);
	free(values[1]);
}

/* The same random numbers on both sides. */
static void place_both(uint64_t key, size_t count, float *ret_places[2])
{
	float *values = randoms(key, count);

	for (unsigned i = 0; i < 2; i++)
		ret_places[i] = place(i, values, count * sizeof(float));
	free(values);
}

static void free_both(float *places[2])
{
	for (unsigned i = 0; i < 2; i++)
		side(i)->ops->free(side(i), places[i]);
}

static void a_norm_and_its_gradients_are_those_of_the_processors(void **state)
{
	float *x[2], *weight[2], *bias[2], *y[2], *dy[2], *dx[2], *dweight[2], *dbias[2];

	place_both(1, ELEMENTS, x);
	place_both(2, WIDTH, weight);
	place_both(3, WIDTH, bias);
	place_both(4, ELEMENTS, y);
	place_both(5, ELEMENTS, dy);
	place_both(6, ELEMENTS, dx);
	place_both(7, WIDTH, dweight);
	place_both(8, WIDTH, dbias);
	for (unsigned i = 0; i < 2; i++) {
		side(i)->ops->norm(&sides.contexts[i], x[i], weight[i], bias[i], y[i]);
		side(i)->ops->norm_backward(&sides.contexts[i], x[i], weight[i], dy[i], dx[i], dweight[i],
					    dbias[i]);
	}
	compare_places("y", y, ELEMENTS, EXACT);
	compare_places("x's gradient", dx, ELEMENTS, EXACT);
	compare_places("weight's gradient", dweight, WIDTH, EXACT);
	compare_places("bias's gradient", dbias, WIDTH, EXACT);
	free_both(x);
	free_both(weight);
	free_both(bias);
	free_both(y);
	free_both(dy);
	free_both(dx);
	free_both(dweight);
	free_both(dbias);
}

static void the_ends_of_the_model_are_those_of_the_processors(void **state)
{
	size_t tokens = (size_t)MODEL_VOCABULARY * WIDTH, logits_count = ROWS * MODEL_VOCABULARY;
	uint8_t text[BATCH * (LENGTH + 1)];
	float *token[2], *position[2], *x[2], *logits[2], *losses[2], *dx[2], *head[2], *dtoken[2],
		*dposition[2];

	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)(random_at(9, i) % 40);
	place_both(1, tokens, token);
	place_both(2, LENGTH * WIDTH, position);
	place_both(3, ELEMENTS, x);
	place_both(4, logits_count, logits);
	place_both(5, ROWS, losses);
	place_both(6, ELEMENTS, dx);
	place_both(7, tokens, head);
	place_both(8, tokens, dtoken);
	place_both(9, LENGTH * WIDTH, dposition);
	for (unsigned i = 0; i < 2; i++) {
		const struct compute_ops *ops = side(i)->ops;
		struct layer_context *context = &sides.contexts[i];
		struct batch batch = { place(i, text, sizeof(text)), LENGTH };
		struct unit_view parameters = { { token[i], position[i] } };
		struct unit_view gradients = { { dtoken[i], dposition[i] } };

		ops->embedding_forward(context, &parameters, &batch, x[i]);
		ops->head_forward(context, &parameters, x[i], logits[i]);
		ops->head_loss(context, &batch, 8.0f, logits[i], losses[i]);
		ops->head_backward(context, &parameters, x[i], logits[i], dx[i], head[i]);
		ops->embedding_backward(context, &batch, dx[i], head[i], &gradients);
		side(i)->ops->free(side(i), (void *)batch.bytes);
	}
	compare_places("x", x, ELEMENTS, 0);
	compare_places("losses", losses, ROWS, EXACT);
	compare_places("the logits' gradient", logits, logits_count, EXACT);
	compare_places("x's gradient", dx, ELEMENTS, CLOSE);
	compare_places("the tokens' gradient", dtoken, tokens, CLOSE);
	compare_places("the positions' gradient", dposition, LENGTH * WIDTH, CLOSE);
	free_both(token);
	free_both(position);
	free_both(x);
	free_both(logits);
	free_both(losses);
	free_both(dx);
	free_both(head);
	free_both(dtoken);
	free_both(dposition);
}

/* ---- The whole model ---- */

/* Plain memory, whose gradients are caught where they would be summed. */
struct catcher {
	struct backend backend;
	struct backend *plain;
	const struct model *model;
	float *gradients[8][MODEL_MAX_TENSORS];
	struct unit_view view;
};

static int catcher_gather(struct backend *backend, unsigned unit, struct unit_view *ret_parameters)
{
	return backend_gather(container_of(backend, struct catcher, backend)->plain, unit, ret_parameters);
}

static int catcher_release(struct backend *backend, unsigned unit)
{
	return 0;
}

static int catcher_gradients(struct backend *backend, unsigned unit, struct unit_view *ret_gradients)
{
	struct catcher *catcher = container_of(backend, struct catcher, backend);
	const struct unit *description = &catcher->model->units[unit];

	for (unsigned i = 0; i < description->tensor_count; i++)
		catcher->view.tensor[i] = malloc(tensor_elements(&description->tensors[i]) * sizeof(float));
	*ret_gradients = catcher->view;
	return 0;
}

static int catcher_push(struct backend *backend, unsigned unit)
{
	struct catcher *catcher = container_of(backend, struct catcher, backend);
	const struct unit *description = &catcher->model->units[unit];

	for (unsigned i = 0; i < description->tensor_count; i++) {
		const struct tensor *tensor = &description->tensors[i];
		float *values = malloc(tensor_elements(tensor) * sizeof(float));

		for (uint64_t j = 0; j < tensor_elements(tensor); j++)
			values[j] = number_load(catcher->view.tensor[i], tensor->format, j);
		free(catcher->view.tensor[i]);
		free(catcher->gradients[unit][i]);
		catcher->gradients[unit][i] = values;
	}
	return 0;
}

static const char *catcher_message(struct backend *backend)
{
	return "";
}

static const struct backend_ops catcher_ops = {
	.gather = catcher_gather,
	.release = catcher_release,
	.gradients = catcher_gradients,
	.push = catcher_push,
	.message = catcher_message,
};

static void catch (struct catcher *catcher, const struct fixture *fixture, struct network *network,
		   double *ret_loss)
{
	uint8_t bytes[1024];

	*catcher = (struct catcher){
		.backend = { .ops = &catcher_ops, .options = &fixture->options, .loss_scale = 4.0f },
		.plain = fixture->backend,
		.model = fixture->model
	};
	fixture_bytes(fixture, 5, bytes);
	assert_int_equal(network_train(network, &catcher->backend, bytes, ret_loss), 0);
}

static void compare_gradients(const struct catcher *expected, const struct catcher *found, double tolerance)
{
	for (unsigned unit = 0; unit < expected->model->unit_count; unit++)
		for (unsigned i = 0; i < expected->model->units[unit].tensor_count; i++) {
			const struct tensor *tensor = &expected->model->units[unit].tensors[i];

			compare(tensor->name, expected->gradients[unit][i], found->gradients[unit][i],
				tensor_elements(tensor), tolerance);
		}
}

static void catcher_clear(struct catcher *catcher)
{
	for (unsigned unit = 0; unit < ARRAY_LENGTH(catcher->gradients); unit++)
		for (unsigned i = 0; i < MODEL_MAX_TENSORS; i++)
			free(catcher->gradients[unit][i]);
}

/* Larger values than those that training starts from, so that every part of the model matters. */
static void roughen(struct fixture *fixture)
{
	for (unsigned unit = 0; unit < fixture->model->unit_count; unit++)
		for (unsigned i = 0; i < fixture->model->units[unit].tensor_count; i++) {
			uint64_t elements = tensor_elements(&fixture->model->units[unit].tensors[i]);
			float *values = malloc(elements * sizeof(float));

			model_initial_values(fixture->model, unit, i, 0, elements, values);
			for (uint64_t j = 0; j < elements; j++)
				values[j] += 0.1f * random_normal(unit * 100 + i, j);
			assert_int_equal(
				fixture->backend->ops->write(fixture->backend, unit, i, 0, elements, values),
				0);
			free(values);
		}
}

struct sample {
	enum number_format format;
	bool keeps;
	double loss_tolerance, tolerance;
};

static void train_both_ways(void **state)
{
	const struct sample *sample = *state;
	struct options options = small_options();
	struct fixture fixture;
	struct compute *gpu;
	struct network *network;
	struct catcher catchers[3];
	double losses[3];

	options.format = sample->format;
	options.width = 48;
	options.heads = 3;
	options.context = 37;
	fixture_open(&fixture, &options);
	roughen(&fixture);
	assert_int_equal(cuda_new(0, &gpu), 0);
	assert_int_equal(network_new(fixture.model, options.batch, sample->keeps, gpu, &network), 0);
	catch (&catchers[0], &fixture, fixture.network, &losses[0]);
	catch (&catchers[1], &fixture, network, &losses[1]);
	catch (&catchers[2], &fixture, network, &losses[2]);
	if (fabs(losses[0] - losses[1]) > sample->loss_tolerance)
		fail_msg("loss %.9g on the GPU, %.9g on the processors", losses[1], losses[0]);
	compare_gradients(&catchers[0], &catchers[1], sample->tolerance);
	/* The same again: the same bits. */
	assert_true(losses[1] == losses[2]);
	compare_gradients(&catchers[1], &catchers[2], 0);
	for (unsigned i = 0; i < 3; i++)
		catcher_clear(&catchers[i]);
	network = network_free(network);
	gpu = cuda_free(gpu);
	fixture_close(&fixture);
}

static void a_prediction_on_a_gpu_is_that_of_the_processors(void **state)
{
	struct options options = small_options();
	float logits[2][MODEL_VOCABULARY];
	struct fixture fixture;
	struct compute *gpu;
	struct network *network;
	uint8_t bytes[1024];

	fixture_open(&fixture, &options);
	roughen(&fixture);
	fixture_bytes(&fixture, 5, bytes);
	assert_int_equal(cuda_new(0, &gpu), 0);
	assert_int_equal(network_new(fixture.model, options.batch, false, gpu, &network), 0);
	assert_int_equal(network_predict(fixture.network, fixture.backend, bytes, 7, logits[0]), 0);
	assert_int_equal(network_predict(network, fixture.backend, bytes, 7, logits[1]), 0);
	compare("logits", logits[0], logits[1], MODEL_VOCABULARY, CLOSE);
	network = network_free(network);
	gpu = cuda_free(gpu);
	fixture_close(&fixture);
}

int main(void)
{
	static struct sample fp32 = { NUMBER_FP32, false, 1e-5, CLOSE },
			     kept = { NUMBER_FP32, true, 1e-5, CLOSE };
	static struct sample bf16 = { NUMBER_BF16, false, 2e-2, CLOSE_16 };
	static struct sample fp16 = { NUMBER_FP16, false, 3e-3, CLOSE_16 / 4 };
	const char *why = gpt_place_find();
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_norm_and_its_gradients_are_those_of_the_processors,
						open_sides, close_sides),
		cmocka_unit_test_setup_teardown(the_ends_of_the_model_are_those_of_the_processors, open_sides,
						close_sides),
		{ "fp32_gradients_on_a_gpu_are_those_of_the_processors", train_both_ways, NULL, NULL, &fp32 },
		{ "kept_activations_on_a_gpu_make_the_same_gradients", train_both_ways, NULL, NULL, &kept },
		{ "bf16_gradients_on_a_gpu_are_close", train_both_ways, NULL, NULL, &bf16 },
		{ "fp16_gradients_on_a_gpu_are_close", train_both_ways, NULL, NULL, &fp16 },
		cmocka_unit_test(a_prediction_on_a_gpu_is_that_of_the_processors),
	};

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
