/* 8 bytes "tierdwea", the number of entries, of each: the length of the path, the path, and its numbers; at
 * the end the XXH3-64 of all that. Each number has 8 bytes, little endian. */
#include "daemon/observe/wear_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/cleanup.h"
#include "common/little_endian.h"
#include "daemon/durability/durability.h"

#define MAGIC "tierdwea"
#define NAME "written"
#define WORDS (3 + WEAR_DAYS)
#define MOST_BYTES (16 + WEAR_FILE_MAX_PATHS * (8 + WEAR_FILE_MAX_PATH + WORDS * 8) + 8)

void wear_file_clear(struct wear_file *file)
{
	while (file->count > 0)
		free(file->entries[--file->count].path);
}

struct wear *wear_file_find(struct wear_file *file, const char *path)
{
	struct wear_entry *entry = &file->entries[file->count];

	for (size_t i = 0; i < file->count; i++)
		if (strcmp(file->entries[i].path, path) == 0)
			return &file->entries[i].wear;
	if (file->count == WEAR_FILE_MAX_PATHS || strlen(path) > WEAR_FILE_MAX_PATH)
		return NULL;
	*entry = (struct wear_entry){ .path = strdup(path) };
	if (!entry->path)
		return NULL;
	file->count++;
	return &entry->wear;
}

/* ---- Bytes ---- */

struct cursor {
	const uint8_t *bytes;
	size_t left;
};

static int take_word(struct cursor *cursor, uint64_t *ret_word)
{
	if (cursor->left < 8)
		return -EBADMSG;
	*ret_word = get64(cursor->bytes);
	cursor->bytes += 8;
	cursor->left -= 8;
	return 0;
}

static int take_entry(struct cursor *cursor, struct wear_file *file)
{
	uint64_t length, words[WORDS];
	char path[WEAR_FILE_MAX_PATH + 1];
	struct wear *wear;
	int r = take_word(cursor, &length);

	if (r < 0 || length == 0 || length > WEAR_FILE_MAX_PATH || length > cursor->left)
		return -EBADMSG;
	memcpy(path, cursor->bytes, length);
	path[length] = '\0';
	cursor->bytes += length;
	cursor->left -= length;
	for (size_t i = 0; i < WORDS && r == 0; i++)
		r = take_word(cursor, &words[i]);
	if (r < 0)
		return r;
	wear = wear_file_find(file, path);
	if (!wear)
		return -ENOMEM;
	wear->total = words[0];
	wear->began_s = words[1];
	wear->day = words[2];
	memcpy(wear->days, &words[3], sizeof(wear->days));
	return 0;
}

int wear_file_decode(struct wear_file *file, const void *bytes, size_t length)
{
	struct cursor cursor = { bytes, length - 8 };
	struct wear_file read = { .count = 0 };
	uint64_t magic, count = 0;
	int r;

	if (length < 24 || length > MOST_BYTES ||
	    XXH3_64bits(bytes, length - 8) != get64((const uint8_t *)bytes + length - 8) ||
	    memcmp(bytes, MAGIC, 8) != 0)
		return -EBADMSG;
	r = take_word(&cursor, &magic);
	if (r == 0)
		r = take_word(&cursor, &count);
	if (r == 0 && count > WEAR_FILE_MAX_PATHS)
		r = -EBADMSG;
	for (uint64_t i = 0; i < count && r == 0; i++)
		r = take_entry(&cursor, &read);
	if (r == 0 && cursor.left > 0)
		r = -EBADMSG;
	if (r < 0) {
		wear_file_clear(&read);
		return r;
	}
	*file = read;
	return 0;
}

static uint8_t *put_word(uint8_t *bytes, uint64_t word)
{
	put64(bytes, word);
	return bytes + 8;
}

int wear_file_encode(const struct wear_file *file, void **ret_bytes, size_t *ret_length)
{
	size_t length = 16 + 8;
	uint8_t *bytes, *at;

	for (size_t i = 0; i < file->count; i++)
		length += 8 + strlen(file->entries[i].path) + WORDS * 8;
	bytes = malloc(length);
	if (!bytes)
		return -ENOMEM;
	memcpy(bytes, MAGIC, 8);
	at = put_word(bytes + 8, file->count);
	for (size_t i = 0; i < file->count; i++) {
		const struct wear_entry *entry = &file->entries[i];
		size_t path = strlen(entry->path);

		at = put_word(at, path);
		memcpy(at, entry->path, path);
		at = put_word(at + path, entry->wear.total);
		at = put_word(at, entry->wear.began_s);
		at = put_word(at, entry->wear.day);
		for (unsigned day = 0; day < WEAR_DAYS; day++)
			at = put_word(at, entry->wear.days[day]);
	}
	put_word(at, XXH3_64bits(bytes, length - 8));
	*ret_bytes = bytes;
	*ret_length = length;
	return 0;
}

/* ---- The file ---- */

int wear_file_read(struct wear_file *file, const char *directory)
{
	_cleanup_free_ void *bytes = NULL;
	char aside[STATE_FILE_NAME];
	size_t length;
	int r = state_file_read_in(directory, NAME, MOST_BYTES, &bytes, &length);

	if (r == 0)
		r = wear_file_decode(file, bytes, length);
	if (r == -EFBIG)
		r = -EBADMSG;
	if (r == -EBADMSG)
		(void)state_file_set_aside(directory, NAME, aside);
	return r;
}

int wear_file_write(const char *directory, const void *bytes, size_t length)
{
	return state_file_write_in(directory, NAME, bytes, length);
}
