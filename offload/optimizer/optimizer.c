#include "offload/optimizer/optimizer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
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
DECLARE(adam);
DECLARE(sgd);
DECLARE(lion);
DECLARE(none);

static const struct optimizer *const optimizers[][SIMD_LEVELS] = {
	LEVELS(adamw), LEVELS(adam), LEVELS(sgd), LEVELS(lion), LEVELS(none),
};

const struct optimizer *optimizer_find(const char *name, enum simd_level level)
{
	for (size_t i = 0; i < ARRAY_LENGTH(optimizers); i++)
		if (strcmp(optimizers[i][level]->name, name) == 0)
			return optimizers[i][level];
	return NULL;
}

unsigned optimizer_slots(const struct optimizer *optimizer, const struct optimizer_group *groups,
			 size_t count)
{
	for (size_t i = 0; optimizer->uses_slots && i < count; i++)
		if (optimizer->uses_slots(&groups[i]))
			return optimizer->slot_count;
	return optimizer->uses_slots ? 0 : optimizer->slot_count;
}

int optimizer_check_betas(const struct optimizer_group *group, char *message, size_t size)
{
	/* Written so that a NaN fails too. */
	if (group->beta1 >= 0 && group->beta1 < 1 && group->beta2 >= 0 && group->beta2 < 1)
		return 0;
	snprintf(message, size, "betas are %g and %g; they lie in [0, 1)", (double)group->beta1,
		 (double)group->beta2);
	return -EINVAL;
}

void optimizer_set(const struct optimizer *optimizer, const struct optimizer_group *group,
		   double learning_rate, uint64_t update, float factor,
		   struct optimizer_constants *ret_constants)
{
	assert(update > 0);
	*ret_constants = (struct optimizer_constants){ .factor = factor };
	optimizer->set(group, learning_rate * (double)group->learning_rate, update, ret_constants);
}
