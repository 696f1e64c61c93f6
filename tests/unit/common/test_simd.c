#include <stdlib.h>

#include "common/simd.h"
#include "tests/unit/test.h"

static void the_environment_lowers_the_level(void **state)
{
	enum simd_level best;

	unsetenv("TIERD_SIMD");
	best = simd_level();
	for (int level = SIMD_SCALAR; level <= (int)best; level++) {
		setenv("TIERD_SIMD", simd_level_name((enum simd_level)level), 1);
		assert_int_equal(simd_level(), level);
	}
}

static void it_never_raises_it_and_what_it_does_not_know_is_ignored(void **state)
{
	static const char *const values[] = { "avx512", "abacus", "" };
	enum simd_level best;

	unsetenv("TIERD_SIMD");
	best = simd_level();
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		setenv("TIERD_SIMD", values[i], 1);
		assert_int_equal(simd_level(), best);
	}
}

static void levels_have_names(void **state)
{
	assert_string_equal(simd_level_name(SIMD_SCALAR), "scalar");
	assert_string_equal(simd_level_name(SIMD_AVX2), "avx2");
	assert_string_equal(simd_level_name(SIMD_AVX512), "avx512");
}

static int unset(void **state)
{
	return unsetenv("TIERD_SIMD");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(the_environment_lowers_the_level, unset),
		cmocka_unit_test_teardown(it_never_raises_it_and_what_it_does_not_know_is_ignored, unset),
		cmocka_unit_test(levels_have_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
