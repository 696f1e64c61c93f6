#include "client/tierctl/plan.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/size.h"

#define MAXIMUM_BUFFERS 64

/* Gathered units in host memory, where parameters live on NVMe: one in use, the next ones on their way. */
#define WINDOW_UNITS 4

#define DAY_MS 86400000
/* Of a job whose optimizer's state is in host memory, which says nothing of its durability. */
#define COMMIT_MS 60000
#define MOST_COMMIT_SECONDS 86400

int plan_check(const struct plan_model *model)
{
	if (model->parameters == 0 || model->world_size == 0 || model->local_ranks == 0 ||
	    model->local_ranks > model->world_size || model->micro_batches == 0 || model->largest_unit == 0 ||
	    model->largest_unit > model->parameters || model->gradient_buffers == 0)
		return -EINVAL;
	if (model->parameters > PLAN_MAX_PARAMETERS || model->world_size > PLAN_MAX_RANKS ||
	    model->micro_batches > PLAN_MAX_MICRO_BATCHES || model->frozen_bytes > PLAN_MAX_FROZEN_BYTES ||
	    model->gradient_buffers > MAXIMUM_BUFFERS || model->snapshots > PLAN_MAX_SNAPSHOTS)
		return -ERANGE;
	return 0;
}

/* With the optimizer none, owners write masters where the sums are. */
static bool has_sums(const struct plan_model *model)
{
	return !model->is_pushed_once || model->world_size > 1 || strcmp(model->optimizer, "none") == 0;
}

struct plan_layout plan_layout(const struct plan_model *model)
{
	static const unsigned parameters[] = { [PLAN_BF16] = 2, [PLAN_FP16] = 2, [PLAN_FP32] = 4 };
	static const unsigned masters[] = { [PLAN_BF16] = 2, [PLAN_FP16] = 4, [PLAN_FP32] = 0 };
	static const double moments[] = {
		[PLAN_MOMENTS_FP32] = 4, [PLAN_MOMENTS_BF16] = 2, [PLAN_MOMENTS_INT8] = 260.0 / 256
	};

	return (struct plan_layout){ .parameter = parameters[model->format],
				     .gradient = has_sums(model) ? 4 : parameters[model->format],
				     .optimizer = masters[model->format] +
						  moments[model->moments] * model->slots };
}

static const char *const format_names[] = {
	[PLAN_BF16] = "bf16", [PLAN_FP16] = "fp16", [PLAN_FP32] = "fp32"
};

const char *plan_format_name(enum plan_format format)
{
	return format_names[format];
}

int plan_set_format(struct plan_model *model, const char *name)
{
	for (size_t i = 0; i < ARRAY_LENGTH(format_names); i++)
		if (strcmp(format_names[i], name) == 0) {
			model->format = (enum plan_format)i;
			return 0;
		}
	return -EINVAL;
}

int plan_set_optimizer(struct plan_model *model, const char *name)
{
	static const struct {
		const char *name;
		unsigned slots;
	} optimizers[] = {
		{ "adamw", 2 }, { "adam", 2 }, { "lion", 1 }, { "momentum", 1 }, { "none", 0 }, { "sgd", 0 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++)
		if (strcmp(optimizers[i].name, name) == 0) {
			model->optimizer = optimizers[i].name;
			model->slots = optimizers[i].slots;
			return 0;
		}
	return -EINVAL;
}

static const char *const moments_names[] = {
	[PLAN_MOMENTS_FP32] = "fp32", [PLAN_MOMENTS_BF16] = "bf16", [PLAN_MOMENTS_INT8] = "int8"
};

const char *plan_moments_name(enum plan_moments moments)
{
	return moments_names[moments];
}

int plan_set_moments(struct plan_model *model, const char *name)
{
	for (size_t i = 0; i < ARRAY_LENGTH(moments_names); i++)
		if (strcmp(moments_names[i], name) == 0) {
			model->moments = (enum plan_moments)i;
			return 0;
		}
	return -EINVAL;
}

int plan_set_durability(struct plan_model *model, const char *text, bool *ret_is_durable)
{
	uint64_t seconds = 0;

	*ret_is_durable = strcmp(text, "none") != 0;
	if (!*ret_is_durable)
		return 0;
	if (strcmp(text, "step") == 0) {
		/* No step is shorter. */
		model->commit_ms = 1;
		return 0;
	}
	if (plan_parse_count(text, &seconds) < 0 || seconds == 0 || seconds > MOST_COMMIT_SECONDS)
		return -EINVAL;
	model->commit_ms = seconds * 1000;
	return 0;
}

int plan_set_gradients(struct plan_model *model, const char *place)
{
	model->is_gradient_nvme = strcmp(place, "nvme") == 0;
	return model->is_gradient_nvme || strcmp(place, "host") == 0 ? 0 : -EINVAL;
}

static uint64_t bytes_of(uint64_t parameters, double each)
{
	return (uint64_t)((double)parameters * each);
}

static uint64_t part(const struct plan_model *model, uint64_t bytes, bool is_partitioned)
{
	return is_partitioned ? size_divide_up(bytes, model->world_size) : bytes;
}

/* All that is gathered. */
static uint64_t parameter_bytes(const struct plan_model *model)
{
	return bytes_of(model->parameters, plan_layout(model).parameter) + model->frozen_bytes;
}

struct plan_memory plan_memory(const struct plan_model *model, unsigned stage)
{
	struct plan_layout layout = plan_layout(model);
	struct plan_memory memory = {
		.parameters = part(model, parameter_bytes(model), stage >= 3),
		.gradients = part(model, bytes_of(model->parameters, layout.gradient), stage >= 2),
		.optimizer = part(model, bytes_of(model->parameters, layout.optimizer), stage >= 1),
	};

	memory.total = memory.parameters + memory.gradients + memory.optimizer;
	return memory;
}

uint64_t plan_communication(const struct plan_model *model, unsigned stage)
{
	uint64_t micro_batches = model->micro_batches;

	if (stage <= 1)
		return 2 * model->parameters;
	if (stage == 2)
		return (micro_batches + 1) * model->parameters;
	return 3 * micro_batches * model->parameters;
}

/* The shards of this node's ranks. */
static uint64_t local_part(const struct plan_model *model, uint64_t bytes, bool is_partitioned)
{
	if (!is_partitioned || model->local_ranks == model->world_size)
		return bytes;
	return part(model, bytes, true) * model->local_ranks;
}

static uint64_t parameters_on_host(const struct plan_model *model, unsigned stage, bool is_nvme)
{
	uint64_t all = parameter_bytes(model);
	uint64_t frozen = size_divide_up(model->frozen_bytes, model->parameters / model->largest_unit);
	uint64_t window =
		WINDOW_UNITS * (bytes_of(model->largest_unit, plan_layout(model).parameter) + frozen);
	uint64_t local = local_part(model, all, stage >= 3);

	/* Shards are gathered in place, so the window never makes more than all of them. */
	if (is_nvme)
		return window < all ? window : all;
	return local + window < all ? local + window : all;
}

/* At stages 0 and 1 the sum of each rank's micro-batches stays apart until the step. */
static uint64_t gradients_on_host(const struct plan_model *model, unsigned stage, bool is_nvme)
{
	uint64_t all = bytes_of(model->parameters, plan_layout(model).gradient);
	uint64_t least = bytes_of(model->largest_unit, plan_layout(model).gradient);
	uint64_t local = stage >= 2 ? local_part(model, all, true) : all * model->local_ranks;

	return is_nvme && least < local ? least : local;
}

int plan_place(const struct plan_model *model, unsigned stage, bool is_parameter_nvme, bool is_optimizer_nvme,
	       struct plan_place *ret_place)
{
	struct plan_layout layout = plan_layout(model);
	uint64_t parameters = local_part(model, bytes_of(model->parameters, layout.parameter), stage >= 3);
	uint64_t frozen = local_part(model, model->frozen_bytes, stage >= 3);
	uint64_t optimizer = local_part(model, bytes_of(model->parameters, layout.optimizer), stage >= 1);
	uint64_t gradients = local_part(model, bytes_of(model->parameters, layout.gradient), true);
	struct plan_place place = {
		.is_parameter_nvme = is_parameter_nvme,
		.is_optimizer_nvme = is_optimizer_nvme,
		.is_gradient_nvme = model->is_gradient_nvme && stage >= 2,
	};

	if (is_parameter_nvme && stage < 3)
		return -EINVAL;
	place.parameters_host = parameters_on_host(model, stage, is_parameter_nvme);
	place.gradients_host = gradients_on_host(model, stage, place.is_gradient_nvme);
	place.optimizer_host = is_optimizer_nvme ? 0 : optimizer;
	place.buffers_host = bytes_of(model->largest_unit, layout.parameter) * model->gradient_buffers *
			     model->local_ranks;
	place.host_bytes =
		place.parameters_host + place.gradients_host + place.optimizer_host + place.buffers_host;
	place.nvme_bytes = (is_parameter_nvme || model->is_durable ? frozen : 0) +
			   (2 + (model->is_durable ? model->snapshots : 0)) *
				   ((is_parameter_nvme || model->is_durable ? parameters : 0) +
				    (is_optimizer_nvme || model->is_durable ? optimizer : 0)) +
			   (place.is_gradient_nvme ? gradients : 0);
	*ret_place = place;
	return 0;
}

struct plan_traffic plan_traffic(const struct plan_model *model, const struct plan_place *place)
{
	struct plan_layout layout = plan_layout(model);
	double gathered = (double)size_divide_up(parameter_bytes(model), model->parameters);
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
		.gather_read = place->is_parameter_nvme ? 2 * gathered * model->micro_batches : 0,
	};
}

/* As the daemon counts, which does not know how many micro-batches a step will have. */
static double moved_bytes(const struct plan_model *model, const struct plan_place *place)
{
	struct plan_traffic traffic = plan_traffic(model, place);

	return traffic.update_read + traffic.update_written + traffic.gather_read / model->micro_batches;
}

int plan_choose(const struct plan_model *model, unsigned stage, uint64_t host_bytes, uint64_t nvme_bytes,
		struct plan_place *ret_place)
{
	struct plan_place place, best;
	bool has_best = false;

	for (unsigned choice = 0; choice < 4; choice++) {
		if (plan_place(model, stage, choice & 2, choice & 1, &place) < 0 ||
		    place.host_bytes > host_bytes || place.nvme_bytes > nvme_bytes)
			continue;
		if (has_best && moved_bytes(model, &place) >= moved_bytes(model, &best))
			continue;
		best = place;
		has_best = true;
	}
	if (has_best)
		*ret_place = best;
	return has_best ? 0 : -ENOSPC;
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

/* What a commit writes of a parameter: what the updates before it have left in host memory alone. */
static double committed_bytes(const struct plan_model *model, const struct plan_place *place)
{
	struct plan_layout layout = plan_layout(model);

	if (!model->is_durable || place->is_optimizer_nvme)
		return 0;
	return layout.optimizer + (place->is_parameter_nvme ? 0 : layout.parameter);
}

double plan_written_per_day(const struct plan_model *model, unsigned stage, const struct plan_place *place,
			    uint64_t step_ms)
{
	struct plan_traffic traffic = plan_traffic(model, place);
	double here = (double)local_part(model, model->parameters, stage >= 1);
	uint64_t interval_ms = model->commit_ms ? model->commit_ms : COMMIT_MS;
	double commit_ms = (double)(step_ms > interval_ms ? step_ms : interval_ms);

	return (traffic.update_written + traffic.gradient_written) * here * DAY_MS / (double)step_ms +
	       committed_bytes(model, place) * here * DAY_MS / commit_ms;
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
