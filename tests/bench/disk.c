#include "tests/bench/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/bench.h"

static int add_buffers(struct bench_disk *disk, unsigned count)
{
	int r = memory_new_private(count * MIB, &disk->buffers);

	if (r < 0)
		return r;
	memory_make_huge(&disk->buffers, true);
	memset(disk->buffers.base, 1, disk->buffers.length);
	return engine_buffer_add(disk->engine, disk->buffers.base, disk->buffers.length);
}

int bench_disk_open(struct bench_disk *disk, unsigned depth)
{
	int r = engine_new(&(struct engine_config){ .queue_depth = depth }, &disk->engine);

	if (r == 0)
		r = bench_make_folder(disk->folder, sizeof(disk->folder));
	if (r < 0)
		return r;
	disk->folder_fd = open(disk->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return disk->folder_fd < 0 ? -errno : add_buffers(disk, depth);
}

int bench_disk_add(const struct bench_disk *disk, uint64_t bytes, struct tier **ret_tier)
{
	const struct nvme_config config = { .engine = disk->engine,
					    .directory_fd = disk->folder_fd,
					    .directory = disk->folder,
					    .name = "bench",
					    .capacity = bytes };
	struct tier *tier;
	int r = nvme_tier_new(&config, &tier);

	if (r < 0)
		return r;
	r = nvme_tier_reserve(tier);
	if (r < 0)
		tier_free(tier);
	else
		*ret_tier = tier;
	return r;
}

void bench_disk_close(struct bench_disk *disk)
{
	disk->engine = engine_free(disk->engine);
	memory_free(&disk->buffers);
	disk->folder_fd = fd_close(disk->folder_fd);
	(void)rmdir(disk->folder);
}
