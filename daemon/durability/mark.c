/* A line of text: "tierd 1 ", and the mark in hexadecimal digits. */
#include "daemon/durability/mark.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/cleanup.h"
#include "daemon/durability/state_file.h"

#define FRONT "tierd 1 "
#define TEXT_BYTES (sizeof(FRONT) - 1 + 2 * MARK_BYTES + 1)

static void print(const uint8_t mark[MARK_BYTES], char text[TEXT_BYTES + 1])
{
	size_t used = (size_t)snprintf(text, TEXT_BYTES + 1, FRONT);

	for (unsigned i = 0; i < MARK_BYTES; i++)
		used += (size_t)snprintf(text + used, TEXT_BYTES + 1 - used, "%02x", mark[i]);
	snprintf(text + used, TEXT_BYTES + 1 - used, "\n");
}

int mark_read(int folder_fd, uint8_t ret_mark[MARK_BYTES])
{
	_cleanup_free_ void *bytes = NULL;
	char text[TEXT_BYTES + 1] = "", again[TEXT_BYTES + 1];
	uint8_t mark[MARK_BYTES];
	size_t length;
	int r = state_file_read(folder_fd, MARK_NAME, TEXT_BYTES, &bytes, &length);

	if (r < 0)
		return r == -EFBIG ? -EBADMSG : r;
	if (length != TEXT_BYTES)
		return -EBADMSG;
	memcpy(text, bytes, length);
	for (unsigned i = 0; i < MARK_BYTES; i++)
		if (sscanf(text + sizeof(FRONT) - 1 + (size_t)2 * i, "%2hhx", &mark[i]) != 1)
			return -EBADMSG;
	print(mark, again);
	if (memcmp(text, again, TEXT_BYTES) != 0)
		return -EBADMSG;
	memcpy(ret_mark, mark, MARK_BYTES);
	return 0;
}

int mark_make(int folder_fd, uint8_t ret_mark[MARK_BYTES])
{
	uint8_t mark[MARK_BYTES];
	char text[TEXT_BYTES + 1];
	int r;

	if (getrandom(mark, sizeof(mark), 0) != sizeof(mark))
		return -EIO;
	print(mark, text);
	r = state_file_write(folder_fd, MARK_NAME, text, TEXT_BYTES);
	if (r == 0)
		memcpy(ret_mark, mark, MARK_BYTES);
	return r;
}
