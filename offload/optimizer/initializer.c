#include "offload/optimizer/initializer.h"

#include <stdatomic.h>
#include <string.h>
#include <xxhash.h>

#include "offload/optimizer/initializer_rows.h"

uint64_t initializer_tensor(const char *name)
{
	return XXH3_64bits(name, strlen(name));
}

void initializer_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t a = UINT64_C(0xd2511f53) * c0, b = UINT64_C(0xcd9e8d57) * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += UINT32_C(0x9e3779b9);
		k1 += UINT32_C(0xbb67ae85);
	}
	memcpy(ret_words, (uint32_t[4]){ c0, c1, c2, c3 }, 4 * sizeof(uint32_t));
}

initializer_kernel *initializer_find_kernel(enum simd_level level)
{
#ifdef __x86_64__
	if (level == SIMD_AVX512)
		return initializer_rows_avx512;
	if (level == SIMD_AVX2)
		return initializer_rows_avx2;
#endif
	return initializer_rows_scalar;
}

/* To ask a processor what it can do takes longer than a row where that is a virtual one. */
static initializer_kernel *kernel_of_processor(void)
{
	static _Atomic(initializer_kernel *) found;
	initializer_kernel *kernel = atomic_load_explicit(&found, memory_order_relaxed);

	if (!kernel) {
		kernel = initializer_find_kernel(simd_level());
		atomic_store_explicit(&found, kernel, memory_order_relaxed);
	}
	return kernel;
}

static void fill_random(const struct initializer *initializer, uint64_t first, size_t count,
			float *ret_values)
{
	initializer_kernel *fill = kernel_of_processor();

	while (count > 0) {
		size_t skipped = first % INITIALIZER_BLOCK, most = INITIALIZER_ROW - skipped;
		size_t wanted = count < most ? count : most;
		float row[INITIALIZER_ROW];

		if (wanted == INITIALIZER_ROW) {
			fill(initializer, first / INITIALIZER_BLOCK, ret_values);
		} else {
			fill(initializer, first / INITIALIZER_BLOCK, row);
			memcpy(ret_values, row + skipped, wanted * sizeof(float));
		}
		first += wanted;
		ret_values += wanted;
		count -= wanted;
	}
}

void initializer_fill(const struct initializer *initializer, uint64_t first, size_t count, float *ret_values)
{
	float value = initializer->kind == INITIALIZER_ONES ? 1.0f : 0.0f;

	if (initializer->kind == INITIALIZER_NORMAL || initializer->kind == INITIALIZER_UNIFORM) {
		fill_random(initializer, first, count, ret_values);
		return;
	}
	for (size_t i = 0; i < count; i++)
		ret_values[i] = value;
}
