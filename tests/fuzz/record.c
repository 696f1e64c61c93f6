/* Fuzzes the way back from a record: any bytes give an error, or a job that can be planned and encoded again;
 * and from what it encodes comes the same job.
 *
 * An input is the length of the definition in two bytes, little endian, the definition, and the progress. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "daemon/life/life.h"
#include "daemon/life/setup.h"
#include "daemon/recovery/record_read.h"
#include "daemon/resources/resources.h"
#include "tests/unit/daemon_support.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static struct scene scene;

static void end_scene(void)
{
	scene_close(&scene);
}

/* One for all inputs: a job leaves nothing behind. What it is planned to take of the disk is never taken. */
static void begin_scene(void)
{
	if (scene.node)
		return;
	log_open(LOG_LEVEL_ERROR);
	assert(scene_open(&(struct scene_options){ .capacity = 1024 * GIB }, &scene) == 0);
	atexit(end_scene);
}

/* Of just that length, so that a sanitizer sees one byte too many. */
static struct record_message copy_of(const uint8_t *bytes, size_t length)
{
	void *copy = malloc(length ? length : 1);

	assert(copy);
	memcpy(copy, bytes, length);
	return (struct record_message){ copy, length };
}

static void encode(const struct job *job, struct record_message *definition, struct record_message *progress)
{
	uint64_t size = record_definition_bytes(job), most = record_progress_bytes(job);
	void *defined = malloc(size), *reached = malloc(most);

	assert(defined && reached);
	assert(record_encode_definition(job, defined, size) == 0);
	*definition = (struct record_message){ defined, size };
	*progress = (struct record_message){ reached, record_encode_progress(job, reached) };
}

/* As its ranks come back; there may be no memory for them. */
static void plan_return(struct job *job)
{
	struct setup setup = { .job = job, .is_return = true };

	(void)setup_plan(&setup);
	setup_release(job);
}

static const struct path_list paths = { 1, { 0 } };

static void drop(struct job *job)
{
	job_drop(job);
	scene_settle(&scene);
}

static int decode(struct record_message definition, struct record_message progress, struct job **ret_job,
		  char *message, size_t size)
{
	const struct record_source source = { &paths, NULL, definition, progress };

	return record_decode(scene.node, &source, ret_job, message, size);
}

static void check_again(struct job *job)
{
	struct record_message definition, progress, definition_again, progress_again;
	char message[512];

	encode(job, &definition, &progress);
	drop(job);
	assert(decode(definition, progress, &job, message, sizeof(message)) == 0);
	encode(job, &definition_again, &progress_again);
	assert(definition.size == definition_again.size && progress.size == progress_again.size);
	assert(memcmp(definition.bytes, definition_again.bytes, definition.size) == 0);
	assert(memcmp(progress.bytes, progress_again.bytes, progress.size) == 0);
	plan_return(job);
	drop(job);
	free((void *)definition.bytes);
	free((void *)progress.bytes);
	free((void *)definition_again.bytes);
	free((void *)progress_again.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
	struct record_message definition, progress;
	char message[512] = "";
	struct job *job;
	size_t first;
	uint64_t used;

	if (length < 2)
		return 0;
	begin_scene();
	used = budget_host_used(scene.node);
	first = (size_t)(bytes[0] | bytes[1] << 8);
	if (first > length - 2)
		first = length - 2;
	definition = copy_of(bytes + 2, first);
	progress = copy_of(bytes + 2 + first, length - 2 - first);
	if (decode(definition, progress, &job, message, sizeof(message)) == 0)
		check_again(job);
	else
		assert(message[0]);
	free((void *)definition.bytes);
	free((void *)progress.bytes);
	scene_settle(&scene);
	assert(budget_host_used(scene.node) == used && scene.node->paths[0].used == 0);
	return 0;
}
