/* Interleavings: two actors take turns before each access to what they share, in every order that there is.
 *
 * They run the real code of both sides, compiled once more with this header before all others: its atomic
 * operations may let the other one go on first. All of it is one thread, so every access is seen at once, and
 * in the order of the code: nothing shows here that a processor or a compiler may do to weaker orders. */
#ifndef TIERD_TESTS_UNIT_INTERLEAVE_H
#define TIERD_TESTS_UNIT_INTERLEAVE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct interleaving {
	bool (*is_shared)(const volatile void *address);
	void (*begin)(void); /* before each run */
	/* Assertions are for the other two: these run on stacks of their own. */
	void (*actors[2])(void);
	void (*end)(void); /* after each run */
};

/* Returns how many orders there are. */
uint64_t interleave(const struct interleaving *interleaving);

/* An actor is about to use what they share, otherwise than by an atomic operation. */
void interleave_turn(void);
/* Of an atomic operation; nothing if no actor runs, or the address is not shared. */
void interleave_access(const volatile void *address);

/* As <stdatomic.h> has them: only clang's operations take pointers to _Atomic. */
#ifdef __clang__
#define INTERLEAVE_LOAD __c11_atomic_load
#define INTERLEAVE_STORE __c11_atomic_store
#define INTERLEAVE_ADD __c11_atomic_fetch_add
#define INTERLEAVE_REPLACE __c11_atomic_compare_exchange_weak
#else
#define INTERLEAVE_LOAD __atomic_load_n
#define INTERLEAVE_STORE __atomic_store_n
#define INTERLEAVE_ADD __atomic_fetch_add
#define INTERLEAVE_REPLACE(object, expected, desired, success, failure)                                      \
	__atomic_compare_exchange_n(object, expected, desired, true, success, failure)
#endif

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_load_explicit(object, order) (interleave_access(object), INTERLEAVE_LOAD(object, order))
#define atomic_store_explicit(object, value, order)                                                          \
	(interleave_access(object), INTERLEAVE_STORE(object, value, order))
#define atomic_fetch_add_explicit(object, value, order)                                                      \
	(interleave_access(object), INTERLEAVE_ADD(object, value, order))
#define atomic_compare_exchange_weak_explicit(object, expected, desired, success, failure)                   \
	(interleave_access(object), INTERLEAVE_REPLACE(object, expected, desired, success, failure))

#endif
