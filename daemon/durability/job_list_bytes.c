/* 8 bytes "tierdlst", the format, the highest number; how many paths, of each the mark, and the text; how
 * many stores, of each the file, what it is called in its superblocks, the generation, how many paths, of
 * each its number in the list, and how many jobs, of each the name, the number, and whether it is given up.
 * At the end the XXH3-64 of all that. Each number has 8 bytes, little endian; each text is its length, and so
 * many bytes. A later format keeps the first 16 bytes and the last 8. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/cleanup.h"
#include "common/little_endian.h"
#include "daemon/durability/job_list.h"
#include "daemon/durability/own.h"
#include "daemon/durability/job_file.h"
#include "proto/name.h"

#define MAGIC "tierdlst"
#define FORMAT 1
#define LEAST_BYTES 48

/* ---- Reading ---- */

/* What is not there has an error, and is zeros. */
struct cursor {
	const uint8_t *bytes;
	size_t left;
	bool is_bad;
};

static const uint8_t *take(struct cursor *cursor, size_t length)
{
	const uint8_t *bytes = cursor->bytes;

	if (cursor->is_bad || cursor->left < length) {
		cursor->is_bad = true;
		return NULL;
	}
	cursor->bytes += length;
	cursor->left -= length;
	return bytes;
}

static uint64_t take_word(struct cursor *cursor)
{
	const uint8_t *bytes = take(cursor, 8);

	return bytes ? get64(bytes) : 0;
}

static unsigned take_count(struct cursor *cursor, unsigned most)
{
	uint64_t count = take_word(cursor);

	cursor->is_bad |= count > most;
	return cursor->is_bad ? 0 : (unsigned)count;
}

/* Of 1 to size - 1 bytes; else empty. */
static void take_text(struct cursor *cursor, char *text, size_t size)
{
	uint64_t length = take_word(cursor);
	const uint8_t *bytes = length > 0 && length < size ? take(cursor, length) : NULL;

	text[0] = '\0';
	cursor->is_bad |= !bytes || memchr(bytes, '\0', length);
	if (cursor->is_bad)
		return;
	memcpy(text, bytes, length);
	text[length] = '\0';
}

static int take_path(struct cursor *cursor, struct job_list *list)
{
	const uint8_t *mark = take(cursor, MARK_BYTES);
	char path[JOB_LIST_MAX_PATH + 1];
	int r;

	take_text(cursor, path, sizeof(path));
	if (cursor->is_bad || job_list_find_path(list, mark) >= 0)
		return -EBADMSG;
	r = job_list_set_path(list, mark, path);
	return r < 0 ? r : 0;
}

static bool take_job(struct cursor *cursor, struct job_list_store *store)
{
	char name[WIRE_MAX_JOB_NAME + 1];
	uint64_t number, is_given_up;

	take_text(cursor, name, sizeof(name));
	number = take_word(cursor);
	is_given_up = take_word(cursor);
	if (cursor->is_bad || !name_is_word(name, WIRE_MAX_JOB_NAME) || is_given_up > 1 ||
	    number > INT64_MAX || job_list_find_job(store, name))
		return false;
	(void)job_list_add_job(store, name, number);
	job_list_find_job(store, name)->is_given_up = is_given_up;
	return true;
}

static int take_store(struct cursor *cursor, struct job_list *list)
{
	char file[JOB_FILE_BYTES];
	struct job_file job;
	struct job_list_store *store;
	const uint8_t *identity;
	unsigned jobs;

	take_text(cursor, file, sizeof(file));
	identity = take(cursor, sizeof(store->store));
	if (cursor->is_bad || !job_file_parse(file, &job))
		return -EBADMSG;
	store = job_list_add(list, file);
	if (!store)
		return -ENOMEM;
	memcpy(store->store, identity, sizeof(store->store));
	store->generation = take_word(cursor);
	store->path_count = take_count(cursor, NODE_MAX_PATHS);
	for (unsigned i = 0; i < store->path_count; i++)
		store->paths[i] = (uint8_t)take_count(cursor, list->path_count - 1);
	jobs = take_count(cursor, JOB_LIST_MAX_JOBS);
	for (unsigned i = 0; i < jobs; i++)
		if (!take_job(cursor, store))
			return -EBADMSG;
	return cursor->is_bad || jobs == 0 || (store->path_count > 0 && list->path_count == 0) ? -EBADMSG : 0;
}

static int take_list(struct cursor *cursor, struct job_list *list)
{
	unsigned paths, stores;
	int r = 0;

	list->highest = take_word(cursor);
	paths = take_count(cursor, JOB_LIST_MAX_PATHS);
	for (unsigned i = 0; i < paths && r == 0; i++)
		r = take_path(cursor, list);
	stores = take_count(cursor, JOB_LIST_MAX_BYTES);
	for (unsigned i = 0; i < stores && r == 0; i++)
		r = take_store(cursor, list);
	if (r == 0 && (cursor->is_bad || cursor->left > 0 || list->highest > INT64_MAX))
		r = -EBADMSG;
	return r;
}

int job_list_decode(struct job_list *list, const void *bytes, size_t length)
{
	struct cursor cursor = { bytes, length - 8, false };
	struct job_list read = { 0 };
	int r;

	if (length < LEAST_BYTES || memcmp(bytes, MAGIC, 8) != 0 ||
	    XXH3_64bits(bytes, length - 8) != get64((const uint8_t *)bytes + length - 8))
		return -EBADMSG;
	(void)take(&cursor, 8);
	if (take_word(&cursor) != FORMAT)
		return -EPROTONOSUPPORT;
	r = take_list(&cursor, &read);
	if (r < 0)
		job_list_clear(&read);
	else
		*list = read;
	return r;
}

/* ---- Writing ---- */

static size_t text_bytes(const char *text)
{
	return 8 + strlen(text);
}

static size_t list_bytes(const struct job_list *list)
{
	size_t bytes = LEAST_BYTES;

	for (unsigned i = 0; i < list->path_count; i++)
		bytes += MARK_BYTES + text_bytes(list->paths[i].path);
	for (size_t i = 0; i < list->store_count; i++) {
		const struct job_list_store *store = &list->stores[i];

		bytes += text_bytes(store->file) + sizeof(store->store) + (3 + store->path_count) * 8;
		for (unsigned k = 0; k < store->job_count; k++)
			bytes += text_bytes(store->jobs[k].name) + 16;
	}
	return bytes;
}

static uint8_t *put_word(uint8_t *at, uint64_t word)
{
	put64(at, word);
	return at + 8;
}

static uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t length)
{
	memcpy(at, bytes, length);
	return at + length;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
	return put_bytes(put_word(at, strlen(text)), text, strlen(text));
}

static uint8_t *put_store(uint8_t *at, const struct job_list_store *store)
{
	at = put_text(at, store->file);
	at = put_bytes(at, store->store, sizeof(store->store));
	at = put_word(at, store->generation);
	at = put_word(at, store->path_count);
	for (unsigned i = 0; i < store->path_count; i++)
		at = put_word(at, store->paths[i]);
	at = put_word(at, store->job_count);
	for (unsigned i = 0; i < store->job_count; i++) {
		at = put_text(at, store->jobs[i].name);
		at = put_word(at, store->jobs[i].number);
		at = put_word(at, store->jobs[i].is_given_up);
	}
	return at;
}

int job_list_encode(const struct job_list *list, void **ret_bytes, size_t *ret_length)
{
	size_t length = list_bytes(list);
	uint8_t *bytes = malloc(length), *at;

	if (!bytes)
		return -ENOMEM;
	at = put_bytes(bytes, MAGIC, 8);
	at = put_word(at, FORMAT);
	at = put_word(at, list->highest);
	at = put_word(at, list->path_count);
	for (unsigned i = 0; i < list->path_count; i++) {
		at = put_bytes(at, list->paths[i].mark, MARK_BYTES);
		at = put_text(at, list->paths[i].path);
	}
	at = put_word(at, list->store_count);
	for (size_t i = 0; i < list->store_count; i++)
		at = put_store(at, &list->stores[i]);
	put_word(at, XXH3_64bits(bytes, length - 8));
	*ret_bytes = bytes;
	*ret_length = length;
	return 0;
}
