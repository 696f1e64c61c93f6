#include "daemon/names.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

/* The key is this process's, and nobody else knows it. */
unsigned names_hash(const char *text, size_t length)
{
	static uint64_t key;

	if (key == 0 && getrandom(&key, sizeof(key), 0) != sizeof(key))
		key = (uint64_t)(uintptr_t)text | 1;
	return (unsigned)XXH3_64bits_withSeed(text, length, key);
}

static struct name *find(struct name *names, const char *text)
{
	struct name *name = NULL;

	HASH_FIND_STR(names, text, name);
	return name;
}

bool names_have(struct name *names, const char *text)
{
	return find(names, text) != NULL;
}

int names_add(struct name **names, const char *text)
{
	struct name *name = calloc(1, sizeof(*name));

	if (!name)
		return -ENOMEM;
	name->text = text;
	HASH_ADD_KEYPTR(hh, *names, name->text, strlen(name->text), name);
	if (name->hh.tbl)
		return 0;
	free(name);
	return -ENOMEM;
}

void names_remove(struct name **names, const char *text)
{
	struct name *name = text ? find(*names, text) : NULL;

	if (!name || name->text != text)
		return;
	HASH_DEL(*names, name);
	free(name);
}

void names_clear(struct name **names)
{
	struct name *name, *next;

	HASH_ITER(hh, *names, name, next)
	{
		HASH_DEL(*names, name);
		free(name);
	}
}
