/* Cleanup attributes and the few macros that ownership needs. */
#ifndef TIERD_COMMON_CLEANUP_H
#define TIERD_COMMON_CLEANUP_H

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

/* Hands a pointer over: the variable is NULL afterwards, so that its cleanup finds nothing. */
#define TAKE_PTR(pointer)                                                                                    \
	({                                                                                                   \
		__typeof__(pointer) *place_ = &(pointer);                                                    \
		__typeof__(pointer) taken_ = *place_;                                                        \
		*place_ = NULL;                                                                              \
		taken_;                                                                                      \
	})

#define TAKE_FD(fd)                                                                                          \
	({                                                                                                   \
		int *place_ = &(fd);                                                                         \
		int taken_ = *place_;                                                                        \
		*place_ = -1;                                                                                \
		taken_;                                                                                      \
	})

/* Defines the cleanup handler name##p for a free function that returns NULL. */
#define DEFINE_FREEP(type, function)                                                                         \
	static inline void function##p(type *place)                                                          \
	{                                                                                                    \
		if (*place)                                                                                  \
			*place = function(*place);                                                           \
	}

#define container_of(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))
#define ARRAY_LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static inline void freep(void *place)
{
	free(*(void **)place);
}

/* Closes a descriptor if there is one; returns -1 for the caller to store. */
static inline int fd_close(int fd)
{
	if (fd >= 0)
		close(fd);
	return -1;
}

static inline void fd_closep(int *fd)
{
	*fd = fd_close(*fd);
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(fd_closep)

#endif
