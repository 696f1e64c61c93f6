#include "client/safetensors/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct safetensors_model *safetensors_model_free(struct safetensors_model *model)
{
	if (!model)
		return NULL;
	for (size_t i = 0; i < model->file_count; i++) {
		safetensors_header_clear(&model->files[i].header);
		free(model->files[i].path);
	}
	free(model->files);
	safetensors_index_clear(&model->index);
	free(model);
	return NULL;
}

/* ---- Files ---- */

/* Opens regular files alone: a pipe or a device may have no end, or block. */
static int open_regular(const char *path, struct stat *status, struct safetensors_problem *problem)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0 || fstat(fd, status) < 0)
		return safetensors_fail(problem, -errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(status->st_mode))
		return safetensors_fail(problem, -EINVAL,
					"%s is no file; name one of tensors, or an index of several (.json)",
					path);
	return TAKE_FD(fd);
}

static int add_file(struct safetensors_model *model, char *path, struct safetensors_problem *problem)
{
	struct safetensors_file *file = &model->files[model->file_count];
	_cleanup_close_ int fd = -1;
	struct stat status;
	int r;

	if (!path)
		return safetensors_fail_memory(problem);
	/* From here on it is the model's. */
	*file = (struct safetensors_file){ .path = path };
	model->file_count++;
	fd = open_regular(path, &status, problem);
	if (fd < 0)
		return fd;
	r = safetensors_header_read(fd, path, &file->header, problem);
	model->tensor_count += file->header.tensor_count;
	model->tensor_bytes += file->header.data_bytes;
	return r;
}

/* ---- An index ---- */

static int read_text(const char *path, char **ret_text, size_t *ret_length,
		     struct safetensors_problem *problem)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_close_ int fd = -1;
	struct stat status;
	size_t length = 0;
	ssize_t got = 1;

	fd = open_regular(path, &status, problem);
	if (fd < 0)
		return fd;
	if ((uint64_t)status.st_size > SAFETENSORS_MAX_HEADER)
		return safetensors_fail(problem, -EINVAL,
					"%s has %" PRIu64 " bytes, and %" PRIu64 " are the most of an index",
					path, (uint64_t)status.st_size, SAFETENSORS_MAX_HEADER);
	text = malloc((size_t)status.st_size + 1);
	if (!text)
		return safetensors_fail_memory(problem);
	while (length < (size_t)status.st_size && got > 0) {
		got = pread(fd, text + length, (size_t)status.st_size - length, (off_t)length);
		if (got < 0)
			return safetensors_fail(problem, -errno, "%s: %s", path, strerror(errno));
		length += (size_t)got;
	}
	text[length] = '\0';
	*ret_text = TAKE_PTR(text);
	*ret_length = length;
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	const struct safetensors_tensor *const *one = a, *const *other = b;

	return strcmp((*one)->name, (*other)->name);
}

/* Entries of one file, and the tensors that it has, both by name. */
static int compare_file(const struct safetensors_file *file, const struct safetensors_index_entry *entries,
			size_t count, struct safetensors_problem *problem)
{
	size_t tensors = file->header.tensor_count, i = 0;
	_cleanup_free_ const struct safetensors_tensor **sorted =
		calloc(tensors + 1, sizeof(struct safetensors_tensor *));

	if (!sorted)
		return safetensors_fail_memory(problem);
	for (size_t k = 0; k < tensors; k++)
		sorted[k] = &file->header.tensors[k];
	qsort(sorted, tensors, sizeof(struct safetensors_tensor *), compare_names);
	while (i < count && i < tensors && strcmp(sorted[i]->name, entries[i].tensor) == 0)
		i++;
	if (i == count && i == tensors)
		return 0;
	if (i == count || (i < tensors && strcmp(sorted[i]->name, entries[i].tensor) < 0))
		return safetensors_fail(problem, -EINVAL,
					"%s has the tensor \"%.128s\", which the index does not place there; "
					"index and file do not belong together",
					file->path, sorted[i]->name);
	return safetensors_fail(
		problem, -EINVAL,
		"%s lacks the tensor \"%.128s\", which the index places there; index and file do "
		"not belong together",
		file->path, entries[i].tensor);
}

static size_t count_files(const struct safetensors_index *index)
{
	size_t files = 0;

	for (size_t i = 0; i < index->count; i++)
		files += i == 0 || strcmp(index->entries[i - 1].file, index->entries[i].file) != 0;
	return files;
}

static char *beside(const char *path, const char *name)
{
	const char *slash = strrchr(path, '/');
	char *other;

	if (asprintf(&other, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, name) < 0)
		return NULL;
	return other;
}

static int add_files(struct safetensors_model *model, const char *path, struct safetensors_problem *problem)
{
	const struct safetensors_index_entry *entries = model->index.entries,
					     *end = entries + model->index.count;
	int r = 0;

	while (r == 0 && entries < end) {
		size_t count = 0;

		while (entries + count < end && strcmp(entries[count].file, entries->file) == 0)
			count++;
		r = add_file(model, beside(path, entries->file), problem);
		if (r == 0)
			r = compare_file(&model->files[model->file_count - 1], entries, count, problem);
		entries += count;
	}
	return r;
}

int safetensors_model_read_index(const char *path, struct safetensors_index *ret_index,
				 struct safetensors_problem *problem)
{
	char *text = NULL;
	size_t length = 0;
	int r = read_text(path, &text, &length, problem);

	return r < 0 ? r : safetensors_index_parse(text, length, path, ret_index, problem);
}

static int open_index(struct safetensors_model *model, const char *path, struct safetensors_problem *problem)
{
	int r = safetensors_model_read_index(path, &model->index, problem);

	if (r < 0)
		return r;
	model->has_index = true;
	model->files = calloc(count_files(&model->index) + 1, sizeof(*model->files));
	if (!model->files)
		return safetensors_fail_memory(problem);
	return add_files(model, path, problem);
}

/* ---- Open ---- */

static int open_file(struct safetensors_model *model, const char *path, struct safetensors_problem *problem)
{
	model->files = calloc(1, sizeof(*model->files));
	if (!model->files)
		return safetensors_fail_memory(problem);
	return add_file(model, strdup(path), problem);
}

static bool is_index(const char *path)
{
	size_t length = strlen(path);

	return length >= 5 && strcmp(path + length - 5, ".json") == 0;
}

int safetensors_model_open(const char *path, struct safetensors_model **ret_model,
			   struct safetensors_problem *problem)
{
	_cleanup_(safetensors_model_freep) struct safetensors_model *model = calloc(1, sizeof(*model));
	int r;

	if (!model)
		return safetensors_fail_memory(problem);
	r = is_index(path) ? open_index(model, path, problem) : open_file(model, path, problem);
	if (r == 0)
		*ret_model = TAKE_PTR(model);
	return r;
}
