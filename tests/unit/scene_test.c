#include "tests/unit/scene_test.h"

#include "common/log.h"

struct scene scene;

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
