/* A library that is looked for when the program runs, because the program does without it. */
#ifndef TIERD_COMMON_DYNAMIC_LIBRARY_H
#define TIERD_COMMON_DYNAMIC_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

struct dynamic_library {
	bool is_found;	   /* it is there, new enough, and works */
	char version[32];  /* as people write it, "13.0"; "": not known */
	char problem[512]; /* why it was not found */
};

struct dynamic_symbol {
	const char *name;
	void *place; /* of the pointer to the function */
};

/* Finds all symbols, or says in the library what is missing. It stays loaded for the rest of the process's
 * life: some leave threads behind. */
bool dynamic_library_open(struct dynamic_library *library, const char *file,
			  const struct dynamic_symbol *symbols, size_t count);

/* It is there, and does not serve: why. Returns false. */
bool dynamic_library_refuse(struct dynamic_library *library, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif
