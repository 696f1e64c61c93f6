/* Fuzzes the reading of a configuration: any bytes give a configuration, or an error that says where; and a
 * configuration that was read is the same when it is printed and read again. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/config.h"

#define TEXT_BYTES 65536

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static int read_text(struct config *config, const void *text, size_t length, struct config_problem *problem)
{
	FILE *stream = fmemopen((void *)text, length, "r");
	int r;

	assert(stream);
	r = config_read(config, stream, "fuzz.conf", problem);
	fclose(stream);
	return r;
}

static size_t print_text(const struct config *config, char text[TEXT_BYTES])
{
	FILE *stream = fmemopen(text, TEXT_BYTES, "w");
	size_t length;

	assert(stream);
	config_print(config, stream);
	length = (size_t)ftell(stream);
	fclose(stream);
	return length;
}

/* Everything that is printed must have a value. */
static const char complete[] =
	"[daemon]\nsocket = /s\nstate_directory = /d\nlog_level = info\nworkers = 1\n"
	"[memory]\nhost_budget = 1G\nidle_release_seconds = 1\n[nvme]\npath = /p:1M,1G\n"
	"durability = step\nendurance = 1\n"
	"scrub_days = 0\n[io]\nqueue_depth = 1\n"
	"background_bytes = 1M\n[gpu]\nexchange_seconds = 1\n"
	"[limits]\nconnections = 1\nconnections_per_user = 1\nrequests_per_connection "
	"= 16\noutput_queue = 1M\n"
	"frame_size = 64K\njobs_per_user = 1\nunits_per_job = 1\ntensors_per_job = 1\n"
	"job_name_length = 1\nname_length = 1\ndimensions_per_tensor = 1\n"
	"first_frame_seconds = 1\nframe_seconds = 1\n";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	static char first[TEXT_BYTES], second[TEXT_BYTES];
	struct config_problem problem = { "" };
	struct config *config = calloc(1, sizeof(*config)), *copy = calloc(1, sizeof(*copy));
	int r;

	assert(config && copy);
	assert(read_text(config, complete, strlen(complete), &problem) == 0);
	r = length > 0 && length < TEXT_BYTES / 4 ? read_text(config, bytes, length, &problem) : -EINVAL;
	if (r == 0) {
		size_t printed = print_text(config, first);

		r = read_text(copy, first, printed, &problem);
		/* Blanks around the equal sign can make a line too long. */
		assert(r == 0 || strstr(problem.text, "longer than"));
		if (r == 0)
			assert(print_text(copy, second) == printed && memcmp(first, second, printed) == 0);
	} else if (length > 0 && length < TEXT_BYTES / 4) {
		assert(strncmp(problem.text, "fuzz.conf:", 10) == 0);
	}
	config_free(config);
	config_free(copy);
	return 0;
}
