/* Structures of tierd.h start with their size, so that programs and libraries of different versions fit. */
#ifndef TIERD_CLIENT_STRUCTURE_H
#define TIERD_CLIENT_STRUCTURE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* No structure of any version is as large; a larger size was never set. */
#define STRUCTURE_TOO_LARGE 4096

/* Copies what a program gave. Fields that a newer program knows, and this library does not, must be zero.
 * minimum: the size in the first version. -EINVAL: smaller than that, or too large; -E2BIG: unknown fields
 * are used. */
static inline int structure_take(void *own, size_t own_size, size_t minimum, const void *given)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	if (size < minimum || size >= STRUCTURE_TOO_LARGE)
		return -EINVAL;
	for (size_t i = own_size; i < size; i++)
		if (((const char *)given)[i] != 0)
			return -E2BIG;
	memcpy(own, given, size < own_size ? size : own_size);
	return 0;
}

/* Fills what a program asked for, as far as its version goes. -EINVAL as above. */
static inline int structure_give(void *asked, size_t minimum, const void *own, size_t own_size)
{
	size_t size;

	memcpy(&size, asked, sizeof(size));
	if (size < minimum || size >= STRUCTURE_TOO_LARGE)
		return -EINVAL;
	memset((char *)asked + sizeof(size), 0, size - sizeof(size));
	memcpy((char *)asked + sizeof(size), (const char *)own + sizeof(size),
	       (size < own_size ? size : own_size) - sizeof(size));
	return 0;
}

#endif
