/* What the sensors of a GPU say, and what is made of a call that fails. */
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "offload/cuda/gpu_sensors.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"

static struct gpus gpus;
static struct nvml nvml;

static int setup(void **state)
{
	struct dynamic_library library = { 0 };

	standin_tell("STANDIN_GPUS", "3");
	standin_tell("STANDIN_MIG", NULL);
	standin_tell("STANDIN_FAILURES", NULL);
	gpus_find(&gpus);
	assert_int_equal(gpus.count, 3);
	assert_true(nvml_open(&nvml, &library));
	return 0;
}

static int teardown(void **state)
{
	standin_tell("STANDIN_MIG", NULL);
	standin_tell("STANDIN_FAILURES", NULL);
	nvml_close(&nvml);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct gpu_sensors whole = {
	.busy_percent = 37,
	.used_bytes = 2UL << 30,
	.total_bytes = 3UL << 30,
	.temperature_celsius = 51,
	.power_milliwatts = 123456,
	.energy_millijoules = 5000000,
};

static void expect(const struct gpu_sensors *expected, const char *problem)
{
	struct gpu_sensors sensors = { 0 };
	struct gpu_sensors_problem told = { "" };

	assert_int_equal(gpu_sensors_read(&nvml, &gpus.gpus[2], &sensors, &told), !problem);
	assert_memory_equal(&sensors, expected, sizeof(sensors));
	assert_string_equal(told.text, problem ? problem : "");
}

static void a_gpu_is_known_by_its_uuid(void **state)
{
	char text[GPU_UUID_TEXT];

	assert_string_equal(gpu_uuid_text(&gpus.gpus[2], text), "GPU-7374616e-642d-696e-2047-505500000002");
	gpus.gpus[2].is_slice = true;
	assert_string_equal(gpu_uuid_text(&gpus.gpus[2], text), "MIG-7374616e-642d-696e-2047-505500000002");
}

static void all_sensors_are_read(void **state)
{
	expect(&whole, NULL);
}

/* Of a slice it is no failure that it has few. */
static void a_slice_has_the_sensors_that_it_has(void **state)
{
	struct gpu_sensors sensors = GPU_SENSORS_UNKNOWN;

	standin_tell("STANDIN_MIG", "1");
	gpus_find(&gpus);
	sensors.used_bytes = whole.used_bytes;
	sensors.total_bytes = whole.total_bytes;
	expect(&sensors, NULL);
}

static void what_cannot_be_read_is_not_known(void **state)
{
#define SENSOR(field) offsetof(struct gpu_sensors, field)
	static const struct {
		const char *call, *what;
		size_t field, more;
	} rows[] = {
		{ "nvmlDeviceGetUtilizationRates", "utilization", SENSOR(busy_percent),
		  SENSOR(busy_percent) },
		{ "nvmlDeviceGetMemoryInfo", "memory", SENSOR(used_bytes), SENSOR(total_bytes) },
		{ "nvmlDeviceGetTemperature", "temperature", SENSOR(temperature_celsius),
		  SENSOR(temperature_celsius) },
		{ "nvmlDeviceGetPowerUsage", "power", SENSOR(power_milliwatts), SENSOR(power_milliwatts) },
		{ "nvmlDeviceGetTotalEnergyConsumption", "energy", SENSOR(energy_millijoules),
		  SENSOR(energy_millijoules) },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(rows); i++) {
		struct gpu_sensors sensors = whole;
		char failures[64], problem[256];

		*(uint64_t *)((char *)&sensors + rows[i].field) = GPU_SENSOR_UNKNOWN;
		*(uint64_t *)((char *)&sensors + rows[i].more) = GPU_SENSOR_UNKNOWN;
		snprintf(failures, sizeof(failures), "%s=15", rows[i].call);
		standin_tell("STANDIN_FAILURES", failures);
		snprintf(problem, sizeof(problem),
			 "NVML does not tell the %s of the GPU at 0000:19:00.0: the stand-in's error (error "
			 "15)",
			 rows[i].what);
		expect(&sensors, problem);
	}
}

static void of_several_failures_the_first_is_told(void **state)
{
	standin_tell("STANDIN_FAILURES", "nvmlDeviceGetHandleByUUID=6,nvmlDeviceGetPowerUsage=15");
	expect(&(struct gpu_sensors)GPU_SENSORS_UNKNOWN,
	       "NVML does not tell the sensors of the GPU at 0000:19:00.0: the stand-in's error (error 6)");
}

static void one_that_does_not_start_says_why(void **state)
{
	static const char *const calls[] = { "nvmlInit_v2", "nvmlSystemGetNVMLVersion" };

	for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
		struct dynamic_library library = { 0 };
		struct nvml other;
		char failures[64];

		snprintf(failures, sizeof(failures), "%s=9", calls[i]);
		standin_tell("STANDIN_FAILURES", failures);
		assert_false(nvml_open(&other, &library));
		assert_string_equal(library.problem, "it does not start: the stand-in's error (error 9)");
	}
	/* What has been started has been shut down. */
	standin_tell("STANDIN_FAILURES", NULL);
	nvml_close(&nvml);
	assert_int_not_equal(nvml.shutdown(), NVML_DONE);
	assert_int_equal(nvml.init(), NVML_DONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_gpu_is_known_by_its_uuid),
		TEST(all_sensors_are_read),
		TEST(a_slice_has_the_sensors_that_it_has),
		TEST(what_cannot_be_read_is_not_known),
		TEST(of_several_failures_the_first_is_told),
		TEST(one_that_does_not_start_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
