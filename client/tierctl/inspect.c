#include <inttypes.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "client/tierctl/model_path.h"
#include "common/plural.h"

static cJSON *tensor_json(const struct safetensors_file *file, const struct safetensors_tensor *tensor)
{
	cJSON *json = cJSON_CreateObject(), *shape;

	cJSON_AddStringToObject(json, "name", tensor->name);
	cJSON_AddStringToObject(json, "dtype", safetensors_dtype_name(tensor->dtype));
	shape = cJSON_AddArrayToObject(json, "shape");
	for (uint32_t i = 0; i < tensor->dimensions; i++)
		cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)tensor->shape[i]));
	cJSON_AddStringToObject(json, "file", file->path);
	cJSON_AddNumberToObject(json, "offset", (double)(file->header.data_first + tensor->begin));
	cJSON_AddNumberToObject(json, "bytes", (double)(tensor->end - tensor->begin));
	return json;
}

static cJSON *file_json(const struct safetensors_file *file)
{
	cJSON *json = cJSON_CreateObject(), *metadata;

	cJSON_AddStringToObject(json, "file", file->path);
	cJSON_AddNumberToObject(json, "tensors", (double)file->header.tensor_count);
	cJSON_AddNumberToObject(json, "bytes", (double)file->header.data_bytes);
	metadata = cJSON_AddObjectToObject(json, "metadata");
	for (size_t i = 0; i < file->header.note_count; i++)
		cJSON_AddStringToObject(metadata, file->header.notes[i].key, file->header.notes[i].value);
	return json;
}

static int print_json(const struct safetensors_model *model)
{
	cJSON *json = cJSON_CreateObject();
	cJSON *files = cJSON_AddArrayToObject(json, "files"),
	      *tensors = cJSON_AddArrayToObject(json, "tensors");

	cJSON_AddNumberToObject(json, "bytes", (double)model->tensor_bytes);
	if (model->index.has_total)
		cJSON_AddNumberToObject(json, "total_size", (double)model->index.total_bytes);
	for (size_t i = 0; i < model->file_count; i++) {
		const struct safetensors_file *file = &model->files[i];

		cJSON_AddItemToArray(files, file_json(file));
		for (size_t k = 0; k < file->header.tensor_count; k++)
			cJSON_AddItemToArray(tensors, tensor_json(file, &file->header.tensors[k]));
	}
	return command_print_json(json);
}

static int print_table(const struct safetensors_model *model)
{
	static const char *const titles[] = {
		"~NAME", "DTYPE", "SHAPE", "2>OFFSET", "1>BYTES", "3~FILE", NULL
	};
	_cleanup_(table_freep) struct table *table = table_new(titles);
	char shape[TEXT_SHAPE_SIZE];

	for (size_t i = 0; table && i < model->file_count; i++) {
		const struct safetensors_file *file = &model->files[i];

		for (size_t k = 0; k < file->header.tensor_count; k++) {
			const struct safetensors_tensor *tensor = &file->header.tensors[k];

			table_add(table, "%s", tensor->name);
			table_add(table, "%s", safetensors_dtype_name(tensor->dtype));
			table_add(table, "%s", text_shape(tensor->shape, tensor->dimensions, shape));
			table_add(table, "%" PRIu64, file->header.data_first + tensor->begin);
			table_add(table, "%" PRIu64, tensor->end - tensor->begin);
			table_add(table, "%s", basename(file->path));
		}
	}
	return command_print_table(table);
}

/* After the table: what it is in all, and whether the index thinks so, too. */
static void print_sum(const struct safetensors_model *model)
{
	char text[TEXT_SIZE];

	printf("%" PRIu64 " tensor%s, %s, in %zu file%s\n", model->tensor_count, PLURAL(model->tensor_count),
	       text_bytes(model->tensor_bytes, text), model->file_count, PLURAL(model->file_count));
	if (model->index.has_total && model->index.total_bytes != model->tensor_bytes)
		text_say(0,
			 "The index says %" PRIu64 " bytes, and they have %" PRIu64
			 ": it may count tied tensors more than once.",
			 model->index.total_bytes, model->tensor_bytes);
}

int command_inspect(const struct command_context *context)
{
	_cleanup_(safetensors_model_freep) struct safetensors_model *model = NULL;
	int code = model_path_open(context->arguments[0], &model);

	if (code != COMMAND_DONE)
		return code;
	if (context->is_json)
		return print_json(model);
	code = print_table(model);
	if (code == COMMAND_DONE)
		print_sum(model);
	return code;
}
