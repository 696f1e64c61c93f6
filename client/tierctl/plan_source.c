#include "client/tierctl/plan_source.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "client/tierctl/choice.h"
#include "client/tierctl/model_path.h"
#include "client/tierctl/plan_ask.h"
#include "client/tierctl/plan_units.h"

/* ---- A job ---- */

/* A reply may end within a unit. */
static int take_unit(const Tierd__Wire__ReaderUnit *unit, bool is_begun, Tierd__Wire__PlanRequest *request)
{
	int r = is_begun ? 0 : plan_units_add(request, unit->name);

	for (size_t i = 0; i < unit->n_tensors && r == 0; i++) {
		const Tierd__Wire__Tensor *wire = unit->tensors[i];
		struct tierd_tensor tensor = TIERD_TENSOR_INIT;

		tensor.name = wire->name;
		tensor.alias = wire->alias;
		tensor.format = wire->format;
		tensor.group = wire->group;
		tensor.is_frozen = wire->is_frozen;
		tensor.slice_of = wire->slice_of;
		tensor.dtype = wire->dtype;
		tensor.gradient_format = wire->gradient_format;
		tensor.slice_row = wire->slice_row;
		tensor.slice_rows = wire->slice_rows;
		tensor.dimensions = (uint32_t)wire->n_shape;
		if (wire->n_shape > TIERD_MAX_DIMENSIONS)
			return -EPROTO;
		if (wire->n_shape > 0)
			memcpy(tensor.shape, wire->shape, wire->n_shape * sizeof(uint64_t));
		r = plan_units_add_tensor(request, &tensor);
	}
	return r;
}

/* Where the next reply begins; without units: there are no more. */
static int take_reply(const Tierd__Wire__ReaderUnitsReply *reply, Tierd__Wire__TensorsRead *read,
		      Tierd__Wire__PlanRequest *request)
{
	int r = 0;

	for (size_t i = 0; i < reply->n_units && r == 0; i++) {
		const Tierd__Wire__ReaderUnit *unit = reply->units[i];

		r = take_unit(unit, read->tensor > 0, request);
		read->tensor += (uint32_t)unit->n_tensors;
		if (request->n_units > PLAN_MAX_UNITS ||
		    (read->tensor < unit->tensor_count && (unit->n_tensors == 0 || i + 1 < reply->n_units)))
			return -EPROTO;
		if (read->tensor >= unit->tensor_count) {
			read->unit++;
			read->tensor = 0;
		}
	}
	return r;
}

/* What a plan divides by, and looks up. */
static bool can_be_planned(const Tierd__Wire__JobOpen *options)
{
	return options && options->world_size > 0 && options->world_size <= PLAN_MAX_RANKS &&
	       plan_optimizer_of(options->optimizer, false);
}

static int read_pages(struct ask *ask, Tierd__Wire__TensorsRead *read, Tierd__Wire__PlanRequest *request,
		      Tierd__Wire__JobOpen **ret_open)
{
	const Tierd__Wire__Reply *reply;
	int r = 0, code;

	do {
		code = command_ask_for(ask, WIRE_REQUEST(TENSORS_READ, tensors_read, read),
				       TIERD__WIRE__REPLY__BODY_READER_UNITS, &reply);
		if (code != COMMAND_DONE)
			return code;
		if (!can_be_planned(reply->reader_units->options))
			return command_fail_reply();
		if (!*ret_open)
			*ret_open = plan_ask_copy(&reply->reader_units->options->base);
		r = *ret_open ? take_reply(reply->reader_units, read, request) : -ENOMEM;
	} while (r == 0 && reply->reader_units->n_units > 0);
	return r == -EPROTO ? command_fail_reply() : r < 0 ? command_fail_memory() : COMMAND_DONE;
}

int plan_source_job(const struct command_context *context, const char *job, Tierd__Wire__PlanRequest *request,
		    Tierd__Wire__JobOpen **ret_open)
{
	_cleanup_(ask_freep) struct ask *ask = NULL;
	Tierd__Wire__TensorsRead read = TIERD__WIRE__TENSORS_READ__INIT;
	Tierd__Wire__JobOpen *open = NULL;
	struct choice choice;
	uid_t owner;
	int code = choice_read_named(context, job, &choice);

	if (code == COMMAND_DONE)
		code = command_connect(context, &ask);
	if (code == COMMAND_DONE)
		code = choice_find_owner(ask, &choice, &owner);
	if (code != COMMAND_DONE)
		return code;
	read.job = (char *)job;
	read.has_owner = true;
	read.owner = owner;
	code = read_pages(ask, &read, request, &open);
	if (code == COMMAND_DONE && request->n_units == 0)
		code = command_fail(COMMAND_FAILED, "job %s has no units yet", job);
	if (code == COMMAND_DONE)
		*ret_open = open;
	else if (open)
		tierd__wire__job_open__free_unpacked(open, NULL);
	return code;
}

/* ---- Files of tensors ---- */

static int take_list(const struct import_list *list, Tierd__Wire__PlanRequest *request)
{
	int r = 0;

	for (size_t i = 0; i < list->unit_count && r == 0; i++) {
		const struct import_unit *unit = &list->units[i];

		r = plan_units_add(request, unit->name);
		for (uint32_t k = 0; k < unit->count && r == 0; k++)
			r = plan_units_add_tensor(request, &list->by_unit[unit->first + k]->tensor);
	}
	return r < 0 ? command_fail_memory() : COMMAND_DONE;
}

int plan_source_files(const char *path, const struct import_options *options,
		      Tierd__Wire__PlanRequest *request)
{
	_cleanup_(safetensors_model_freep) struct safetensors_model *model = NULL;
	struct import_list list = { NULL };
	int code = model_path_open(path, &model);

	if (code == COMMAND_DONE)
		code = import_list_read(&list, model, options);
	if (code == COMMAND_DONE)
		code = take_list(&list, request);
	import_list_clear(&list);
	return code;
}

/* ---- A list of units ---- */

/* What is wrong, of which unit. */
static int refuse_unit(const char *path, size_t index, const char *what)
{
	return command_fail(COMMAND_FAILED,
			    "%s: unit %zu %s; a unit is {\"name\": \"layer.0\", \"tensors\": [{\"name\": "
			    "\"weight\", \"format\": \"bf16\", \"shape\": [8, 4]}]}",
			    path, index, what);
}

static bool read_count(const cJSON *json, uint64_t *ret_count)
{
	double number = cJSON_IsNumber(json) ? json->valuedouble : -1;

	if (!(number >= 0) || number > (double)PLAN_MAX_PARAMETERS || number != floor(number))
		return false;
	*ret_count = (uint64_t)number;
	return true;
}

static bool read_shape(const cJSON *json, struct tierd_tensor *tensor)
{
	const cJSON *length;

	if (!cJSON_IsArray(json) || cJSON_GetArraySize(json) > TIERD_MAX_DIMENSIONS)
		return false;
	cJSON_ArrayForEach(length,
			   json) if (!read_count(length, &tensor->shape[tensor->dimensions++])) return false;
	return true;
}

/* 0: there is none, or it is unknown. */
static uint32_t read_format(const cJSON *json, const char *key)
{
	static const char *const formats[] = { "", "fp32", "bf16", "fp16", "bytes" };
	const char *format = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, key));

	for (uint32_t i = 1; i < ARRAY_LENGTH(formats) && format; i++)
		if (strcmp(formats[i], format) == 0)
			return i;
	return 0;
}

static bool read_tensor(const cJSON *json, struct tierd_tensor *tensor)
{
	const cJSON *group = cJSON_GetObjectItemCaseSensitive(json, "group");
	uint64_t number = 0;

	*tensor = (struct tierd_tensor)TIERD_TENSOR_INIT;
	tensor->name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
	tensor->alias = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "alias"));
	tensor->dtype = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "dtype"));
	tensor->format = read_format(json, "format");
	tensor->gradient_format = read_format(json, "gradient_format");
	if (!tensor->name || tensor->format == 0 || (group && !read_count(group, &number)) ||
	    number >= TIERD_MAX_GROUPS)
		return false;
	tensor->group = (uint32_t)number;
	tensor->is_frozen = tensor->format == TIERD_BYTES ||
			    cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "is_frozen"));
	return read_shape(cJSON_GetObjectItemCaseSensitive(json, "shape"), tensor);
}

static int read_unit(const cJSON *json, size_t index, const char *path, Tierd__Wire__PlanRequest *request)
{
	const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "name"));
	const cJSON *tensors = cJSON_GetObjectItemCaseSensitive(json, "tensors"), *item;
	struct tierd_tensor tensor;

	if (!name)
		return refuse_unit(path, index, "has no name");
	if (cJSON_GetArraySize(tensors) == 0)
		return refuse_unit(path, index, "has no tensors");
	if (plan_units_add(request, name) < 0)
		return command_fail_memory();
	cJSON_ArrayForEach(item, tensors)
	{
		if (!read_tensor(item, &tensor))
			return refuse_unit(path, index,
					   "has a tensor without a name, a format (fp32, bf16, fp16 or "
					   "bytes) or a shape");
		if (plan_units_add_tensor(request, &tensor) < 0)
			return command_fail_memory();
	}
	return COMMAND_DONE;
}

static int read_text(const char *path, char **ret_text)
{
	bool is_standard = strcmp(path, "-") == 0;
	FILE *stream = is_standard ? stdin : fopen(path, "re");
	_cleanup_free_ char *text = NULL;
	size_t size = 0;
	ssize_t length;

	if (!stream)
		return command_fail_at(COMMAND_FAILED, -errno, "%s: %s", path, strerror(errno));
	length = getdelim(&text, &size, '\0', stream);
	if (!is_standard)
		fclose(stream);
	if (length < 0)
		return command_fail(COMMAND_FAILED, "%s is empty, or cannot be read", path);
	*ret_text = TAKE_PTR(text);
	return COMMAND_DONE;
}

int plan_source_list(const char *path, Tierd__Wire__PlanRequest *request)
{
	_cleanup_free_ char *text = NULL;
	const cJSON *item;
	cJSON *json;
	size_t index = 0;
	int code = read_text(path, &text);

	if (code != COMMAND_DONE)
		return code;
	json = cJSON_Parse(text);
	if (!cJSON_IsArray(json) || cJSON_GetArraySize(json) == 0)
		code = command_fail(COMMAND_FAILED, "%s is no list of units in JSON", path);
	cJSON_ArrayForEach(item, json) if (code == COMMAND_DONE) code =
		read_unit(item, index++, path, request);
	cJSON_Delete(json);
	return code;
}
