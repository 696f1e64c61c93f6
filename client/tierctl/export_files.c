#include "client/tierctl/export_files.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "client/safetensors/index.h"
#include "client/safetensors/list.h"
#include "common/size.h"

#define SUFFIX ".safetensors"

static void forget_beginnings(struct export_files *files)
{
	for (size_t i = 0; i < files->count; i++) {
		safetensors_header_clear(&files->files[i].header);
		free(TAKE_PTR(files->files[i].bytes));
	}
	free(TAKE_PTR(files->index));
	files->bytes = 0;
}

void export_files_clear(struct export_files *files)
{
	forget_beginnings(files);
	for (size_t i = 0; i < files->count; i++)
		free(files->files[i].path);
	free(files->files);
	free(files->index_path);
	*files = (struct export_files){ NULL };
}

/* ---- Which has what ---- */

static int add_file(struct export_files *files, size_t first)
{
	struct export_file *grown =
		safetensors_list_grow(files->files, files->count, &files->capacity, sizeof(*grown));

	if (!grown)
		return command_fail_memory();
	files->files = grown;
	grown[files->count++] = (struct export_file){ .header = SAFETENSORS_HEADER_INIT, .first = first };
	return COMMAND_DONE;
}

/* As the libraries that read them cut: in order, and never a tensor. */
static int split(struct export_files *files, const struct export_list *list, uint64_t shard_bytes)
{
	uint64_t filled = 0;
	int code = add_file(files, 0);

	for (size_t i = 0; i < list->tensor_count && code == COMMAND_DONE; i++) {
		uint64_t bytes = list->tensors[i].bytes;

		if (shard_bytes > 0 && filled > 0 && size_sum(filled, bytes) > shard_bytes) {
			code = add_file(files, i);
			filled = 0;
		}
		filled = size_sum(filled, bytes);
		files->files[files->count - 1].count++;
	}
	return code;
}

/* ---- Names ---- */

static bool is_folder(const char *path)
{
	struct stat status;
	size_t length = strlen(path);

	return (length > 0 && path[length - 1] == '/') ||
	       (stat(path, &status) == 0 && S_ISDIR(status.st_mode));
}

static char *name_file(const char *target, size_t number, size_t count)
{
	size_t length = strlen(target), suffix = strlen(SUFFIX);
	char *path;
	int r;

	if (count == 1)
		return strdup(target);
	if (length > suffix && strcmp(target + length - suffix, SUFFIX) == 0)
		length -= suffix;
	r = asprintf(&path, "%.*s-%05zu-of-%05zu" SUFFIX, (int)length, target, number, count);
	return r < 0 ? NULL : path;
}

static int name_all(struct export_files *files, const char *target)
{
	for (size_t i = 0; i < files->count; i++) {
		files->files[i].path = name_file(target, i + 1, files->count);
		if (!files->files[i].path)
			return command_fail_memory();
	}
	if (files->count > 1 && asprintf(&files->index_path, "%s.index.json", target) < 0) {
		files->index_path = NULL;
		return command_fail_memory();
	}
	return COMMAND_DONE;
}

int export_files_plan(struct export_files *files, const struct export_list *list, const char *target,
		      uint64_t shard_bytes)
{
	_cleanup_free_ char *inside = NULL;
	int code = split(files, list, shard_bytes);

	if (code != COMMAND_DONE)
		return code;
	if (is_folder(target) &&
	    asprintf(&inside, "%s%smodel" SUFFIX, target, target[strlen(target) - 1] == '/' ? "" : "/") < 0) {
		inside = NULL;
		return command_fail_memory();
	}
	return name_all(files, inside ? inside : target);
}

/* ---- What they begin with ---- */

static int note(struct export_file *file, const char *key, const char *value)
{
	struct safetensors_problem problem;

	if (safetensors_header_note(&file->header, key, value, &problem) < 0)
		return command_fail(COMMAND_FAILED, "%s", problem.text);
	return COMMAND_DONE;
}

static int add_tensor(struct export_file *file, const struct export_tensor *tensor, size_t number)
{
	struct safetensors_tensor entry = { .name = tensor->name,
					    .shape = tensor->shape,
					    .dimensions = tensor->dimensions,
					    .dtype = tensor->dtype,
					    .tag = number };
	struct safetensors_problem problem;

	if (safetensors_header_add(&file->header, &entry, &problem) < 0)
		return command_fail(COMMAND_FAILED, "%s", problem.text);
	return tensor->alias ? note(file, tensor->alias, tensor->name) : COMMAND_DONE;
}

/* "format" is what loaders of PyTorch ask for before they take a file. */
static int begin_file(struct export_file *file, const struct export_list *list, const char *job,
		      const char *step)
{
	struct safetensors_problem problem;
	int code = note(file, "format", "pt");

	if (code == COMMAND_DONE)
		code = note(file, "tierd.job", job);
	if (code == COMMAND_DONE)
		code = note(file, "tierd.step", step);
	for (size_t i = file->first; i < file->first + file->count && code == COMMAND_DONE; i++)
		code = add_tensor(file, &list->tensors[i], i);
	if (code == COMMAND_DONE &&
	    safetensors_header_write(&file->header, file->path, &file->bytes, &file->length, &problem) < 0)
		return command_fail(COMMAND_FAILED, "%s", problem.text);
	return code;
}

static int write_index(struct export_files *files, const struct export_list *list)
{
	struct safetensors_index index = SAFETENSORS_INDEX_INIT;
	struct safetensors_problem problem;
	int r = 0;

	for (size_t i = 0; i < files->count; i++) {
		const struct export_file *file = &files->files[i];

		for (size_t k = file->first; k < file->first + file->count && r == 0; k++)
			r = safetensors_index_add(&index, list->tensors[k].name, basename(file->path),
						  &problem);
	}
	index.total_bytes = list->bytes;
	if (r == 0)
		r = safetensors_index_write(&index, &files->index, &files->index_length, &problem);
	safetensors_index_clear(&index);
	return r < 0 ? command_fail(COMMAND_FAILED, "%s", problem.text) : COMMAND_DONE;
}

int export_files_begin(struct export_files *files, const struct export_list *list, const char *job,
		       uint64_t step)
{
	int code = COMMAND_DONE;

	forget_beginnings(files);
	snprintf(files->step, sizeof(files->step), "%" PRIu64, step);
	for (size_t i = 0; i < files->count && code == COMMAND_DONE; i++) {
		code = begin_file(&files->files[i], list, job, files->step);
		files->bytes += files->files[i].length + files->files[i].header.data_bytes;
	}
	if (code == COMMAND_DONE && files->index_path)
		code = write_index(files, list);
	return code;
}
