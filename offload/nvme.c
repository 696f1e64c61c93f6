#include "offload/nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "common/size.h"
#include "offload/schedule.h"

#define BLOCK_BYTES 4096

struct nvme_tier {
	struct tier tier;
	struct engine *engine;
	int fd, directory_fd;
	int file; /* the engine's slot; -1: none yet */
	bool is_direct, is_created;
	char *name;
	char *label;
};

static int nvme_submit(struct tier *tier, struct tier_io *io)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);

	return engine_submit(nvme->engine, nvme->file, io);
}

static void nvme_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority)
{
	engine_raise(container_of(tier, struct nvme_tier, tier)->engine, io, priority);
}

void nvme_tier_discard(struct tier *tier)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);

	if (!nvme->is_created)
		return;
	/* The name goes in any case; what cannot be cut goes with the last descriptor. */
	(void)!ftruncate(nvme->fd, 0);
	(void)unlinkat(nvme->directory_fd, nvme->name, 0);
	nvme->is_created = false;
}

static void nvme_free(struct tier *tier)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);

	nvme_tier_discard(tier);
	if (nvme->file >= 0)
		engine_file_remove(nvme->engine, nvme->file);
	fd_close(nvme->fd);
	fd_close(nvme->directory_fd);
	free(nvme->name);
	free(nvme->label);
	free(nvme);
}

static const struct tier_ops nvme_ops = {
	.name = "nvme",
	.block_size = BLOCK_BYTES,
	.submit = nvme_submit,
	.raise = nvme_raise,
	.free = nvme_free,
};

static struct nvme_tier *nvme_tier_free(struct nvme_tier *nvme)
{
	nvme_free(&nvme->tier);
	return NULL;
}
DEFINE_FREEP(struct nvme_tier *, nvme_tier_free)

static struct nvme_tier *allocate(const struct nvme_config *config)
{
	_cleanup_(nvme_tier_freep) struct nvme_tier *nvme = calloc(1, sizeof(*nvme));
	size_t name_size = strlen(config->name) + 1;
	size_t label_size = strlen(config->directory) + 1 + name_size;

	if (!nvme)
		return NULL;
	nvme->tier = (struct tier){ .ops = &nvme_ops, .capacity = config->capacity };
	nvme->engine = config->engine;
	nvme->fd = nvme->directory_fd = nvme->file = -1;
	nvme->name = malloc(name_size);
	nvme->label = malloc(label_size);
	if (!nvme->name || !nvme->label)
		return NULL;
	memcpy(nvme->name, config->name, name_size);
	snprintf(nvme->label, label_size, "%s/%s", config->directory, config->name);
	nvme->tier.label = nvme->label;
	return TAKE_PTR(nvme);
}

/* Some file systems refuse O_DIRECT only after they have created the file, so it is switched on there. */
static int create_file(struct nvme_tier *nvme, bool is_buffered)
{
	nvme->fd = openat(nvme->directory_fd, nvme->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
			  0600);
	if (nvme->fd < 0)
		return -errno;
	nvme->is_created = true;
	if (is_buffered)
		return 0;
	if (fcntl(nvme->fd, F_SETFL, O_DIRECT) == 0)
		nvme->is_direct = true;
	else if (errno != EINVAL)
		return -errno;
	return 0;
}

int nvme_tier_new(const struct nvme_config *config, struct tier **ret_tier)
{
	_cleanup_(nvme_tier_freep) struct nvme_tier *nvme = NULL;
	int r;

	if (config->capacity == 0 || config->capacity % MIB != 0 || config->capacity > INT64_MAX)
		return -EINVAL;
	nvme = allocate(config);
	if (!nvme)
		return -ENOMEM;
	nvme->directory_fd = fcntl(config->directory_fd, F_DUPFD_CLOEXEC, 0);
	if (nvme->directory_fd < 0)
		return -errno;
	r = create_file(nvme, config->is_buffered);
	if (r < 0)
		return r;
	if (ftruncate(nvme->fd, (off_t)config->capacity) < 0)
		return -errno;
	r = engine_file_add(config->engine, nvme->fd, config->device,
			    config->weight ? config->weight : SCHEDULE_DEFAULT_WEIGHT);
	if (r < 0)
		return r;
	nvme->file = r;
	*ret_tier = &TAKE_PTR(nvme)->tier;
	return 0;
}

/* Where the file system cannot allocate, the C library writes a byte into each block, which O_DIRECT would
 * refuse. */
static int allocate_by_writing(struct nvme_tier *nvme)
{
	_cleanup_close_ int fd = openat(nvme->directory_fd, nvme->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return -posix_fallocate(fd, 0, (off_t)nvme->tier.capacity);
}

static int allocate_blocks(struct nvme_tier *nvme)
{
	int r;

	do
		r = fallocate(nvme->fd, 0, 0, (off_t)nvme->tier.capacity) < 0 ? -errno : 0;
	while (r == -EINTR);
	return r == -EOPNOTSUPP ? allocate_by_writing(nvme) : r;
}

/* Asked first: fallocate would take all that there is before it fails, and others on the disk would meet a
 * full one. */
static bool has_room(const struct nvme_tier *nvme)
{
	struct statvfs status;

	return fstatvfs(nvme->fd, &status) < 0 || nvme->tier.capacity / status.f_frsize <= status.f_bavail;
}

int nvme_tier_reserve(struct tier *tier)
{
	struct nvme_tier *nvme = container_of(tier, struct nvme_tier, tier);
	int r = has_room(nvme) ? allocate_blocks(nvme) : -ENOSPC;

	/* What was allocated before the disk was full goes back. */
	if (r < 0 && (ftruncate(nvme->fd, 0) < 0 || ftruncate(nvme->fd, (off_t)tier->capacity) < 0))
		return -errno;
	return r;
}

bool nvme_tier_is_direct(const struct tier *tier)
{
	return container_of(tier, struct nvme_tier, tier)->is_direct;
}
