#include "common/reservation.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/cleanup.h"

#define BTRFS_MAGIC 0x9123683e
#define ZFS_MAGIC 0x2fc12fc1
#define BCACHEFS_MAGIC 0xca451a4e
#define NILFS_MAGIC 0x3434
#define TMPFS_MAGIC 0x01021994
#define RAMFS_MAGIC 0x858458f6
#define HUGETLBFS_MAGIC 0x958458f6

/* How far a device may be made of others: thin below crypt below linear, and so on. */
#define DEPTH 8

#define COPIES "where what is written goes to new places, not to those that were reserved"

#define MEMORY "which is memory, and no disk: what lies there ends with the machine"
#define DISK "take a folder on an NVMe device"

static const struct {
	uint64_t magic;
	struct reservation_breach breach;
} types[] = {
	{ BTRFS_MAGIC,
	  { "btrfs", COPIES, "chattr +C on the folder tierd in it while that is empty, or ext4 or XFS" } },
	{ ZFS_MAGIC, { "zfs", COPIES, "take ext4 or XFS" } },
	{ BCACHEFS_MAGIC, { "bcachefs", COPIES, "take ext4 or XFS" } },
	{ NILFS_MAGIC, { "nilfs2", COPIES, "take ext4 or XFS" } },
	{ TMPFS_MAGIC, { "tmpfs", MEMORY, DISK, .is_memory = true } },
	{ RAMFS_MAGIC, { "ramfs", MEMORY, DISK, .is_memory = true } },
	{ HUGETLBFS_MAGIC, { "hugetlbfs", MEMORY, DISK, .is_memory = true } },
};

static const struct reservation_breach thin = { "a thin volume",
						"where its pool may have no room when that is written",
						"take a volume that has all of its space" };

const struct reservation_breach *reservation_of_type(uint64_t magic, bool is_copied)
{
	for (size_t i = 0; i < ARRAY_LENGTH(types); i++)
		if (types[i].magic == magic)
			return magic == BTRFS_MAGIC && !is_copied ? NULL : &types[i].breach;
	return NULL;
}

/* ---- Devices ---- */

/* Of a pool of thin volumes, as LVM names it. */
static bool is_pool(int device_fd)
{
	_cleanup_close_ int fd = openat(device_fd, "dm/uuid", O_RDONLY | O_CLOEXEC);
	char uuid[256];
	ssize_t length = fd >= 0 ? read(fd, uuid, sizeof(uuid) - 1) : -1;

	if (length <= 0)
		return false;
	uuid[length] = '\0';
	return strstr(uuid, "-tpool") || strstr(uuid, "-vpool");
}

static bool lies_on_pool(int device_fd, unsigned depth)
{
	int fd = openat(device_fd, "slaves", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *slaves = fd >= 0 ? fdopendir(fd) : NULL;
	bool found = false;

	if (!slaves) {
		fd_close(fd);
		return false;
	}
	for (struct dirent *entry = readdir(slaves); entry && !found; entry = readdir(slaves)) {
		_cleanup_close_ int slave = -1;

		if (entry->d_name[0] == '.')
			continue;
		slave = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		found = slave >= 0 && (is_pool(slave) || (depth > 1 && lies_on_pool(slave, depth - 1)));
	}
	closedir(slaves);
	return found;
}

const struct reservation_breach *reservation_of_device(const char *devices, dev_t device)
{
	_cleanup_close_ int fd = -1;
	char path[512];

	snprintf(path, sizeof(path), "%s/%u:%u", devices, major(device), minor(device));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd >= 0 && lies_on_pool(fd, DEPTH) ? &thin : NULL;
}

const struct reservation_breach *reservation_look(int fd)
{
	const struct reservation_breach *breach;
	struct statfs system;
	struct stat status;
	int flags = 0;

	if (fstatfs(fd, &system) < 0 || fstat(fd, &status) < 0)
		return NULL;
	bool is_copied = ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 || !(flags & FS_NOCOW_FL);

	breach = reservation_of_type((uint64_t)(uint32_t)system.f_type, is_copied);
	return breach ? breach : reservation_of_device("/sys/dev/block", status.st_dev);
}
