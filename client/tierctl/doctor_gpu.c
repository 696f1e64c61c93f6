/* GPUs, and what serves them, as this process sees them. */
#include <dirent.h>
#include <stdio.h>

#include "client/tierctl/doctor.h"
#include "collectives/nccl/nccl.h"
#include "offload/cuda/gpus.h"

#define DEVICES "/sys/bus/pci/devices"
#define NVIDIA 0x10de
#define DISPLAY_CONTROLLER 0x03

/* 0: it cannot be read. */
static unsigned long read_attribute(const char *device, const char *name)
{
	char path[512];
	unsigned long value;
	FILE *stream;
	bool is_read;

	snprintf(path, sizeof(path), DEVICES "/%s/%s", device, name);
	stream = fopen(path, "re");
	is_read = stream && fscanf(stream, "%lx", &value) == 1;
	if (stream)
		fclose(stream);
	return is_read ? value : 0;
}

/* Display controllers of NVIDIA on the bus, served or not. */
static unsigned count_devices(void)
{
	DIR *folder = opendir(DEVICES);
	unsigned count = 0;

	for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder))
		count += read_attribute(entry->d_name, "vendor") == NVIDIA &&
			 read_attribute(entry->d_name, "class") >> 16 == DISPLAY_CONTROLLER;
	if (folder)
		closedir(folder);
	return count;
}

/* remedy: where it was not found. Where there is no GPU it is not missed. */
static void add_library(struct doctor *doctor, const char *what, const struct dynamic_library *library,
			const char *remedy)
{
	if (library->is_found)
		doctor_add(doctor, FINDING_FOUND, what, NULL, "version %s", library->version);
	else
		doctor_add(doctor, FINDING_POOR, what, remedy, "%s", library->problem);
}

static void add_gpu(struct doctor *doctor, unsigned number, const struct gpu *gpu)
{
	char bytes[TEXT_SIZE];
	cJSON *json;

	json = doctor_add(
		doctor, gpu->is_prohibited ? FINDING_POOR : FINDING_FOUND, "GPU",
		gpu->is_prohibited ? "nvidia-smi --compute-mode=0" : NULL,
		"%u: %s, %s, compute capability %d.%d, at %s%s%s; tierd is not yet tried on hardware", number,
		gpu->name, text_bytes(gpu->bytes, bytes), gpu->capability_major, gpu->capability_minor,
		gpu->bus, gpu->shares_memory ? "" : ", whose memory processes cannot share by descriptor",
		gpu->is_prohibited ? ", whose compute mode lets nobody use it" : "");
	cJSON_AddNumberToObject(json, "number", number);
	cJSON_AddStringToObject(json, "name", gpu->name);
	cJSON_AddStringToObject(json, "bus", gpu->bus);
	cJSON_AddNumberToObject(json, "bytes", (double)gpu->bytes);
}

void doctor_look_at_gpus(struct doctor *doctor)
{
	unsigned present = count_devices();
	struct dynamic_library nvml_library, nccl_library = { 0 };
	struct nccl nccl;
	struct gpus gpus;

	gpus_find(&gpus);
	gpus_find_nvml(&nvml_library);
	(void)nccl_open(&nccl, &nccl_library);
	for (unsigned i = 0; i < gpus.count; i++)
		add_gpu(doctor, i, &gpus.gpus[i]);
	if (gpus.count == 0 && present == 0)
		doctor_add(doctor, FINDING_POOR, "GPU", NULL, "none here, and tierd needs none");
	else if (gpus.count == 0)
		doctor_add(doctor, FINDING_POOR, "GPU", "see the GPU driver",
			   "%u on the bus, none of which is served", present);
	add_library(doctor, "GPU driver", &gpus.driver,
		    present > 0 ? "NVIDIA's driver (nvidia-smi shows whether it works)" : NULL);
	add_library(doctor, "NVML", &nvml_library,
		    gpus.count > 0 ? "the package of NVIDIA's driver that has nvidia-smi" : NULL);
	add_library(doctor, "NCCL", &nccl_library, gpus.count > 1 ? "NVIDIA's package libnccl2" : NULL);
}
