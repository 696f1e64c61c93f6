#include "client/tierctl/plan.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "proto/vocabulary.h"

#define DAY_MS 86400000
/* The daemon's default between two commits of state in host memory. */
#define COMMIT_MS 60000

/* ---- Names ---- */

static const char *const format_names[] = {
	[PLAN_BF16] = "bf16", [PLAN_FP16] = "fp16", [PLAN_FP32] = "fp32"
};
static const char *const moments_names[] = {
	[PLAN_MOMENTS_FP32] = "fp32", [PLAN_MOMENTS_BF16] = "bf16", [PLAN_MOMENTS_INT8] = "int8"
};

static const struct plan_optimizer optimizers[] = {
	{ "adamw", OPTIMIZER_ADAMW, false, 2 }, { "adam", OPTIMIZER_ADAM, false, 2 },
	{ "lion", OPTIMIZER_LION, false, 1 },	{ "momentum", OPTIMIZER_SGD, true, 1 },
	{ "none", OPTIMIZER_NONE, false, 0 },	{ "sgd", OPTIMIZER_SGD, false, 0 },
};

const struct plan_optimizer *plan_find_optimizer(const char *name)
{
	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++)
		if (strcmp(optimizers[i].name, name) == 0)
			return &optimizers[i];
	return NULL;
}

const struct plan_optimizer *plan_optimizer_of(uint32_t kind, bool has_momentum)
{
	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++)
		if (optimizers[i].kind == kind &&
		    (kind != OPTIMIZER_SGD || optimizers[i].has_momentum == has_momentum))
			return &optimizers[i];
	return NULL;
}

static void add_name(char text[PLAN_FORMAT_TEXT], const char *name, bool is_there)
{
	size_t length = strlen(text);

	if (is_there)
		snprintf(text + length, PLAN_FORMAT_TEXT - length, "%s%s", length ? ", " : "", name);
}

const char *plan_formats(const struct plan_model *model, char text[PLAN_FORMAT_TEXT])
{
	text[0] = '\0';
	for (unsigned i = 0; i < PLAN_FORMATS; i++)
		add_name(text, format_names[i],
			 model->elements[i][0] + model->elements[i][1] + model->elements[i][2] > 0);
	return text;
}

const char *plan_moments(const struct plan_model *model, char text[PLAN_FORMAT_TEXT])
{
	text[0] = '\0';
	for (unsigned i = 0; i < PLAN_MOMENTS; i++)
		add_name(text, moments_names[i],
			 model->elements[0][i] + model->elements[1][i] + model->elements[2][i] > 0);
	return text;
}

/* ---- Memory ---- */

uint64_t plan_parameters(const struct plan_model *model)
{
	uint64_t parameters = 0;

	for (unsigned i = 0; i < PLAN_FORMATS * PLAN_MOMENTS; i++)
		parameters += model->elements[i / PLAN_MOMENTS][i % PLAN_MOMENTS];
	return parameters;
}

/* With the optimizer none, owners write masters where the sums are. */
static bool has_sums(const struct plan_model *model)
{
	return !model->is_pushed_once || model->world_size > 1 || model->optimizer->kind == OPTIMIZER_NONE;
}

/* The bytes of all parameters together. */
static struct plan_layout whole_layout(const struct plan_model *model)
{
	static const unsigned parameters[] = { [PLAN_BF16] = 2, [PLAN_FP16] = 2, [PLAN_FP32] = 4 };
	static const unsigned masters[] = { [PLAN_BF16] = 2, [PLAN_FP16] = 4, [PLAN_FP32] = 0 };
	static const double moments[] = {
		[PLAN_MOMENTS_FP32] = 4, [PLAN_MOMENTS_BF16] = 2, [PLAN_MOMENTS_INT8] = 260.0 / 256
	};
	struct plan_layout all = { 0 };

	for (unsigned i = 0; i < PLAN_FORMATS * PLAN_MOMENTS; i++) {
		unsigned format = i / PLAN_MOMENTS, kept = i % PLAN_MOMENTS;
		double elements = (double)model->elements[format][kept];

		all.parameter += elements * parameters[format];
		all.gradient += elements * (has_sums(model) ? 4 : parameters[format]);
		all.optimizer += elements * (masters[format] + moments[kept] * model->optimizer->slots);
	}
	return all;
}

struct plan_layout plan_layout(const struct plan_model *model)
{
	struct plan_layout all = whole_layout(model);
	double parameters = (double)plan_parameters(model);

	if (parameters == 0)
		return (struct plan_layout){ 0 };
	return (struct plan_layout){ all.parameter / parameters, all.gradient / parameters,
				     all.optimizer / parameters };
}

static uint64_t part(const struct plan_model *model, uint64_t bytes, bool is_partitioned)
{
	return is_partitioned ? size_divide_up(bytes, model->world_size) : bytes;
}

struct plan_memory plan_memory(const struct plan_model *model, unsigned stage)
{
	struct plan_layout all = whole_layout(model);
	struct plan_memory memory = {
		.parameters = part(model, (uint64_t)all.parameter + model->frozen_bytes, stage >= 3),
		.gradients = part(model, (uint64_t)all.gradient, stage >= 2),
		.optimizer = part(model, (uint64_t)all.optimizer, stage >= 1),
	};

	memory.total = memory.parameters + memory.gradients + memory.optimizer;
	return memory;
}

/* ---- What moves ---- */

uint64_t plan_communication(const struct plan_model *model, unsigned stage)
{
	uint64_t parameters = plan_parameters(model), micro_batches = model->micro_batches;

	if (stage <= 1)
		return 2 * parameters;
	if (stage == 2)
		return (micro_batches + 1) * parameters;
	return 3 * micro_batches * parameters;
}

struct plan_traffic plan_traffic(const struct plan_model *model, const struct plan_place *place)
{
	struct plan_layout layout = plan_layout(model);
	uint64_t parameters = plan_parameters(model);
	double frozen = parameters ? (double)model->frozen_bytes / (double)parameters : 0;
	double sums = place->is_gradient_nvme ? layout.gradient * model->micro_batches : 0;
	double state = place->is_optimizer_nvme ? layout.optimizer : 0;
	/* Beside state on NVMe each step writes parameters as well; what is in host memory alone is written
	 * before a commit, however many steps that has. */
	bool is_written = place->is_parameter_nvme || (place->is_optimizer_nvme && model->is_durable);

	return (struct plan_traffic){
		.update_read = state + (place->is_parameter_nvme ? layout.parameter : 0),
		.update_written = state + (is_written ? layout.parameter : 0),
		.gradient_read = sums,
		.gradient_written = sums,
		.gather_read =
			place->is_parameter_nvme ? 2 * (layout.parameter + frozen) * model->micro_batches : 0,
	};
}

/* The bytes of a parameter that a commit writes: the updates before it have left them in host memory alone.
 */
static double committed_bytes(const struct plan_model *model, const struct plan_place *place)
{
	struct plan_layout layout = plan_layout(model);

	if (!model->is_durable || place->is_optimizer_nvme)
		return 0;
	return layout.optimizer + (place->is_parameter_nvme ? 0 : layout.parameter);
}

double plan_written_per_day(const struct plan_model *model, const struct plan_place *place, uint64_t step_ms)
{
	struct plan_traffic traffic = plan_traffic(model, place);
	double parameters = (double)plan_parameters(model);
	uint64_t interval_ms = model->commit_ms ? model->commit_ms : COMMIT_MS;
	double commit_ms = (double)(step_ms > interval_ms ? step_ms : interval_ms);

	return (traffic.update_written + traffic.gradient_written) * parameters * DAY_MS / (double)step_ms +
	       committed_bytes(model, place) * parameters * DAY_MS / commit_ms;
}

/* ---- Words ---- */

int plan_parse_durability(const char *text, uint32_t *ret_durability)
{
	uint64_t seconds = 0;

	if (strcmp(text, "none") == 0)
		*ret_durability = DURABILITY_NONE;
	else if (strcmp(text, "step") == 0)
		*ret_durability = DURABILITY_STEP;
	else if (plan_parse_count(text, &seconds) == 0 && seconds > 0 && seconds <= DURABILITY_MOST_SECONDS)
		*ret_durability = (uint32_t)seconds;
	else
		return -EINVAL;
	return 0;
}

uint64_t plan_commit_ms(uint32_t durability)
{
	/* No step is shorter. */
	return durability == DURABILITY_STEP   ? 1
	       : durability == DURABILITY_NONE ? 0
					       : durability * UINT64_C(1000);
}

static uint64_t unit_of(char suffix)
{
	switch (toupper((unsigned char)suffix)) {
	case 'K':
		return 1000;
	case 'M':
		return 1000 * 1000;
	case 'B':
	case 'G':
		return 1000 * 1000 * 1000;
	case 'T':
		return UINT64_C(1000) * 1000 * 1000 * 1000;
	default:
		return 0;
	}
}

/* Digits after the point count in the unit: "1.5B" is 15 units of 10^8. */
int plan_parse_count(const char *text, uint64_t *ret_count)
{
	uint64_t count = 0, unit;
	unsigned digits = 0, decimals = 0;
	bool has_point = false;

	for (; isdigit((unsigned char)*text) || (*text == '.' && !has_point); text++) {
		if (*text == '.') {
			has_point = true;
			continue;
		}
		if (!size_multiply(count, 10, &count) || !size_add(count, (uint64_t)(*text - '0'), &count))
			return -ERANGE;
		digits++;
		decimals += has_point;
	}
	unit = *text ? unit_of(*text++) : 1;
	if (digits == 0 || *text != '\0' || unit == 0)
		return -EINVAL;
	for (; decimals > 0; decimals--, unit /= 10)
		if (unit % 10 != 0)
			return -EINVAL;
	if (!size_multiply(count, unit, &count))
		return -ERANGE;
	*ret_count = count;
	return 0;
}

int plan_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	char digits[24];
	size_t length = strspn(text, "0123456789");
	uint64_t number;
	int r;

	if (length == 0 || length >= sizeof(digits) || (text[length] != '\0' && text[length + 1] != '\0'))
		return -EINVAL;
	memcpy(digits, text, length);
	digits[length] = '\0';
	r = plan_parse_count(digits, &number);
	if (r < 0)
		return r;
	if (text[length] != '\0') {
		suffix = strchr(suffixes, toupper((unsigned char)text[length]));
		if (!suffix)
			return -EINVAL;
		if (!size_multiply(number, UINT64_C(1) << 10 * (suffix - suffixes + 1), &number))
			return -ERANGE;
	}
	*ret_bytes = number;
	return 0;
}
