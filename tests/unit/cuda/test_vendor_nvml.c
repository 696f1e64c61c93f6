/* What we declare of NVML is what its header has. Where there is that header. */
#include <nvml.h>

#include "offload/cuda/nvml.h"
#include "tests/unit/test.h"

/* The name that a name of the reference stands for. */
#define NAME(name) NAME_(name)
#define NAME_(name) #name

/* Fails to compile where the numbers of arguments differ, or the size of the result. */
#define EXPECT_CALL(place, call, ...)                                                                        \
	_Static_assert(sizeof(call(__VA_ARGS__)) == sizeof((place)(__VA_ARGS__)), #call)

static void the_calls_take_the_same(void **state)
{
	unsigned long long millijoules;
	unsigned number;
	struct nvml nvml;
	char version[1];

	EXPECT_CALL(nvml.init, nvmlInit_v2);
	EXPECT_CALL(nvml.shutdown, nvmlShutdown);
	EXPECT_CALL(nvml.error_string, nvmlErrorString, 0);
	EXPECT_CALL(nvml.version, nvmlSystemGetNVMLVersion, version, 1U);
	EXPECT_CALL(nvml.device, nvmlDeviceGetHandleByUUID, "GPU-", NULL);
	EXPECT_CALL(nvml.utilization, nvmlDeviceGetUtilizationRates, NULL, NULL);
	EXPECT_CALL(nvml.memory, nvmlDeviceGetMemoryInfo, NULL, NULL);
	EXPECT_CALL(nvml.temperature, nvmlDeviceGetTemperature, NULL, NVML_TEMPERATURE_GPU, &number);
	EXPECT_CALL(nvml.power, nvmlDeviceGetPowerUsage, NULL, &number);
	EXPECT_CALL(nvml.energy, nvmlDeviceGetTotalEnergyConsumption, NULL, &millijoules);
	assert_string_equal(NAME(nvmlInit), "nvmlInit_v2");
	assert_string_equal(NAME(nvmlDeviceGetMemoryInfo), "nvmlDeviceGetMemoryInfo");
}

static void the_structs_and_numbers_are_the_same(void **state)
{
	assert_int_equal(sizeof(nvmlDevice_t), sizeof(struct nvml_device *));
	assert_int_equal(sizeof(nvmlUtilization_t), sizeof(struct nvml_utilization));
	assert_int_equal(offsetof(nvmlUtilization_t, gpu), offsetof(struct nvml_utilization, kernels));
	assert_int_equal(sizeof(nvmlMemory_t), sizeof(struct nvml_memory));
	assert_int_equal(offsetof(nvmlMemory_t, total), offsetof(struct nvml_memory, total));
	assert_int_equal(offsetof(nvmlMemory_t, used), offsetof(struct nvml_memory, used));
	assert_int_equal(NVML_DONE, NVML_SUCCESS);
	assert_int_equal(NVML_NOT_SUPPORTED, NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(NVML_CORE, NVML_TEMPERATURE_GPU);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_calls_take_the_same),
		cmocka_unit_test(the_structs_and_numbers_are_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
