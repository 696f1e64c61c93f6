#include "offload/optimizer.h"

#include <assert.h>
#include <string.h>

#include "common/cleanup.h"

/* Every source of an optimizer defines it once for each level. */
#ifdef __x86_64__
#define DECLARE(name) extern const struct optimizer name##_scalar, name##_avx2, name##_avx512
#define LEVELS(name)                                                                                         \
	{                                                                                                    \
		[SIMD_SCALAR] = &name##_scalar, [SIMD_AVX2] = &name##_avx2, [SIMD_AVX512] = &name##_avx512   \
	}
#else
#define DECLARE(name) extern const struct optimizer name##_scalar
#define LEVELS(name)                                                                                         \
	{                                                                                                    \
		[SIMD_SCALAR] = &name##_scalar                                                               \
	}
#endif

DECLARE(adamw);

static const struct optimizer *const optimizers[][SIMD_LEVELS] = { LEVELS(adamw) };

const struct optimizer *optimizer_find(const char *name, enum simd_level level)
{
	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++)
		if (strcmp(optimizers[i][level]->name, name) == 0)
			return optimizers[i][level];
	return NULL;
}

void optimizer_set(const struct optimizer *optimizer, const struct optimizer_group *group,
		   double learning_rate, uint64_t update, float factor,
		   struct optimizer_constants *ret_constants)
{
	assert(update > 0);
	*ret_constants = (struct optimizer_constants){ .factor = factor };
	optimizer->set(group, learning_rate * (double)group->learning_rate, update, ret_constants);
}
