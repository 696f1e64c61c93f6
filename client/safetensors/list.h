/* A list that grows, in memory that is one piece. */
#ifndef TIERD_CLIENT_SAFETENSORS_LIST_H
#define TIERD_CLIENT_SAFETENSORS_LIST_H

#include <stdlib.h>

/* The list with room for one more behind count; NULL: out of memory, and the list is as it was. */
static inline void *safetensors_list_grow(void *list, size_t count, size_t *capacity, size_t element_bytes)
{
	size_t wanted = *capacity ? 2 * *capacity : 16;
	void *grown;

	if (count < *capacity)
		return list;
	grown = realloc(list, wanted * element_bytes);
	if (grown)
		*capacity = wanted;
	return grown;
}

#endif
