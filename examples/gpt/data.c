#include "data.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "random.h"

#define HELD_OUT_PART 16

struct data {
	uint8_t *bytes;
	size_t size;
	size_t capacity; /* of bytes; 0: they are mapped, not allocated */
	size_t held_out; /* where the held-out part begins */
	size_t context;
};

static bool is_source(const char *name)
{
	static const char *const endings[] = { ".c", ".h", ".md", ".proto", ".build", ".sh", ".py" };
	const char *ending = strrchr(name, '.');

	for (size_t i = 0; ending && i < ARRAY_LENGTH(endings); i++) {
		if (strcmp(ending, endings[i]) == 0)
			return true;
	}
	return false;
}

/* Hidden folders and build folders hold no sources of ours. */
static bool is_skipped(const FTSENT *entry)
{
	return entry->fts_level > 0 &&
	       (entry->fts_name[0] == '.' || strncmp(entry->fts_name, "build", 5) == 0);
}

static int reserve(struct data *data, size_t more)
{
	size_t capacity = data->size + more > 2 * data->capacity ? data->size + more : 2 * data->capacity;
	uint8_t *bytes;

	if (data->size + more <= data->capacity)
		return 0;
	bytes = realloc(data->bytes, capacity);
	if (!bytes)
		return -ENOMEM;
	data->bytes = bytes;
	data->capacity = capacity;
	return 0;
}

static int append_file(struct data *data, const char *path, size_t size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	r = reserve(data, size);
	if (r < 0)
		return r;
	while (size > 0) {
		ssize_t count = read(fd, data->bytes + data->size, size);

		if (count < 0)
			return -errno;
		if (count == 0)
			break;
		data->size += (size_t)count;
		size -= (size_t)count;
	}
	return 0;
}

static int compare_names(const FTSENT **a, const FTSENT **b)
{
	return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int append_tree(struct data *data, char *root)
{
	char *roots[] = { root, NULL };
	FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, compare_names);
	FTSENT *entry;
	int r = 0;

	if (!tree)
		return -errno;
	while (r == 0 && (entry = fts_read(tree))) {
		if (entry->fts_info == FTS_D && is_skipped(entry))
			fts_set(tree, entry, FTS_SKIP);
		else if (entry->fts_info == FTS_F && is_source(entry->fts_name))
			r = append_file(data, entry->fts_accpath, (size_t)entry->fts_statp->st_size);
	}
	fts_close(tree);
	return r;
}

static int map_file(struct data *data, const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat status;
	void *bytes;

	if (fd < 0 || fstat(fd, &status) < 0)
		return -errno;
	if (S_ISDIR(status.st_mode))
		return -EISDIR;
	if (status.st_size == 0)
		return 0;
	bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED)
		return -errno;
	data->bytes = bytes;
	data->size = (size_t)status.st_size;
	return 0;
}

int data_open(const char *path, size_t context, struct data **ret_data)
{
	char sources[] = GPT_SOURCE_ROOT;
	_cleanup_(data_closep) struct data *data = calloc(1, sizeof(*data));
	size_t least = (context + 2) * HELD_OUT_PART;
	int r;

	if (!data)
		return -ENOMEM;
	data->context = context;
	r = path ? map_file(data, path) : append_tree(data, sources);
	if (r < 0) {
		fprintf(stderr, "gpt: cannot read %s: %s\n", path ? path : sources, strerror(-r));
		return r;
	}
	if (data->size < least) {
		fprintf(stderr,
			"gpt: %s: %zu bytes of text are too few for --context %zu; give a --data file of "
			"%zu\n",
			path ? path : sources, data->size, context, least);
		return -ENODATA;
	}
	data->held_out = data->size - data->size / HELD_OUT_PART;
	*ret_data = TAKE_PTR(data);
	return 0;
}

struct data *data_close(struct data *data)
{
	if (!data)
		return NULL;
	if (data->capacity > 0)
		free(data->bytes);
	else if (data->bytes)
		munmap(data->bytes, data->size);
	free(data);
	return NULL;
}

size_t data_size(const struct data *data)
{
	return data->size;
}

void data_train(const struct data *data, const struct data_key *key, size_t batch, uint8_t *ret_bytes)
{
	uint64_t stream = random_at(random_at(random_at(key->seed, key->step), key->rank), key->micro_batch);
	size_t length = data->context + 1;

	for (size_t i = 0; i < batch; i++)
		memcpy(ret_bytes + i * length,
		       data->bytes + random_at(stream, i) % (data->held_out - length + 1), length);
}

void data_evaluate(const struct data *data, size_t index, size_t count, size_t batch, uint8_t *ret_bytes)
{
	size_t length = data->context + 1;
	size_t space = data->size - data->held_out - length, total = count * batch;

	for (size_t i = 0; i < batch; i++)
		memcpy(ret_bytes + i * length,
		       data->bytes + data->held_out + space * (index * batch + i) / total, length);
}
