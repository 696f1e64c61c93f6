#include "offload/device/nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/own.h"
#include "common/size.h"
#include "offload/device/schedule.h"

#define BLOCK_BYTES 4096
#define LOCK_NAP_MS 20

struct nvme_tier {
	struct tier tier;
	struct engine *engine;
	int fd, directory_fd;
	int file; /* the engine's slot; -1: none yet */
	bool is_direct, is_kept, has_name;
	char *name;
	char *label;
	uint64_t *moved;
};

static int nvme_submit(struct tier *tier, struct tier_io *io)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);
	int r = engine_submit(nvme->engine, nvme->file, io);

	if (r == 0 && nvme->moved && io->direction != TIER_FLUSH)
		nvme->moved[io->direction] += io->length;
	return r;
}

static void nvme_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority)
{
	engine_raise(container_of(tier, struct nvme_tier, tier)->engine, io, priority);
}

static void nvme_weigh(struct tier *tier, const struct tier_share *share)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);

	engine_file_weigh(nvme->engine, nvme->file, share);
}

static void nvme_keep(struct tier *tier, bool is_kept)
{
	container_of(tier, struct nvme_tier, tier)->is_kept = is_kept;
}

static void discard(struct nvme_tier *nvme)
{
	if (!nvme->has_name || nvme->is_kept)
		return;
	/* Removes the name first, so that a crash in between leaves no file that looks damaged. If truncating
	 * fails, the space is freed with the last descriptor. */
	(void)unlinkat(nvme->directory_fd, nvme->name, 0);
	(void)!ftruncate(nvme->fd, 0);
}

static void nvme_free(struct tier *tier)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);

	discard(nvme);
	if (nvme->file >= 0)
		engine_file_remove(nvme->engine, nvme->file);
	fd_close(nvme->fd);
	fd_close(nvme->directory_fd);
	free(nvme->name);
	free(nvme->label);
	free(nvme);
}

/* If the file system cannot allocate, the C library writes a byte to each block, which O_DIRECT refuses. */
static int allocate_by_writing(struct nvme_tier *nvme, uint64_t offset, uint64_t length)
{
	_cleanup_close_ int fd = own_open(nvme->directory_fd, nvme->name, O_RDWR, 0);

	if (fd < 0)
		return fd;
	return -posix_fallocate(fd, (off_t)offset, (off_t)length);
}

static int allocate_blocks(struct nvme_tier *nvme, uint64_t offset, uint64_t length)
{
	int r;

	do
		r = fallocate(nvme->fd, 0, (off_t)offset, (off_t)length) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r == -EOPNOTSUPP ? allocate_by_writing(nvme, offset, length) : r;
}

/* Looks first, because fallocate would fill the disk before it fails. */
static bool has_room(const struct nvme_tier *nvme, uint64_t length)
{
	struct statvfs status;

	return fstatvfs(nvme->fd, &status) < 0 || length / status.f_frsize <= status.f_bavail;
}

/* Allocates the file from offset to end, or leaves it as it was. */
static int allocate_to(struct nvme_tier *nvme, uint64_t offset, uint64_t end)
{
	int r = has_room(nvme, end - offset) ? allocate_blocks(nvme, offset, end - offset) : -ENOSPC;

	/* Frees what was allocated before the disk was full. */
	if (r < 0 &&
	    (ftruncate(nvme->fd, (off_t)offset) < 0 || ftruncate(nvme->fd, (off_t)nvme->tier.capacity) < 0))
		return -errno;
	return r;
}

static int nvme_grow(struct tier *tier, uint64_t capacity)
{
	return allocate_to(container_of(tier, struct nvme_tier, tier), tier->capacity, capacity);
}

static const struct tier_ops nvme_ops = {
	.block_size = BLOCK_BYTES,
	.submit = nvme_submit,
	.raise = nvme_raise,
	.weigh = nvme_weigh,
	.grow = nvme_grow,
	.keep = nvme_keep,
	.free = nvme_free,
};

static struct nvme_tier *nvme_tier_free(struct nvme_tier *nvme)
{
	nvme_free(&nvme->tier);
	return NULL;
}
DEFINE_FREEP(struct nvme_tier *, nvme_tier_free)

static int allocate(const struct nvme_config *config, struct nvme_tier **ret_nvme)
{
	_cleanup_(nvme_tier_freep) struct nvme_tier *nvme = calloc(1, sizeof(*nvme));
	size_t name_size = strlen(config->name) + 1;
	size_t label_size = strlen(config->directory) + 1 + name_size;

	if (!nvme)
		return -ENOMEM;
	nvme->tier = (struct tier){ .ops = &nvme_ops, .capacity = config->capacity };
	nvme->engine = config->engine;
	nvme->moved = config->moved;
	nvme->fd = nvme->directory_fd = nvme->file = -1;
	nvme->name = malloc(name_size);
	nvme->label = malloc(label_size);
	if (!nvme->name || !nvme->label)
		return -ENOMEM;
	memcpy(nvme->name, config->name, name_size);
	snprintf(nvme->label, label_size, "%s/%s", config->directory, config->name);
	nvme->tier.label = nvme->label;
	nvme->directory_fd = fcntl(config->directory_fd, F_DUPFD_CLOEXEC, 0);
	if (nvme->directory_fd < 0)
		return -errno;
	*ret_nvme = TAKE_PTR(nvme);
	return 0;
}

/* Some file systems refuse O_DIRECT only after they have created the file, so it is switched on afterwards.
 */
static int switch_direct(struct nvme_tier *nvme)
{
	if (fcntl(nvme->fd, F_SETFL, O_DIRECT) == 0)
		nvme->is_direct = true;
	else if (errno != EINVAL)
		return -errno;
	return 0;
}

static int create_file(struct nvme_tier *nvme, const struct nvme_config *config)
{
	nvme->fd = own_open(nvme->directory_fd, nvme->name, O_RDWR | O_CREAT | O_EXCL,
			    config->is_unfinished ? NVME_UNFINISHED_MODE : 0600);
	if (nvme->fd < 0)
		return nvme->fd;
	nvme->has_name = true;
	if (flock(nvme->fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	return config->is_buffered ? 0 : switch_direct(nvme);
}

/* Locks the description that is used for I/O, because the kernel keeps it while a write is in flight. */
static int lock_file(int fd, unsigned lock_ms)
{
	const struct timespec nap = { .tv_nsec = LOCK_NAP_MS * 1000000L };

	for (unsigned waited = 0;; waited += LOCK_NAP_MS) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		if (waited >= lock_ms)
			return -EBUSY;
		nanosleep(&nap, NULL);
	}
}

static int open_file(struct nvme_tier *nvme, bool is_buffered, unsigned lock_ms)
{
	struct stat status;
	int r;

	nvme->fd = own_open(nvme->directory_fd, nvme->name, O_RDWR, 0);
	if (nvme->fd < 0)
		return nvme->fd;
	if (fstat(nvme->fd, &status) < 0)
		return -errno;
	if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) ||
	    status.st_size < (off_t)MIB)
		return -EINVAL;
	r = lock_file(nvme->fd, lock_ms);
	if (r < 0)
		return r;
	nvme->has_name = true;
	nvme->tier.capacity = (uint64_t)status.st_size / MIB * MIB;
	return is_buffered ? 0 : switch_direct(nvme);
}

static int add_to_engine(struct nvme_tier *nvme, const struct nvme_config *config)
{
	int r = engine_file_add(config->engine, nvme->fd, config->device, &config->share);

	if (r < 0)
		return r;
	nvme->file = r;
	return 0;
}

int nvme_tier_new(const struct nvme_config *config, struct tier **ret_tier)
{
	_cleanup_(nvme_tier_freep) struct nvme_tier *nvme = NULL;
	int r;

	if (config->capacity == 0 || config->capacity % MIB != 0 || config->capacity > INT64_MAX)
		return -EINVAL;
	r = allocate(config, &nvme);
	if (r == 0)
		r = create_file(nvme, config);
	if (r < 0)
		return r;
	if (ftruncate(nvme->fd, (off_t)config->capacity) < 0)
		return -errno;
	r = add_to_engine(nvme, config);
	if (r < 0)
		return r;
	*ret_tier = &TAKE_PTR(nvme)->tier;
	return 0;
}

int nvme_tier_open(const struct nvme_config *config, unsigned lock_ms, struct tier **ret_tier)
{
	_cleanup_(nvme_tier_freep) struct nvme_tier *nvme = NULL;
	int r = allocate(config, &nvme);

	if (r < 0)
		return r;
	nvme->is_kept = true;
	r = open_file(nvme, config->is_buffered, lock_ms);
	if (r == 0)
		r = add_to_engine(nvme, config);
	if (r < 0)
		return r;
	*ret_tier = &TAKE_PTR(nvme)->tier;
	return 0;
}

int nvme_tier_reserve(struct tier *tier)
{
	return allocate_to(container_of(tier, struct nvme_tier, tier), 0, tier->capacity);
}

bool nvme_tier_is_direct(const struct tier *tier)
{
	return container_of(tier, struct nvme_tier, tier)->is_direct;
}
