/* What tests share that each play in a scene of their own: cmocka, the scene, its beginning and its end. */
#ifndef TIERD_TESTS_UNIT_SCENE_TEST_H
#define TIERD_TESTS_UNIT_SCENE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/unit/daemon_support.h"

extern struct scene scene;

/* This user's job of that name, or "play"; NULL: there is none. */
struct job *scene_job(const char *name);
/* Of a job of actor_play()'s: a unit that is not in host memory. */
uint32_t scene_absent_unit(const struct job *job);

/* For cmocka. The first: of default options; the last: of any. Errors alone are logged. */
int scene_setup(void **state);
int scene_teardown(void **state);
int scene_setup_with(const struct scene_options *options);

#define SCENE_TEST(name, setup) cmocka_unit_test_setup_teardown(name, setup, scene_teardown)

#endif
