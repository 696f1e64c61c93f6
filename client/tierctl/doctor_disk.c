#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

#include "client/tierctl/doctor.h"
#include "client/tierctl/table.h"
#include "common/clock.h"
#include "common/cleanup.h"
#include "common/size.h"

/* Long enough to get past a device's own cache of a few pieces, short enough beside a training job. */
#define PIECE_BYTES (4 * MIB)
#define MOST_BYTES (256 * MIB)
#define MOST_NS UINT64_C(500000000)

/* A slow NVMe device does several times as much; a spinning disk, or a throttled one in the net, does not. */
#define POOR_BYTES_PER_SECOND (400 * MIB)

enum direction { READ, WRITE };

/* Only what has been written is read. */
struct disk {
	int fd;
	char *buffer;
	uint64_t most, written;
};

static int move(struct disk *disk, enum direction direction, uint64_t offset)
{
	ssize_t moved = direction == WRITE ? pwrite(disk->fd, disk->buffer, PIECE_BYTES, (off_t)offset)
					   : pread(disk->fd, disk->buffer, PIECE_BYTES, (off_t)offset);

	return moved < 0 ? -errno : moved < (ssize_t)PIECE_BYTES ? -EIO : 0;
}

/* Measures one direction, from the start of the file. */
static int measure(struct disk *disk, enum direction direction, uint64_t *ret_bytes_per_second)
{
	uint64_t most = direction == WRITE ? disk->most : disk->written, offset = 0;
	uint64_t began = clock_now_ns(), passed = 0;

	for (; offset < most && passed < MOST_NS; offset += PIECE_BYTES) {
		int r = move(disk, direction, offset);

		if (r < 0)
			return r;
		passed = clock_now_ns() - began;
	}
	/* The device may say that it has what is only in its cache. */
	if (direction == WRITE && fdatasync(disk->fd) < 0)
		return -errno;
	passed = clock_now_ns() - began;
	if (direction == WRITE)
		disk->written = offset;
	*ret_bytes_per_second = (uint64_t)((double)offset * 1e9 / (double)(passed ? passed : 1));
	return 0;
}

/* Bytes of no pattern, since some devices store those without writing. */
static void fill(char *buffer)
{
	uint64_t value = 1, *words = (uint64_t *)buffer;

	for (size_t i = 0; i < PIECE_BYTES / sizeof(*words); i++)
		words[i] = value = value * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

static void report_speed(struct doctor *doctor, const char *path, const uint64_t speed[2])
{
	bool is_poor = speed[READ] < POOR_BYTES_PER_SECOND || speed[WRITE] < POOR_BYTES_PER_SECOND;
	char read[TEXT_SIZE], written[TEXT_SIZE];
	cJSON *json = doctor_add(doctor, is_poor ? FINDING_POOR : FINDING_FOUND, "disk speed",
				 is_poor ? "an NVMe device in this machine, with nothing else to do" : NULL,
				 "%s: %s/s read, %s/s written and flushed, by one transfer at a time", path,
				 text_bytes(speed[READ], read), text_bytes(speed[WRITE], written));

	cJSON_AddNumberToObject(json, "read_bytes_per_second", (double)speed[READ]);
	cJSON_AddNumberToObject(json, "written_bytes_per_second", (double)speed[WRITE]);
}

/* Others write there, too, and a file system may take its time to free what has gone. */
static int leave_room(struct disk *disk)
{
	struct statvfs room;

	if (fstatvfs(disk->fd, &room) < 0)
		return -errno;
	disk->most = (uint64_t)room.f_bavail * room.f_frsize / 4 / PIECE_BYTES * PIECE_BYTES;
	if (disk->most > MOST_BYTES)
		disk->most = MOST_BYTES;
	return disk->most > 0 ? 0 : -ENOSPC;
}

static void look_at_speed(struct doctor *doctor, const char *path, int fd)
{
	_cleanup_free_ void *buffer = NULL;
	struct disk disk = { .fd = fd };
	uint64_t speed[2] = { 0 };
	int r = posix_memalign(&buffer, 4096, PIECE_BYTES) == 0 ? 0 : -ENOMEM;

	disk.buffer = buffer;
	if (r == 0)
		r = leave_room(&disk);
	if (r == 0) {
		fill(disk.buffer);
		r = measure(&disk, WRITE, &speed[WRITE]);
	}
	if (r == 0)
		r = measure(&disk, READ, &speed[READ]);
	if (r < 0)
		doctor_add(doctor, r == -ENOSPC ? FINDING_MISSING : FINDING_UNKNOWN, "disk speed",
			   r == -ENOSPC ? "free space on that disk" : NULL, "%s: %s", path, strerror(-r));
	else
		report_speed(doctor, path, speed);
}

/* A file without a name, as soon as it is there. -EINVAL: the file system refuses O_DIRECT. */
static int open_scratch(const char *folder)
{
	_cleanup_free_ char *name = NULL;
	int fd, r;

	if (asprintf(&name, "%s/.doctor-XXXXXX", folder) < 0)
		return -ENOMEM;
	fd = mkostemp(name, O_DIRECT | O_CLOEXEC);
	r = -errno;
	unlink(name);
	return fd < 0 ? r : fd;
}

static bool is_told_not_to(const struct doctor *doctor, const char *path)
{
	for (size_t i = 0; doctor->node && i < doctor->node->n_paths; i++)
		if (strcmp(doctor->node->paths[i]->path, path) == 0)
			return !doctor->node->paths[i]->is_direct;
	return false;
}

void doctor_look_at_disk(struct doctor *doctor, const char *path, const char *folder)
{
	_cleanup_close_ int fd = open_scratch(folder);
	char remedy[TEXT_SIZE + 32], user[TEXT_SIZE];
	const char *runner = doctor_user(doctor, user);

	snprintf(remedy, sizeof(remedy), "run it as root%s%s", strcmp(runner, "root") == 0 ? "" : ", or as ",
		 strcmp(runner, "root") == 0 ? "" : runner);
	if (fd == -EINVAL || fd == -EOPNOTSUPP)
		doctor_add(doctor, FINDING_MISSING, "O_DIRECT", "a file system that has it: ext4 or XFS",
			   "%s: the file system refuses it, so all goes through the page cache", path);
	else if (fd < 0)
		doctor_add(doctor, FINDING_UNKNOWN, "O_DIRECT", remedy, "%s: no file can be made there: %s",
			   path, strerror(-fd));
	else if (is_told_not_to(doctor, path))
		doctor_add(doctor, FINDING_MISSING, "O_DIRECT", "direct = auto in the configuration",
			   "%s: it works, but tierd was told to do without", path);
	else
		doctor_add(doctor, FINDING_FOUND, "O_DIRECT", NULL, "%s", path);
	if (fd >= 0 && !doctor->is_quick)
		look_at_speed(doctor, path, fd);
}
