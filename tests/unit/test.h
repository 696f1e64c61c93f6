/* What every test in C includes: cmocka, after what its header needs. */
#ifndef TIERD_TESTS_UNIT_TEST_H
#define TIERD_TESTS_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
