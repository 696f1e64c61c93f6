#include "client/tierctl/export_copy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>

#include "client/tierctl/direct.h"
#include "client/tierctl/export_old.h"
#include "client/tierctl/partial.h"
#include "client/tierctl/widen.h"

/* How many elements of 16 bits are widened at once. */
#define NARROW_ELEMENTS (UINT64_C(1) << 19)

/* One of its files. */
struct writing {
	struct export_copy *copy;
	const char *path;
	struct direct *direct;
	uint16_t *narrow;
};

static int fail_write(const struct writing *writing, int r)
{
	const char *remedy = "";

	if (r == -ENOSPC || r == -EDQUOT)
		remedy = "; make room, or name a file on another disk";
	else if (r == -EFBIG)
		remedy = "; write several files, with --shard-size, or raise the limit (ulimit -f)";
	return command_fail_at(COMMAND_FAILED, r, "writing %s: %s%s", writing->path, strerror(-r), remedy);
}

/* ---- Values ---- */

static int fail_read(struct writing *writing, int r)
{
	writing->copy->is_stale = r == -ESTALE;
	return writing->copy->is_stale ? COMMAND_FAILED : source_fail(r);
}

static int read_values(struct writing *writing, const struct export_slice *slice, uint64_t first,
		       uint64_t count, void *target)
{
	void *values = slice->is_widened ? writing->narrow : target;
	int r = tierd_reader_read(writing->copy->reader, slice->unit, slice->index, slice->state, first,
				  count, values);

	if (r < 0)
		return fail_read(writing, r);
	if (slice->is_widened)
		widen(slice->tensor.format, writing->narrow, count, target);
	return COMMAND_DONE;
}

static int copy_slice(struct writing *writing, const struct export_slice *slice)
{
	unsigned element_bytes = safetensors_dtype_bits(slice->dtype) / 8;
	int code = COMMAND_DONE;

	for (uint64_t first = 0, count; first < slice->elements && code == COMMAND_DONE; first += count) {
		size_t room;
		char *target;
		int r = direct_room(writing->direct, &target, &room);

		if (r < 0)
			return fail_write(writing, r);
		count = room / element_bytes;
		if (count > slice->elements - first)
			count = slice->elements - first;
		if (slice->is_widened && count > NARROW_ELEMENTS)
			count = NARROW_ELEMENTS;
		code = read_values(writing, slice, first, count, target);
		if (code != COMMAND_DONE)
			return code;
		direct_advance(writing->direct, count * element_bytes);
		writing->copy->bytes += count * element_bytes;
		writing->copy->progress(writing->copy, writing->copy->bytes);
	}
	return code;
}

static int copy_tensors(struct writing *writing, const struct export_file *file)
{
	int code = COMMAND_DONE;

	for (size_t i = 0; i < file->header.tensor_count && code == COMMAND_DONE; i++) {
		const struct export_tensor *tensor =
			&writing->copy->list->tensors[file->header.tensors[i].tag];

		for (size_t k = 0; k < tensor->slice_count && code == COMMAND_DONE; k++)
			code = copy_slice(writing, &tensor->slices[k]);
	}
	return code;
}

/* ---- Files ---- */

static int write_file(struct export_copy *copy, const struct export_file *file, int fd)
{
	_cleanup_(direct_freep) struct direct *direct = NULL;
	_cleanup_free_ uint16_t *narrow = malloc(NARROW_ELEMENTS * sizeof(*narrow));
	struct writing writing = { .copy = copy, .path = file->path, .narrow = narrow };
	int code, r = narrow ? direct_new(fd, file->length + file->header.data_bytes, &direct) : -ENOMEM;

	if (r == 0)
		r = direct_append(direct, file->bytes, file->length);
	if (r < 0)
		return fail_write(&writing, r);
	copy->bytes += file->length;
	writing.direct = direct;
	code = copy_tensors(&writing, file);
	if (code != COMMAND_DONE)
		return code;
	r = direct_finish(direct);
	return r < 0 ? fail_write(&writing, r) : COMMAND_DONE;
}

static int write_index(const struct export_copy *copy, int fd)
{
	_cleanup_(direct_freep) struct direct *direct = NULL;
	struct writing writing = { .path = copy->files->index_path };
	int r = direct_new(fd, copy->files->index_length, &direct);

	if (r == 0)
		r = direct_append(direct, copy->files->index, copy->files->index_length);
	if (r == 0)
		r = direct_finish(direct);
	return r < 0 ? fail_write(&writing, r) : COMMAND_DONE;
}

/* Better now than when most of it is written. */
static int check_room(const struct export_copy *copy, int fd)
{
	struct statvfs status;
	char wanted[TEXT_SIZE], free_text[TEXT_SIZE];
	uint64_t room;

	if (fstatvfs(fd, &status) < 0)
		return COMMAND_DONE;
	room = (uint64_t)status.f_bavail * status.f_frsize;
	if (room >= copy->files->bytes)
		return COMMAND_DONE;
	return command_fail(
		COMMAND_FAILED,
		"writing %s: it takes %s, and its disk has %s; make room, or name a file on another",
		copy->files->files[0].path, text_bytes(copy->files->bytes, wanted),
		text_bytes(room, free_text));
}

int export_copy_check(const struct export_copy *copy)
{
	int code = COMMAND_DONE;

	for (size_t i = 0; i < copy->files->count && code == COMMAND_DONE; i++)
		code = partial_check(copy->files->files[i].path, copy->may_replace);
	if (code == COMMAND_DONE && copy->files->index_path)
		code = partial_check(copy->files->index_path, copy->may_replace);
	return code;
}

static int write_all(struct export_copy *copy, struct partial **partials)
{
	const struct export_files *files = copy->files;
	int code = COMMAND_DONE;

	for (size_t i = 0; i < files->count && code == COMMAND_DONE; i++) {
		code = partial_new(files->files[i].path, &partials[i]);
		if (code == COMMAND_DONE && i == 0)
			code = check_room(copy, partial_fd(partials[i]));
		if (code == COMMAND_DONE)
			code = write_file(copy, &files->files[i], partial_fd(partials[i]));
	}
	if (code != COMMAND_DONE || !files->index_path)
		return code;
	code = partial_new(files->index_path, &partials[files->count]);
	return code == COMMAND_DONE ? write_index(copy, partial_fd(partials[files->count])) : code;
}

int export_copy_run(struct export_copy *copy)
{
	size_t count = copy->files->count + (copy->files->index_path != NULL);
	_cleanup_free_ struct partial **partials = calloc(count, sizeof(struct partial *));
	struct export_old old = { NULL };
	int code = partials ? COMMAND_DONE : command_fail_memory();

	copy->bytes = 0;
	copy->is_stale = false;
	if (code == COMMAND_DONE)
		code = write_all(copy, partials);
	if (code == COMMAND_DONE && copy->may_replace)
		code = export_old_find(&old, copy->files);
	if (code == COMMAND_DONE)
		code = partial_publish(partials, count, copy->may_replace);
	if (code == COMMAND_DONE)
		code = export_old_remove(&old);
	export_old_clear(&old);
	for (size_t i = 0; partials && i < count; i++)
		partial_free(partials[i]);
	return code;
}
