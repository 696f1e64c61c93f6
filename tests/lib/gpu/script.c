#include "tests/lib/gpu/script.h"

#include <stdlib.h>
#include <string.h>

int script_error(const char *call)
{
	const char *failures = getenv("STANDIN_FAILURES");
	size_t length = strlen(call);

	for (const char *at = failures; at && *at; at += strcspn(at, ","), at += *at == ',')
		if (strncmp(at, call, length) == 0 && at[length] == '=')
			return atoi(at + length + 1);
	return 0;
}

int script_number(const char *name, int otherwise)
{
	const char *text = getenv(name);

	return text ? atoi(text) : otherwise;
}
