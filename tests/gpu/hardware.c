#include "tests/gpu/hardware.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

struct driver hardware_driver;
struct hardware_calls hardware_calls;

static char name[128];

#ifdef HARDWARE_IS_PLAYED
#define IS_PLAYED true
#else
#define IS_PLAYED false
#endif

static const struct dynamic_symbol symbols[] = {
	{ "cuCtxSynchronize", &hardware_calls.wait },
	{ "cuMemHostGetDevicePointer_v2", &hardware_calls.host_address },
};

const char *hardware_result(const char *result)
{
	static char played[4][64]; /* of one program */
	static unsigned count;

	if (!IS_PLAYED)
		return result;
	snprintf(played[count % ARRAY_LENGTH(played)], sizeof(played[0]), "standin_%s", result);
	return played[count++ % ARRAY_LENGTH(played)];
}

static bool find(struct dynamic_library *library)
{
	int device, error;

	if (!driver_open(&hardware_driver, library))
		return false;
	error = hardware_driver.device(&device, 0);
	if (error == DRIVER_DONE)
		error = hardware_driver.device_name(name, sizeof(name), device);
	if (error != DRIVER_DONE)
		return dynamic_library_refuse(library, "%s", driver_text(&hardware_driver, error));
	if (IS_PLAYED)
		return strcmp(name, "stand-in") == 0;
	if (strcmp(name, "stand-in") == 0)
		return dynamic_library_refuse(
			library,
			"libcuda.so.1 is the tests' stand-in: take its folder out of LD_LIBRARY_PATH");
	return dynamic_library_open(library, "libcuda.so.1", symbols, ARRAY_LENGTH(symbols));
}

const char *hardware_find(void)
{
	static struct dynamic_library library;
	static char why[512];

	if (find(&library))
		return NULL;
	snprintf(why, sizeof(why), "no GPU: %.400s", library.problem);
	return why;
}

const char *hardware_name(void)
{
	return name;
}

void hardware_expect_done(const char *what, int error)
{
	if (error == DRIVER_DONE)
		return;
	fprintf(stderr, "GPU %s: %s: %s (error %d)\n", name, what, driver_text(&hardware_driver, error),
		error);
	exit(1);
}

void hardware_enter(void)
{
	struct driver_context *context;

	hardware_expect(hardware_driver.context_retain(&context, 0));
	hardware_expect(hardware_driver.context_enter(context));
}

driver_address hardware_map(void *base, size_t bytes)
{
	driver_address address;

	hardware_expect(hardware_driver.host_register(base, bytes, DRIVER_PORTABLE | HARDWARE_MAPPED));
	hardware_expect(hardware_calls.host_address(&address, base, 0));
	return address;
}
