#include "offload/cuda/nvml.h"

#include "common/cleanup.h"

struct nvml {
	int (*init)(void);
	const char *(*error_string)(int error);
	int (*version)(char *version, unsigned size);
};

bool nvml_open(struct dynamic_library *library)
{
	struct nvml nvml;
	const struct dynamic_symbol symbols[] = {
		{ "nvmlInit_v2", &nvml.init },
		{ "nvmlErrorString", &nvml.error_string },
		{ "nvmlSystemGetNVMLVersion", &nvml.version },
	};
	int error;

	if (!dynamic_library_open(library, "libnvidia-ml.so.1", symbols, ARRAY_LENGTH(symbols)))
		return false;
	error = nvml.init();
	if (error == 0)
		error = nvml.version(library->version, sizeof(library->version));
	if (error != 0)
		return dynamic_library_refuse(library, "it does not start: %s (error %d)",
					      nvml.error_string(error), error);
	return true;
}
