#include "tests/bench/fio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <cjson/cJSON.h>

#include "common/cleanup.h"
#include "tests/bench/bench.h"

#define MAKING_DEPTH 16
/* Of reads, writes and trims. Nothing is trimmed; but each buffer has room for the largest of these, and the
 * first lies 2 MiB into them: so all huge pages that a mebibyte touches are there, wherever they begin. */
#define BLOCKS "--bs=%um,%um,%um --iomem_align=2m"
#define LARGEST_MIB 4U

bool fio_is_installed(void)
{
	return system("fio --version >/dev/null 2>&1") == 0;
}

/* Of both directions, of which one may be none. */
static double parse_rate(const char *text)
{
	cJSON *root = cJSON_Parse(text);
	const cJSON *job = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "jobs"), 0);
	static const char *const directions[] = { "read", "write" };
	double sum = 0;

	for (int i = 0; i < 2; i++) {
		const cJSON *rate = cJSON_GetObjectItem(cJSON_GetObjectItem(job, directions[i]), "bw_bytes");

		sum += cJSON_IsNumber(rate) ? rate->valuedouble : 0;
	}
	cJSON_Delete(root);
	return sum > 0 ? sum : -EPROTO;
}

static double run(const struct fio_job *job, double seconds)
{
	char command[4608], limit[64] = "", size[64] = "--readonly", text[65536];
	unsigned block = job->block_mib > 0 ? job->block_mib : 1;
	int r;

	if (seconds > 0)
		snprintf(limit, sizeof(limit), "--time_based --runtime=%.0fms", seconds * 1e3);
	if (!job->is_found)
		snprintf(size, sizeof(size), "--filesize=%llu", (unsigned long long)FIO_FILE_BYTES);
	snprintf(command, sizeof(command),
		 "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=bench --filename='%s' %s --rw=%s " BLOCKS
		 " --iodepth=%u --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --fallocate=none "
		 "%s "
		 "--output-format=json 2>/dev/null",
		 job->file, size, job->direction, block, block, block > LARGEST_MIB ? block : LARGEST_MIB,
		 job->depth, limit);
	r = bench_read_output(command, text, sizeof(text));
	return r == 0 ? parse_rate(text) : r;
}

double fio_run(void *context, double seconds)
{
	return run(context, seconds);
}

static void name_file(struct fio_job *job, const char *folder)
{
	snprintf(job->file, sizeof(job->file), "%s/fio", folder);
}

int fio_reserve_file(struct fio_job *job, const char *folder)
{
	_cleanup_close_ int fd = -1;

	name_file(job, folder);
	fd = open(job->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : -posix_fallocate(fd, 0, FIO_FILE_BYTES);
}

int fio_make_file(struct fio_job *job, const char *folder)
{
	struct fio_job writing = { .direction = "write", .depth = MAKING_DEPTH };
	double rate;

	name_file(job, folder);
	snprintf(writing.file, sizeof(writing.file), "%s", job->file);
	rate = run(&writing, 0);
	return rate < 0 ? (int)rate : 0;
}

int fio_use_largest_file(struct fio_job *job, const char *folder)
{
	char command[4352];
	int r;

	job->is_found = true;
	snprintf(command, sizeof(command),
		 "find '%s' -type f -printf '%%s %%p\\n' | sort -rn | head -1 | cut -d' ' -f2- | tr -d '\\n'",
		 folder);
	r = bench_read_output(command, job->file, sizeof(job->file));
	return r == 0 && !job->file[0] ? -ENOENT : r;
}

static unsigned find_block(unsigned memory_mib, unsigned depth)
{
	return memory_mib > depth ? memory_mib / depth : 1;
}

int fio_find_depth(struct fio_job *job, unsigned memory_mib, double seconds)
{
	static const unsigned depths[] = { 8, 16, 32, 64 };
	unsigned best = depths[0];
	double best_rate = 0;

	printf("fio, %s:", job->direction);
	for (size_t i = 0; i < ARRAY_LENGTH(depths); i++) {
		double rate;

		job->depth = depths[i];
		job->block_mib = find_block(memory_mib, depths[i]);
		rate = run(job, seconds);
		if (rate < 0)
			return (int)rate;
		printf(" %.0f MB/s at depth %u%s", rate / 1e6, depths[i],
		       i + 1 < ARRAY_LENGTH(depths) ? "," : "\n");
		if (rate > best_rate)
			best = depths[i];
		best_rate = rate > best_rate ? rate : best_rate;
	}
	job->depth = best;
	job->block_mib = find_block(memory_mib, best);
	return 0;
}
