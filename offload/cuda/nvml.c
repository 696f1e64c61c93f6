#include "offload/cuda/nvml.h"

#include "common/cleanup.h"

bool nvml_open(struct nvml *ret_nvml, struct dynamic_library *library)
{
	const struct dynamic_symbol symbols[] = {
		{ "nvmlInit_v2", &ret_nvml->init },
		{ "nvmlShutdown", &ret_nvml->shutdown },
		{ "nvmlErrorString", &ret_nvml->error_string },
		{ "nvmlSystemGetNVMLVersion", &ret_nvml->version },
		{ "nvmlDeviceGetHandleByUUID", &ret_nvml->device },
		{ "nvmlDeviceGetUtilizationRates", &ret_nvml->utilization },
		{ "nvmlDeviceGetMemoryInfo", &ret_nvml->memory },
		{ "nvmlDeviceGetTemperature", &ret_nvml->temperature },
		{ "nvmlDeviceGetPowerUsage", &ret_nvml->power },
		{ "nvmlDeviceGetTotalEnergyConsumption", &ret_nvml->energy },
	};
	int error;

	if (!dynamic_library_open(library, "libnvidia-ml.so.1", symbols, ARRAY_LENGTH(symbols)))
		return false;
	error = ret_nvml->init();
	if (error != NVML_DONE)
		return dynamic_library_refuse(library, "it does not start: %s (error %d)",
					      ret_nvml->error_string(error), error);
	error = ret_nvml->version(library->version, sizeof(library->version));
	if (error == NVML_DONE)
		return true;
	nvml_close(ret_nvml);
	return dynamic_library_refuse(library, "it does not start: %s (error %d)",
				      ret_nvml->error_string(error), error);
}

void nvml_close(const struct nvml *nvml)
{
	(void)nvml->shutdown();
}
