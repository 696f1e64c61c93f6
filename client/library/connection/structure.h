/* Structures of tierd.h start with their size, so that programs and libraries of different versions fit. */
#ifndef TIERD_CLIENT_STRUCTURE_H
#define TIERD_CLIENT_STRUCTURE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "client/library/connection/message.h"

/* No structure of any version is as large; a larger size was never set. */
#define STRUCTURE_TOO_LARGE 4096

/* Copies what a program gave to one of this version. Fields that a newer program knows, and this library does
 * not, must be zero. A message says what has a wrong size, with its verb, and from which macro to start.
 * -EINVAL: smaller than the structure ever was, or too large; -E2BIG: unknown fields are used. */
#define STRUCTURE_TAKE(own, given, what, INIT)                                                               \
	structure_take(own, sizeof(*(own)), given, what " a wrong size; start from " #INIT)
static inline int structure_take(void *own, size_t own_size, const void *given, const char *message)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	if (size < own_size || size >= STRUCTURE_TOO_LARGE)
		return message_fail(-EINVAL, "%s", message);
	for (size_t i = own_size; i < size; i++)
		if (((const char *)given)[i] != 0)
			return message_fail(-E2BIG, "%s", message);
	memcpy(own, given, own_size);
	return 0;
}

/* The same of one in an array, in which all have the size of the first. -EINVAL in any case. */
#define STRUCTURE_TAKE_NTH(own, array, n, what, INIT)                                                        \
	structure_take_nth(own, sizeof(*(own)), array, n, what " %zu has a wrong size; start from " #INIT)
static inline int structure_take_nth(void *own, size_t own_size, const void *array, size_t n,
				     const char *format) __attribute__((format(printf, 5, 0)));
static inline int structure_take_nth(void *own, size_t own_size, const void *array, size_t n,
				     const char *format)
{
	size_t distance, size;

	memcpy(&distance, array, sizeof(distance));
	memcpy(&size, (const char *)array + n * distance, sizeof(size));
	if (size != distance || structure_take(own, own_size, (const char *)array + n * distance, "") < 0)
		return message_fail(-EINVAL, format, n);
	return 0;
}

/* Fills what a program asked for, as far as its version goes. Errors as above. */
#define STRUCTURE_GIVE(asked, own, what, INIT)                                                               \
	structure_give(asked, own, sizeof(*(own)), what " a wrong size; start from " #INIT)
static inline int structure_give(void *asked, const void *own, size_t own_size, const char *message)
{
	size_t size;

	memcpy(&size, asked, sizeof(size));
	if (size < own_size || size >= STRUCTURE_TOO_LARGE)
		return message_fail(-EINVAL, "%s", message);
	memset((char *)asked + sizeof(size), 0, size - sizeof(size));
	memcpy((char *)asked + sizeof(size), (const char *)own + sizeof(size), own_size - sizeof(size));
	return 0;
}

#endif
