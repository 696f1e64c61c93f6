#include "tests/unit/scene_test.h"

#include <unistd.h>

#include "common/log.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"

struct scene scene;

const char *__tsan_default_options(void);

/* ThreadSanitizer's memory beside the arenas of a daemon: small pages would take half of the processor time
 * for their faults. */
const char *__tsan_default_options(void)
{
	return "no_huge_pages_for_shadow=0";
}

struct job *scene_job(const char *name)
{
	return job_find(scene.node, geteuid(), name ? name : "play");
}

uint32_t scene_absent_unit(const struct job *job)
{
	for (uint32_t pack = 0; pack < PLAY_UNITS; pack++)
		if (residency_state(job, pack) == DIRECTORY_ABSENT)
			return pack;
	fail_msg("all units are in host memory");
	return 0;
}

int scene_setup_with(const struct scene_options *options)
{
	log_open(LOG_LEVEL_ERROR);
	return scene_open(options, &scene);
}

int scene_setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ 0 });
}

int scene_teardown(void **state)
{
	scene_close(&scene);
	return 0;
}
