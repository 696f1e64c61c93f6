#include "model_values.h"

#include <errno.h>
#include <string.h>

#include "crash_support.h"

struct tierd_reader *values_reader(struct tierd_node *node, const char *name, const char *snapshot)
{
	struct tierd_reader_options options = TIERD_READER_OPTIONS_INIT;
	struct tierd_reader *reader;

	options.name = name;
	options.snapshot = snapshot;
	OK(tierd_reader_open(node, &options, &reader));
	return reader;
}

static void *read_state(struct tierd_reader *reader, const struct kind *kind, const char *state,
			uint64_t bytes)
{
	uint32_t unit, tensor;
	void *values = malloc(bytes + 1);

	REQUIRE(values);
	OK(tierd_reader_find(reader, kind->name, &unit, &tensor));
	OK(tierd_reader_read(reader, unit, tensor, state, 0, kind_elements(kind), values));
	return values;
}

static float widen_half(uint16_t half)
{
	int exponent = half >> 10 & 31;
	float fraction = (float)(half & 0x3ff) / 1024;
	float value = exponent == 0 ? fraction / 16384 : (1 + fraction);

	REQUIRE(exponent < 31);
	for (int i = 15; exponent > 0 && i < exponent; i++)
		value *= 2;
	for (int i = exponent; exponent > 0 && i < 15; i++)
		value /= 2;
	return half & 0x8000 ? -value : value;
}

float *values_read_masters(struct tierd_reader *reader, const struct kind *kind)
{
	uint16_t *narrow;
	float *values;

	if (!kind->is_frozen)
		return read_state(reader, kind, "master", kind_elements(kind) * sizeof(float));
	if (kind->format == TIERD_FP32)
		return read_state(reader, kind, "parameter", kind_bytes(kind));
	narrow = read_state(reader, kind, "parameter", kind_bytes(kind));
	values = malloc(kind_elements(kind) * sizeof(float));
	REQUIRE(values);
	for (uint64_t i = 0; i < kind_elements(kind); i++) {
		uint32_t bits = (uint32_t)narrow[i] << 16;

		memcpy(&values[i], &bits, sizeof(bits));
		if (kind->format == TIERD_FP16)
			values[i] = widen_half(narrow[i]);
	}
	free(narrow);
	return values;
}

static const struct kind *find_kind(const struct model *model, const char *name)
{
	for (unsigned i = 0; i < model->count; i++) {
		const struct kind *kind = &model->kinds[i];

		if (strcmp(kind->name, name) == 0 || (kind->alias && strcmp(kind->alias, name) == 0))
			return kind;
	}
	REQUIRE(!"a name that is there");
	return NULL;
}

/* Of the source, what this tensor should have. */
static float *expected(struct tierd_reader *reader, const struct kind *kind)
{
	static const char *const parts[] = { "first", "middle", "last" };
	float *whole, *values;

	if (kind->rows == 0)
		return values_read_masters(reader, find_kind(&model_base, kind->name));
	whole = malloc(300 * 64 * sizeof(float));
	values = malloc(kind_elements(kind) * sizeof(float));
	REQUIRE(whole && values);
	for (unsigned i = 0; i < 3; i++) {
		float *part = values_read_masters(reader, find_kind(&model_base, parts[i]));

		memcpy(whole + i * 6400, part, 6400 * sizeof(float));
		free(part);
	}
	memcpy(values, whole + kind->row * 64, kind_elements(kind) * sizeof(float));
	free(whole);
	return values;
}

/* Rounded as masters are. */
static void require_parameters(struct tierd_reader *reader, const struct kind *kind, const float *masters)
{
	uint16_t *parameters;

	if (kind->format != TIERD_BF16)
		return;
	parameters = read_state(reader, kind, "parameter", kind_bytes(kind));
	for (uint64_t i = 0; i < kind_elements(kind); i++) {
		uint32_t bits;

		memcpy(&bits, &masters[i], sizeof(bits));
		REQUIRE(parameters[i] == (uint16_t)((bits + 0x8000) >> 16));
	}
	free(parameters);
}

static void require_tensor(struct tierd_reader *here, struct tierd_reader *there, const struct kind *kind)
{
	uint64_t bytes = kind_elements(kind) * (kind->format == TIERD_BYTES ? 1 : sizeof(float));
	void *own, *other_values;

	if (kind->format == TIERD_BYTES) {
		own = read_state(here, kind, "parameter", bytes);
		other_values = read_state(there, kind, "parameter", bytes);
	} else {
		own = values_read_masters(here, kind);
		other_values = expected(there, kind);
		require_parameters(here, kind, own);
	}
	if (memcmp(own, other_values, bytes) != 0) {
		fprintf(stderr, "tensor %s has other values than its source\n", kind->name);
		exit(1);
	}
	free(own);
	free(other_values);
}

void values_require(struct tierd_reader *here, struct tierd_reader *there, const struct model *model)
{
	for (unsigned i = 0; i < model->count; i++)
		require_tensor(here, there, &model->kinds[i]);
}

void values_require_state(struct tierd_reader *here, struct tierd_reader *there)
{
	static const char *const states[] = { "master", "m", "v" };

	for (unsigned i = 0; i < model_base.count; i++)
		for (unsigned k = 0; k < 3 && !model_base.kinds[i].is_frozen; k++) {
			const struct kind *kind = &model_base.kinds[i];
			uint64_t bytes = kind_elements(kind) * sizeof(float);
			void *own = read_state(here, kind, states[k], bytes);
			void *others = read_state(there, kind, states[k], bytes);

			if (memcmp(own, others, bytes) != 0) {
				fprintf(stderr, "tensor %s has another %s\n", kind->name, states[k]);
				exit(1);
			}
			free(own);
			free(others);
		}
}

/* ---- As a rank reads them ---- */

#define STATES 5
static const char *const states_kept[STATES] = { "parameter", "master", "m", "v", "momentum" };

/* The caller's; NULL: the optimizer keeps no such thing. */
static void *read_kept(struct tierd_job *job, const struct model *model, unsigned kind, unsigned state,
		       uint64_t *ret_bytes)
{
	struct place place = model_place(model, kind);
	uint64_t elements = kind_elements(&model->kinds[kind]);
	void *values = calloc(elements, sizeof(float));
	int r = tierd_tensor_read(job, place.unit, place.tensor, states_kept[state], 0, elements, values);

	REQUIRE(values && (r == 0 || r == -ENODATA || r == -EINVAL));
	*ret_bytes = state == 0 ? kind_bytes(&model->kinds[kind]) : elements * sizeof(float);
	if (r == 0)
		return values;
	free(values);
	return NULL;
}

void values_require_same(struct tierd_job *here, const struct model *model, struct tierd_job *there,
			 const struct model *other, const char *what)
{
	uint64_t bytes;

	for (unsigned kind = 0; kind < model->count; kind++)
		for (unsigned state = 0; state < STATES; state++) {
			void *own = read_kept(here, model, kind, state, &bytes);
			void *others = read_kept(there, other, kind, state, &bytes);

			REQUIRE(!own == !others);
			if (own && memcmp(own, others, bytes) != 0) {
				fprintf(stderr, "%s: other bits of %s of \"%s\"\n", what, states_kept[state],
					model->kinds[kind].name);
				exit(1);
			}
			free(own);
			free(others);
		}
}

void values_write(struct tierd_job *job, const struct model *model, const char *path)
{
	FILE *file = fopen(path, "w");
	uint64_t bytes;

	REQUIRE(file);
	for (unsigned kind = 0; kind < model->count; kind++)
		for (unsigned state = 0; state < STATES; state++) {
			void *values = read_kept(job, model, kind, state, &bytes);

			REQUIRE(!values || fwrite(values, bytes, 1, file) == 1);
			free(values);
		}
	REQUIRE(fclose(file) == 0);
}
