/* GPUs, and what serves them, as this process sees them. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "client/tierctl/doctor.h"
#include "collectives/nccl/nccl.h"
#include "offload/cuda/gpus.h"

static bool read_line(const char *path, const char *key, char *text, size_t size)
{
	char line[256];
	FILE *stream = fopen(path, "re");
	bool is_found = false;

	while (stream && !is_found && fgets(line, sizeof(line), stream)) {
		line[strcspn(line, "\n")] = '\0';
		is_found = strncmp(line, key, strlen(key)) == 0;
		if (is_found)
			snprintf(text, size, "%s", line + strlen(key) + strspn(line + strlen(key), " \t"));
	}
	if (stream)
		fclose(stream);
	return is_found;
}

/* Display controllers of NVIDIA on the bus, served or not. */
static unsigned count_devices(void)
{
	DIR *folder = opendir("/sys/bus/pci/devices");
	unsigned count = 0;

	for (struct dirent *entry = folder ? readdir(folder) : NULL; entry; entry = readdir(folder)) {
		char path[512], vendor[16], class[16];

		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vendor", entry->d_name);
		if (entry->d_name[0] == '.' || !read_line(path, "0x", vendor, sizeof(vendor)))
			continue;
		snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", entry->d_name);
		count += strcmp(vendor, "10de") == 0 && read_line(path, "0x", class, sizeof(class)) &&
			 strncmp(class, "03", 2) == 0;
	}
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

	json = doctor_add(doctor, gpu->is_prohibited ? FINDING_POOR : FINDING_FOUND, "GPU",
			  gpu->is_prohibited ? "nvidia-smi --compute-mode=0" : NULL,
			  "%u: %s, %s, compute capability %d.%d, at %s%s%s; this tierd keeps no state there",
			  number, gpu->name, text_bytes(gpu->bytes, bytes), gpu->capability_major,
			  gpu->capability_minor, gpu->bus,
			  gpu->shares_memory ? "" : ", whose memory processes cannot share by descriptor",
			  gpu->is_prohibited ? ", whose compute mode lets nobody use it" : "");
	cJSON_AddNumberToObject(json, "number", number);
	cJSON_AddStringToObject(json, "name", gpu->name);
	cJSON_AddStringToObject(json, "bus", gpu->bus);
	cJSON_AddNumberToObject(json, "bytes", (double)gpu->bytes);
}

void doctor_look_at_gpus(struct doctor *doctor)
{
	unsigned present = count_devices();
	struct dynamic_library nccl = { 0 };
	struct gpus gpus;

	gpus_find(&gpus);
	(void)nccl_open(&nccl);
	for (unsigned i = 0; i < gpus.count; i++)
		add_gpu(doctor, i, &gpus.gpus[i]);
	if (gpus.count == 0 && present == 0)
		doctor_add(doctor, FINDING_POOR, "GPU", NULL, "none here, and tierd needs none");
	else if (gpus.count == 0)
		doctor_add(doctor, FINDING_POOR, "GPU", "see the GPU driver",
			   "%u on the bus, none of which is served", present);
	add_library(doctor, "GPU driver", &gpus.driver,
		    present > 0 ? "NVIDIA's driver (nvidia-smi shows whether it works)" : NULL);
	add_library(doctor, "NVML", &gpus.nvml,
		    gpus.count > 0 ? "the package of NVIDIA's driver that has nvidia-smi" : NULL);
	add_library(doctor, "NCCL", &nccl, gpus.count > 1 ? "NVIDIA's package libnccl2" : NULL);
}
