#include "daemon/durability/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/own.h"

#define MOST_DAMAGED 1000

static int read_all(int fd, uint8_t *bytes, size_t size, size_t *ret_length)
{
	size_t length = 0;
	ssize_t got = 1;

	while (length < size && got != 0) {
		got = read(fd, bytes + length, size - length);
		if (got < 0 && errno != EINTR)
			return -errno;
		length += got > 0 ? (size_t)got : 0;
	}
	*ret_length = length;
	return 0;
}

int state_file_read(int folder_fd, const char *name, size_t most, void **ret_bytes, size_t *ret_length)
{
	_cleanup_close_ int fd = own_open(folder_fd, name, O_RDONLY, 0);
	_cleanup_free_ uint8_t *bytes = NULL;
	struct stat status;
	size_t length = 0;
	int r;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;
	if (status.st_size < 0 || (uint64_t)status.st_size > most)
		return -EFBIG;
	/* One more: what grows meanwhile is not taken for a part of itself. */
	bytes = malloc((size_t)status.st_size + 1);
	if (!bytes)
		return -ENOMEM;
	r = read_all(fd, bytes, (size_t)status.st_size + 1, &length);
	if (r < 0)
		return r;
	*ret_bytes = TAKE_PTR(bytes);
	*ret_length = length;
	return 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t put = write(fd, bytes + done, length - done);

		if (put < 0 && errno != EINTR)
			return -errno;
		done += put > 0 ? (size_t)put : 0;
	}
	return fsync(fd) < 0 ? -errno : 0;
}

int state_file_write(int folder_fd, const char *name, const void *bytes, size_t length)
{
	_cleanup_close_ int fd = -1;
	char new_name[STATE_FILE_NAME];
	int r;

	snprintf(new_name, sizeof(new_name), "%s.new", name);
	/* Whatever has that name, a link to another file, say, is not written to. */
	(void)unlinkat(folder_fd, new_name, 0);
	fd = own_open(folder_fd, new_name, O_WRONLY | O_CREAT | O_EXCL, 0600);
	r = fd < 0 ? fd : write_all(fd, bytes, length);
	if (r == 0 && renameat(folder_fd, new_name, folder_fd, name) < 0)
		r = -errno;
	if (r < 0 && fd >= 0)
		(void)unlinkat(folder_fd, new_name, 0);
	return r == 0 && fsync(folder_fd) < 0 ? -errno : r;
}

int state_file_read_in(const char *directory, const char *name, size_t most, void **ret_bytes,
		       size_t *ret_length)
{
	_cleanup_close_ int folder = own_open_folder(AT_FDCWD, directory);

	return folder < 0 ? folder : state_file_read(folder, name, most, ret_bytes, ret_length);
}

int state_file_write_in(const char *directory, const char *name, const void *bytes, size_t length)
{
	_cleanup_close_ int folder = own_open_folder(AT_FDCWD, directory);

	return folder < 0 ? folder : state_file_write(folder, name, bytes, length);
}

int state_file_set_aside(const char *directory, const char *name, char ret_name[STATE_FILE_NAME])
{
	_cleanup_close_ int folder = own_open_folder(AT_FDCWD, directory);
	char aside[STATE_FILE_NAME];

	if (folder < 0)
		return folder;
	for (unsigned i = 1; i <= MOST_DAMAGED; i++) {
		if (i == 1)
			snprintf(aside, sizeof(aside), "%s.damaged", name);
		else
			snprintf(aside, sizeof(aside), "%s.damaged-%u", name, i);
		if (faccessat(folder, aside, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
			continue;
		if (renameat(folder, name, folder, aside) < 0)
			return -errno;
		snprintf(ret_name, STATE_FILE_NAME, "%s", aside);
		return 0;
	}
	return -EEXIST;
}
