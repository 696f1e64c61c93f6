#include "client/tierctl/import_list.h"

#include <fnmatch.h>
#include <string.h>

#include "client/tierctl/command.h"
#include "common/plural.h"

/* How many tensors a message names. */
#define MAX_NAMED 4

void import_list_clear(struct import_list *list)
{
	for (size_t i = 0; i < list->unit_count; i++)
		free(list->units[i].name);
	for (size_t i = 0; i < list->count; i++)
		free((char *)list->tensors[i].tensor.dtype);
	free(list->units);
	free(list->by_unit);
	free(list->tensors);
	*list = (struct import_list){ NULL };
}

/* ---- What cannot be ---- */

typedef bool judge(const struct import_list *list, const struct import_tensor *tensor);

/* Names the first few that it is true of. */
static int refuse_all(const struct import_list *list, judge *is_wrong, const char *why)
{
	char names[MAX_NAMED * 140] = "";
	size_t used = 0, count = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (!is_wrong(list, &list->tensors[i]) || count++ >= MAX_NAMED)
			continue;
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%.128s\"",
					 count > 1 ? ", " : "", list->tensors[i].from->name);
	}
	if (count == 0)
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED, "%zu tensor%s %s: %s%s; leave %s out with --ignore PATTERN",
			    count, PLURAL(count), why, names, count > MAX_NAMED ? ", …" : "",
			    count == 1 ? "it" : "them");
}

static bool has_wrong_name(const struct import_list *list, const struct import_tensor *tensor)
{
	size_t length = strlen(tensor->from->name);

	return !tensor->base && (length == 0 || length > TIERD_MAX_NAME);
}

static bool has_wrong_shape(const struct import_list *list, const struct import_tensor *tensor)
{
	return tensor->from->dimensions > TIERD_MAX_DIMENSIONS;
}

static int compare_by_name(const void *a, const void *b)
{
	return strcmp((*(struct import_tensor *const *)a)->from->name,
		      (*(struct import_tensor *const *)b)->from->name);
}

/* by_unit is in the order of names. */
static struct import_tensor *find(const struct import_list *list, const char *name)
{
	struct safetensors_tensor from = { .name = name };
	struct import_tensor wanted = { .from = &from }, *key = &wanted, **found;

	found = list->count == 0 ? NULL
				 : bsearch(&key, list->by_unit, list->count, sizeof(key), compare_by_name);
	return found ? *found : NULL;
}

static int check(const struct import_list *list)
{
	int code;

	if (list->count == 0)
		return command_fail(COMMAND_FAILED, "there are no tensors to import");
	code = refuse_all(list, has_wrong_name,
			  "cannot be named so in a job, where names have 1 to 128 bytes");
	if (code == COMMAND_DONE)
		code = refuse_all(list, has_wrong_shape, "of more than 8 dimensions cannot be in a job");
	return code;
}

/* ---- What the optimizer keeps ---- */

static uint32_t format_of(enum safetensors_dtype dtype)
{
	switch (dtype) {
	case SAFETENSORS_F32:
		return TIERD_FP32;
	case SAFETENSORS_BF16:
		return TIERD_BF16;
	case SAFETENSORS_F16:
		return TIERD_FP16;
	default:
		return TIERD_BYTES;
	}
}

/* PyTorch's suffixes, and tierd's names of the same. */
static const struct {
	const char *suffix, *state;
	unsigned optimizers; /* a bit for each */
} slots[] = {
	{ "exp_avg", "m", 1U << TIERD_ADAMW | 1U << TIERD_ADAM | 1U << TIERD_LION },
	{ "exp_avg_sq", "v", 1U << TIERD_ADAMW | 1U << TIERD_ADAM },
	{ "momentum_buffer", "momentum", 1U << TIERD_SGD }, /* if its group has one */
};

#define SLOTS ARRAY_LENGTH(slots)

static unsigned kept_slots(const struct import_options *options)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < SLOTS; i++)
		if (slots[i].optimizers >> options->optimizer & 1 &&
		    (options->optimizer != TIERD_SGD || options->has_momentum))
			kept |= 1U << i;
	return kept;
}

static void set_base(const struct import_list *list, struct import_tensor *tensor, struct import_tensor *base,
		     unsigned slot)
{
	tensor->base = base;
	tensor->state = list->slots >> slot & 1 ? slots[slot].state : NULL;
	tensor->is_second = base->states >> slot & 1;
	base->states |= 1U << slot;
}

static void find_base(const struct import_list *list, struct import_tensor *tensor)
{
	const char *name = tensor->from->name, *dot = strrchr(name, '.');
	char base[TIERD_MAX_NAME + 1];
	struct import_tensor *found;

	for (unsigned i = 0; dot && dot - name <= TIERD_MAX_NAME && i < SLOTS; i++) {
		if (strcmp(dot + 1, slots[i].suffix) != 0 && strcmp(dot + 1, slots[i].state) != 0)
			continue;
		snprintf(base, sizeof(base), "%.*s", (int)(dot - name), name);
		found = find(list, base);
		if (found)
			set_base(list, tensor, found, i);
	}
}

static bool has_no_slot(const struct import_list *list, const struct import_tensor *tensor)
{
	return tensor->base && !tensor->state;
}

static bool is_no_state(const struct import_list *list, const struct import_tensor *tensor)
{
	const struct safetensors_tensor *from = tensor->from, *base;

	if (!tensor->base)
		return false;
	base = tensor->base->from;
	return tensor->base->base || tensor->base->tensor.is_frozen || from->dtype != SAFETENSORS_F32 ||
	       from->dimensions != base->dimensions ||
	       (from->dimensions > 0 &&
		memcmp(from->shape, base->shape, from->dimensions * sizeof(from->shape[0])) != 0);
}

static bool is_second(const struct import_list *list, const struct import_tensor *tensor)
{
	return tensor->is_second;
}

static bool lacks_state(const struct import_list *list, const struct import_tensor *tensor)
{
	return tensor->states && (list->slots & ~tensor->states);
}

static int check_state(const struct import_list *list)
{
	int code = refuse_all(list, has_no_slot, "of an optimizer, which the named one does not keep");

	if (code == COMMAND_DONE)
		code = refuse_all(
			list, is_no_state,
			"cannot be what the optimizer keeps, F32 in the shape of a trainable tensor");
	if (code == COMMAND_DONE)
		code = refuse_all(list, is_second,
				  "of what the optimizer keeps of a tensor, which is there under its other "
				  "name, too");
	if (code == COMMAND_DONE)
		code = refuse_all(list, lacks_state,
				  "without all that the optimizer keeps cannot be trained on");
	return code;
}

/* Where an optimizer has been, what it has left alone is frozen. */
static void freeze(struct import_tensor *tensor)
{
	if (tensor->states || tensor->base)
		return;
	tensor->tensor.is_frozen = true;
	tensor->tensor.format = format_of(tensor->from->dtype);
	tensor->is_converted = false;
}

/* Takes tensors that are not the job's out of by_unit. */
static void take_out_state(struct import_list *list)
{
	list->job_count = 0;
	for (size_t i = 0; i < list->count; i++)
		if (!list->by_unit[i]->base)
			list->by_unit[list->job_count++] = list->by_unit[i];
}

static int read_state(struct import_list *list, const struct import_options *options)
{
	int code;

	list->slots = kept_slots(options);
	for (size_t i = 0; i < list->count && options->is_trainable; i++) {
		find_base(list, &list->tensors[i]);
		list->has_state |= list->tensors[i].base != NULL;
	}
	for (size_t i = 0; i < list->count && list->has_state; i++)
		freeze(&list->tensors[i]);
	code = check_state(list);
	if (code == COMMAND_DONE)
		take_out_state(list);
	return code;
}

/* ---- The step ---- */

static const char *noted_step(const struct safetensors_file *file)
{
	for (size_t i = 0; i < file->header.note_count; i++)
		if (strcmp(file->header.notes[i].key, "tierd.step") == 0)
			return file->header.notes[i].value;
	return NULL;
}

static int read_step(struct import_list *list, const struct safetensors_model *model,
		     const struct import_options *options)
{
	const char *step = options->step ? options->step : noted_step(&model->files[0]);

	if (!list->has_state && options->step)
		return command_fail(
			COMMAND_FAILED,
			"--step says when an optimizer kept what the files have, and nothing of that "
			"is imported: leave it out, or name the --optimizer whose state they have");
	if (!list->has_state)
		return COMMAND_DONE;
	for (size_t i = 1; i < model->file_count && !options->step; i++) {
		const char *other = noted_step(&model->files[i]);

		if ((step == NULL) != (other == NULL) || (step && strcmp(step, other) != 0))
			return command_fail(COMMAND_FAILED, "%s and %s are not of one step",
					    model->files[0].path, model->files[i].path);
	}
	if (!step)
		return command_fail(
			COMMAND_FAILED,
			"%s does not say after how many steps its optimizer was where it is; say it "
			"with --step, or leave that out with --ignore '*.exp_avg*'",
			model->files[0].path);
	if (command_read_number(step, UINT64_MAX, &list->step))
		return COMMAND_DONE;
	return command_fail(COMMAND_FAILED, "'%.40s' is no number of a step", step);
}

/* ---- Tensors ---- */

/* Bytes keep their shape only if each element is one. */
static void set_shape(struct import_tensor *tensor)
{
	const struct safetensors_tensor *from = tensor->from;
	uint64_t bytes = from->end - from->begin;
	bool is_flat = tensor->tensor.format == TIERD_BYTES && safetensors_dtype_bits(from->dtype) != 8;

	tensor->element_bytes =
		tensor->tensor.format == TIERD_BYTES ? 1 : safetensors_dtype_bits(from->dtype) / 8;
	tensor->elements = bytes / tensor->element_bytes;
	tensor->tensor.dimensions = is_flat ? 1 : from->dimensions;
	tensor->tensor.shape[0] = bytes;
	for (uint32_t i = 0; !is_flat && i < from->dimensions && i < TIERD_MAX_DIMENSIONS; i++)
		tensor->tensor.shape[i] = from->shape[i];
}

/* So that an export of the job has it again. Of a shape that has zeros its text can be too long to be kept.
 */
static int set_dtype(struct import_tensor *tensor)
{
	const struct safetensors_tensor *from = tensor->from;
	_cleanup_free_ char *dtype = NULL;

	if (tensor->tensor.format != TIERD_BYTES || from->dtype == SAFETENSORS_U8)
		return COMMAND_DONE;
	dtype = safetensors_dtype_print(from->dtype, from->shape, from->dimensions);
	if (!dtype)
		return command_fail_memory();
	if (strlen(dtype) <= TIERD_MAX_NAME)
		tensor->tensor.dtype = TAKE_PTR(dtype);
	return COMMAND_DONE;
}

static int add(struct import_list *list, size_t file, const struct safetensors_tensor *from,
	       const struct import_options *options)
{
	struct import_tensor *tensor = &list->tensors[list->count];

	*tensor = (struct import_tensor){
		.from = from, .file = file, .tensor = TIERD_TENSOR_INIT, .order = list->count
	};
	tensor->tensor.name = from->name;
	tensor->tensor.format = format_of(from->dtype);
	tensor->tensor.is_frozen = !options->is_trainable || tensor->tensor.format == TIERD_BYTES;
	set_shape(tensor);
	if (!tensor->tensor.is_frozen && options->format && options->format != tensor->tensor.format) {
		tensor->tensor.format = options->format;
		tensor->is_converted = true;
	}
	list->by_unit[list->count++] = tensor;
	list->bytes += from->end - from->begin;
	return set_dtype(tensor);
}

/* A note that says "ALIAS": "NAME", of a tensor that is tied. */
static void take_note(const struct import_list *list, const struct safetensors_note *note)
{
	struct import_tensor *tensor = find(list, note->value);
	size_t length = strlen(note->key);

	if (tensor && !tensor->tensor.alias && length > 0 && length <= TIERD_MAX_NAME &&
	    !find(list, note->key))
		tensor->tensor.alias = note->key;
}

static int add_all(struct import_list *list, const struct safetensors_model *model,
		   const struct import_options *options)
{
	int code = COMMAND_DONE;

	list->tensors = calloc(model->tensor_count + 1, sizeof(*list->tensors));
	list->by_unit = calloc(model->tensor_count + 1, sizeof(struct import_tensor *));
	if (!list->tensors || !list->by_unit)
		return command_fail_memory();
	for (size_t i = 0; i < model->file_count; i++)
		for (size_t k = 0; k < model->files[i].header.tensor_count && code == COMMAND_DONE; k++) {
			const struct safetensors_tensor *from = &model->files[i].header.tensors[k];

			if (!options->ignored || fnmatch(options->ignored, from->name, 0) != 0)
				code = add(list, i, from, options);
		}
	if (list->count > 0)
		qsort(list->by_unit, list->count, sizeof(struct import_tensor *), compare_by_name);
	for (size_t i = 0; i < model->file_count; i++)
		for (size_t k = 0; k < model->files[i].header.note_count; k++)
			take_note(list, &model->files[i].header.notes[k]);
	return code;
}

int import_list_read(struct import_list *list, const struct safetensors_model *model,
		     const struct import_options *options)
{
	int code;

	*list = (struct import_list){ NULL };
	code = add_all(list, model, options);
	if (code == COMMAND_DONE)
		code = read_state(list, options);
	if (code == COMMAND_DONE)
		code = check(list);
	if (code == COMMAND_DONE)
		code = read_step(list, model, options);
	return code == COMMAND_DONE ? import_units_group(list) : code;
}

uint64_t import_list_unit_bytes(const struct import_list *list, size_t unit)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < list->units[unit].count; i++) {
		const struct import_tensor *tensor = list->by_unit[list->units[unit].first + i];

		bytes += tensor->elements * tensor->element_bytes;
	}
	return bytes;
}
