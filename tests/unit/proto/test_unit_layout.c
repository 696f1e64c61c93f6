#include <errno.h>

#include "proto/unit_layout.h"
#include "proto/vocabulary.h"
#include "tests/unit/test.h"

static void a_scalar_has_one_element(void **state)
{
	uint64_t elements;

	assert_int_equal(unit_layout_elements(NULL, 0, &elements), 0);
	assert_int_equal(elements, 1);
}

static void shapes_that_overflow_are_refused(void **state)
{
	static const uint64_t wraps[] = { UINT64_C(1) << 33, UINT64_C(1) << 33 };
	static const uint64_t limit[] = { UINT64_C(1) << 22, UINT64_C(1) << 22 };
	static const uint64_t over[] = { (UINT64_C(1) << 22) + 1, UINT64_C(1) << 22 };
	uint64_t elements = 7;

	assert_int_equal(unit_layout_elements(wraps, 2, &elements), -EOVERFLOW);
	assert_int_equal(unit_layout_elements(over, 2, &elements), -EOVERFLOW);
	assert_int_equal(elements, 7);
	assert_int_equal(unit_layout_elements(limit, 2, &elements), 0);
	assert_int_equal(elements, UNIT_MAX_ELEMENTS);
}

static void tensors_are_sorted_by_format_and_aligned(void **state)
{
	struct unit_layout layout;
	struct tensor_layout first, second, third, half, frozen, bytes;

	unit_layout_init(&layout);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_FP32, 3, &first), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BF16, MOMENTS_IN_FP32, 1000, &second), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_FP32, 65, &third), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP16, MOMENTS_IN_FP32, 300, &half), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BF16, UNIT_FROZEN, 1, &frozen), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BYTES, UNIT_FROZEN, 1, &bytes), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BYTES, UNIT_FROZEN, 300, &bytes), 0);
	unit_layout_finish(&layout);

	assert_int_equal(first.first, 0);
	assert_int_equal(third.first, 64); /* 256 bytes */
	assert_int_equal(layout.elements[SECTION_BF16], 1024);
	assert_int_equal(layout.elements[SECTION_FP16], 512);
	assert_int_equal(layout.elements[SECTION_FP32], 256);
	assert_int_equal(layout.elements[SECTION_FROZEN_BF16], 256);
	assert_int_equal(bytes.first, 256);
	assert_int_equal(layout.elements[SECTION_FROZEN_BYTES], 768);
	assert_int_equal(unit_layout_trainable(&layout), 1024 + 512 + 256);
	assert_int_equal(unit_layout_gradient_bytes(&layout), 2 * 1024 + 2 * 512 + 4 * 256);
	assert_int_equal(unit_layout_gradient_offset(&layout, &second), 0);
	assert_int_equal(unit_layout_gradient_offset(&layout, &third), 2 * 1024 + 2 * 512 + 4 * 64);
	assert_int_equal(unit_layout_gradient_offset(&layout, &half), 2 * 1024);
	unit_layout_widen(&layout, SECTION_BF16);
	assert_int_equal(unit_layout_gradient_bytes(&layout), 4 * 1024 + 2 * 512 + 4 * 256);
	assert_int_equal(unit_layout_gradient_offset(&layout, &half), 4 * 1024);
	assert_int_equal(unit_layout_section_first(&layout, SECTION_FP32), 1024 + 512);
	assert_string_equal(section_format(SECTION_FROZEN_FP16), "fp16");
	assert_true(unit_layout_gradient_offset(&layout, &frozen) == UINT64_MAX);
}

static void tensors_with_other_moments_lie_apart(void **state)
{
	struct unit_layout layout;
	struct tensor_layout tensors[4];

	unit_layout_init(&layout);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_BF16, 300, &tensors[0]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_FP32, 1, &tensors[1]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BF16, MOMENTS_IN_BF16, 1, &tensors[2]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BF16, WIRE_MOMENTS, 1, &tensors[3]), -EINVAL);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BYTES, MOMENTS_IN_BF16, 1, &tensors[3]), -EINVAL);
	unit_layout_finish(&layout);

	assert_int_equal(tensors[0].section, SECTION_FP32_MOMENTS_BF16);
	assert_int_equal(layout.elements[SECTION_FP32_MOMENTS_BF16], 512);
	assert_int_equal(layout.elements[SECTION_FP32], 256);
	assert_int_equal(layout.elements[SECTION_BF16_MOMENTS_BF16], 256);
	assert_int_equal(unit_layout_trainable(&layout), 1024);
	assert_int_equal(unit_layout_gradient_offset(&layout, &tensors[2]), 4 * 256);
	for (int section = 0; section < UNIT_TRAINABLE_SECTIONS; section++) {
		assert_true(section_is_trainable((enum unit_section)section));
		assert_string_equal(section_format((enum unit_section)section),
				    section_format((enum unit_section)(section % UNIT_TRAINABLE_FORMATS)));
	}
	assert_int_equal(section_moments(SECTION_FP16), MOMENTS_IN_FP32);
	assert_int_equal(section_moments(SECTION_FP16_MOMENTS_BF16), MOMENTS_IN_BF16);
	assert_int_equal(section_element_bytes(SECTION_FP32_MOMENTS_BF16), 4);
	assert_int_equal(section_element_bytes(SECTION_FROZEN_FP32), 4);
	assert_int_equal(section_element_bytes(SECTION_FROZEN_BF16), 2);
}

/* No block of moments has elements of two tensors. */
static void tensors_with_moments_in_blocks_begin_with_one(void **state)
{
	struct unit_layout layout;
	struct tensor_layout tensors[3];

	unit_layout_init(&layout);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_INT8, 65, &tensors[0]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_INT8, 1, &tensors[1]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, UNIT_FROZEN, 65, &tensors[2]), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, UNIT_FROZEN, 1, &tensors[2]), 0);
	unit_layout_finish(&layout);
	assert_int_equal(tensors[0].section, SECTION_FP32_MOMENTS_INT8);
	assert_int_equal(tensors[1].first, 256);
	assert_int_equal(tensors[2].first, 128);
	assert_int_equal(layout.elements[SECTION_FP32_MOMENTS_INT8], 512);
}

static void a_unit_that_gets_too_large_is_refused(void **state)
{
	struct unit_layout layout;
	struct tensor_layout tensor;

	unit_layout_init(&layout);
	assert_int_equal(
		unit_layout_append(&layout, FORMAT_BF16, MOMENTS_IN_FP32, UNIT_MAX_ELEMENTS, &tensor), 0);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BF16, MOMENTS_IN_FP32, 1, &tensor), -EOVERFLOW);
	assert_int_equal(unit_layout_append(&layout, FORMAT_FP32, MOMENTS_IN_FP32, UINT64_MAX, &tensor),
			 -EOVERFLOW);
	assert_int_equal(unit_layout_append(&layout, 0, MOMENTS_IN_FP32, 1, &tensor), -EINVAL);
	assert_int_equal(unit_layout_append(&layout, 5, MOMENTS_IN_FP32, 1, &tensor), -EINVAL);
	assert_int_equal(unit_layout_append(&layout, FORMAT_BYTES, MOMENTS_IN_FP32, 1, &tensor), -EINVAL);
}

static void shards_cover_the_unit_in_blocks_of_256(void **state)
{
	static const uint32_t world_sizes[] = { 1, 2, 3, 4, 7, 1024 };
	struct unit_layout layout = { .elements = { [SECTION_BF16] = 256 * 8,
						    [SECTION_FP32] = 256 * 3,
						    [SECTION_FP32_MOMENTS_BF16] = 256 * 2,
						    [SECTION_FROZEN_BF16] = 256 } };

	for (size_t i = 0; i < sizeof(world_sizes) / sizeof(world_sizes[0]); i++) {
		uint64_t end = 0, trainable = unit_layout_trainable(&layout);

		for (uint32_t rank = 0; rank < world_sizes[i]; rank++) {
			assert_int_equal(unit_layout_shard(trainable, rank, world_sizes[i]), end);
			end = unit_layout_shard(trainable, rank + 1, world_sizes[i]);
			assert_int_equal(end % 256, 0);
		}
		assert_int_equal(end, 256 * 13);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_scalar_has_one_element),
		cmocka_unit_test(shapes_that_overflow_are_refused),
		cmocka_unit_test(tensors_are_sorted_by_format_and_aligned),
		cmocka_unit_test(tensors_with_other_moments_lie_apart),
		cmocka_unit_test(tensors_with_moments_in_blocks_begin_with_one),
		cmocka_unit_test(a_unit_that_gets_too_large_is_refused),
		cmocka_unit_test(shards_cover_the_unit_in_blocks_of_256),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
