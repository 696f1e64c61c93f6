#include "collectives/nccl/nccl.h"

#include <stdio.h>

#include "common/cleanup.h"

/* NCCL counts 10000 a major version, 100 a minor one and 1 a patch. The first that registers buffers of its
 * callers (ncclCommRegister). */
#define OLDEST_VERSION 21900

static void write_version(int version, char *text, size_t size)
{
	snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

bool nccl_open(struct dynamic_library *library)
{
	int (*get_version)(int *ret_version);
	const char *(*error_string)(int error);
	const struct dynamic_symbol symbols[] = {
		{ "ncclGetVersion", &get_version },
		{ "ncclGetErrorString", &error_string },
	};
	char oldest[32];
	int version = 0, error;

	if (!dynamic_library_open(library, "libnccl.so.2", symbols, ARRAY_LENGTH(symbols)))
		return false;
	error = get_version(&version);
	if (error != 0)
		return dynamic_library_refuse(library, "it does not start: %s (error %d)",
					      error_string(error), error);
	write_version(version, library->version, sizeof(library->version));
	write_version(OLDEST_VERSION, oldest, sizeof(oldest));
	if (version < OLDEST_VERSION)
		return dynamic_library_refuse(library, "it is version %s, and tierd needs %s or newer",
					      library->version, oldest);
	return true;
}
