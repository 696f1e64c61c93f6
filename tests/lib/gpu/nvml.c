/* A stand-in for NVML, libnvidia-ml.so.1. */
#include <stdio.h>

#include "tests/lib/gpu/script.h"

API int nvmlInit_v2(void);
API const char *nvmlErrorString(int error);
API int nvmlSystemGetNVMLVersion(char *version, unsigned size);

int nvmlInit_v2(void)
{
	return script_error("nvmlInit_v2");
}

const char *nvmlErrorString(int error)
{
	return "the stand-in's error";
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
	snprintf(version, size, "13.0.0");
	return script_error("nvmlSystemGetNVMLVersion");
}
