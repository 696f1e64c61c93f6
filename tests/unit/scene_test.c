#include "tests/unit/scene_test.h"

#include <unistd.h>

#include "common/log.h"
#include "daemon/model/job.h"

struct scene scene;

struct job *scene_job(const char *name)
{
	return job_find(scene.node, geteuid(), name ? name : "play");
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
