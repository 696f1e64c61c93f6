#include "tests/bench/fio.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <cjson/cJSON.h>

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

double fio_run(const char *file, const char *direction, double seconds)
{
	char command[4608], limit[64] = "", text[65536];
	size_t length;
	FILE *pipe;

	if (seconds > 0)
		snprintf(limit, sizeof(limit), "--time_based --runtime=%.0fms", seconds * 1e3);
	snprintf(command, sizeof(command),
		 "fio --name=bench --filename=%.4096s --filesize=%llu --rw=%s --bs=1m --iodepth=16 "
		 "--ioengine=io_uring --direct=1 --fixedbufs --registerfiles --fallocate=none %s "
		 "--output-format=json 2>/dev/null",
		 file, (unsigned long long)FIO_FILE_BYTES, direction, limit);
	pipe = popen(command, "re");
	if (!pipe)
		return -errno;
	length = fread(text, 1, sizeof(text) - 1, pipe);
	text[length] = '\0';
	return pclose(pipe) == 0 ? parse_rate(text) : -EIO;
}
