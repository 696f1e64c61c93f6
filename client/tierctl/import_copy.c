#include "client/tierctl/import_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tierctl/ahead.h"
#include "client/tierctl/command.h"
#include "client/tierctl/widen.h"

/* As many as fit in what the library hands over at once. */
#define MASTERS (UINT64_C(1) << 18)

static int fail_read(const struct safetensors_file *file, int r)
{
	if (r == -ENODATA)
		return command_fail(COMMAND_FAILED,
				    "%s has become shorter than its header says; fetch it again", file->path);
	return command_fail_at(COMMAND_FAILED, r, "reading %s: %s", file->path, strerror(-r));
}

/* It may be another one than the one that was checked; its header is not read again. */
static int open_file(const struct safetensors_file *file, int *ret_fd)
{
	_cleanup_close_ int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct stat status;

	if (fd < 0 || fstat(fd, &status) < 0)
		return fail_read(file, -errno);
	if (!S_ISREG(status.st_mode) ||
	    (uint64_t)status.st_size != file->header.data_first + file->header.data_bytes)
		return command_fail(COMMAND_FAILED, "%s has changed while it was read; import it again",
				    file->path);
	*ret_fd = TAKE_FD(fd);
	return COMMAND_DONE;
}

static int write_values(const struct import_copy *copy, const struct import_tensor *tensor, uint64_t first,
			uint64_t count, const char *bytes)
{
	const void *values = bytes;

	if (tensor->base)
		return tierd_tensor_write_state(copy->job, (uint32_t)tensor->base->unit, tensor->base->index,
						tensor->state, copy->list->step, first, count, bytes);
	if (tensor->is_converted && tensor->element_bytes == sizeof(uint16_t)) {
		widen(tensor->from->dtype == SAFETENSORS_BF16 ? TIERD_BF16 : TIERD_FP16, bytes, count,
		      copy->masters);
		values = copy->masters;
	}
	return tierd_tensor_write(copy->job, (uint32_t)tensor->unit, tensor->index, first, count, values,
				  tensor->is_converted);
}

static int copy_tensor(struct import_copy *copy, const struct import_tensor *tensor, struct ahead *ahead)
{
	for (uint64_t first = 0, count; first < tensor->elements; first += count) {
		const char *bytes;
		size_t length;
		int r = ahead_look(ahead, tensor->element_bytes, &bytes, &length);

		if (r < 0)
			return fail_read(&copy->model->files[tensor->file], r);
		count = length / tensor->element_bytes;
		if (count > tensor->elements - first)
			count = tensor->elements - first;
		if (tensor->is_converted && count > MASTERS)
			count = MASTERS;
		if (write_values(copy, tensor, first, count, bytes) < 0)
			return command_fail(COMMAND_FAILED, "%s", tierd_message());
		ahead_take(ahead, count * tensor->element_bytes);
		copy->bytes += count * tensor->element_bytes;
		progress_tell(copy->progress, copy->bytes, copy->list->bytes);
	}
	return COMMAND_DONE;
}

/* Tensors that follow each other in a file, without one that is left out. */
static size_t count_run(const struct import_list *list, size_t first)
{
	size_t count = 1;

	while (first + count < list->count &&
	       list->tensors[first + count].file == list->tensors[first].file &&
	       list->tensors[first + count].from->begin == list->tensors[first + count - 1].from->end)
		count++;
	return count;
}

static int copy_run(struct import_copy *copy, int fd, size_t first, size_t count)
{
	_cleanup_(ahead_freep) struct ahead *ahead = NULL;
	const struct import_tensor *tensors = &copy->list->tensors[first];
	const struct safetensors_file *file = &copy->model->files[tensors->file];
	uint64_t begin = tensors[0].from->begin, end = tensors[count - 1].from->end;
	int code = COMMAND_DONE, r;

	if (begin == end)
		return COMMAND_DONE;
	r = ahead_new(fd, file->header.data_first + begin, end - begin, &ahead);
	if (r < 0)
		return fail_read(file, r);
	for (size_t i = 0; i < count && code == COMMAND_DONE; i++)
		code = copy_tensor(copy, &tensors[i], ahead);
	return code;
}

int import_copy_run(struct import_copy *copy)
{
	const struct import_list *list = copy->list;
	_cleanup_free_ float *masters = malloc(MASTERS * sizeof(*masters));
	_cleanup_close_ int fd = -1;
	int code = masters ? COMMAND_DONE : command_fail_memory();

	copy->masters = masters;
	for (size_t first = 0, count; first < list->count && code == COMMAND_DONE; first += count) {
		size_t file = list->tensors[first].file;

		count = count_run(list, first);
		if (first == 0 || list->tensors[first - 1].file != file) {
			fd = fd_close(fd);
			code = open_file(&copy->model->files[file], &fd);
		}
		if (code == COMMAND_DONE)
			code = copy_run(copy, fd, first, count);
	}
	return code;
}
