#include "tests/fault/alloc_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/unit/seeds.h"
#include "tests/unit/test.h"

/* 0: disarmed. Threads of the code under test allocate too. */
static atomic_uint countdown;
static atomic_bool has_tripped;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *pointer, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *pointer, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void alloc_fault_arm(unsigned nth)
{
	has_tripped = false;
	countdown = nth;
}

bool alloc_fault_tripped(void)
{
	countdown = 0;
	return has_tripped;
}

unsigned alloc_fault_each(int (*attempt)(void))
{
	for (unsigned nth = 1;; nth++) {
		int r;

		alloc_fault_arm(nth);
		r = attempt();
		if (!alloc_fault_tripped()) {
			assert_int_equal(r, 0);
			return nth - 1;
		}
		assert_int_equal(r, -ENOMEM);
	}
}

unsigned alloc_fault_stride(void)
{
	return seeds_part() > 1 ? 4 : 1;
}

unsigned alloc_fault_first(void)
{
	static unsigned calls;

	return 1 + (calls++ + seeds_part() / 2) % alloc_fault_stride();
}

static bool is_due(void)
{
	unsigned left = countdown;

	while (left > 0 && !atomic_compare_exchange_weak(&countdown, &left, left - 1))
		;
	if (left != 1)
		return false;
	has_tripped = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t size)
{
	return is_due() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return is_due() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *pointer, size_t size)
{
	return is_due() ? NULL : __real_realloc(pointer, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
	return is_due() ? NULL : __real_aligned_alloc(alignment, size);
}
