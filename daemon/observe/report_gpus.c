#include "daemon/observe/report_gpus.h"

#include <errno.h>
#include <stdlib.h>

#include "daemon/update/update.h"

/* ---- Of the node ---- */

/* Both fields of a sensor. */
#define SET_SENSOR(wire, sensors, field)                                                                     \
	do {                                                                                                 \
		(wire)->has_##field = (sensors)->field != GPU_SENSOR_UNKNOWN;                                \
		(wire)->field = (wire)->has_##field ? (sensors)->field : 0;                                  \
	} while (0)

static void fill_sensors(const struct gpu_sensors *sensors, Tierd__Wire__Gpu *wire)
{
	SET_SENSOR(wire, sensors, busy_percent);
	SET_SENSOR(wire, sensors, used_bytes);
	SET_SENSOR(wire, sensors, temperature_celsius);
	SET_SENSOR(wire, sensors, power_milliwatts);
	SET_SENSOR(wire, sensors, energy_millijoules);
}

static void fill_gpu(const struct gpu_figures *figures, char uuid[GPU_UUID_TEXT], Tierd__Wire__Gpu *wire)
{
	tierd__wire__gpu__init(wire);
	wire->number = figures->number;
	wire->name = (char *)figures->gpu->name;
	wire->bus = (char *)figures->gpu->bus;
	wire->uuid = (char *)gpu_uuid_text(figures->gpu, uuid);
	wire->is_lost = figures->is_lost;
	wire->bytes = figures->gpu->bytes;
	wire->held_bytes = figures->held_bytes;
	wire->from_host_bytes = figures->traffic[GPU_FROM_HOST].bytes;
	wire->from_host_ns = figures->traffic[GPU_FROM_HOST].busy_ns;
	wire->to_host_bytes = figures->traffic[GPU_TO_HOST].bytes;
	wire->to_host_ns = figures->traffic[GPU_TO_HOST].busy_ns;
	fill_sensors(&figures->sensors, wire);
}

void report_gpus(const struct node *node, struct report_gpus *gpus, Tierd__Wire__NodeReply *body)
{
	struct gpu_figures figures[GPUS_MAX];

	body->n_gpus = gpu_figures_of_node(node, figures);
	body->gpus = gpus->pointers;
	for (size_t i = 0; i < body->n_gpus; i++) {
		fill_gpu(&figures[i], gpus->uuids[i], &gpus->wires[i]);
		gpus->pointers[i] = &gpus->wires[i];
	}
}

/* ---- Of a job ---- */

static void fill_updates(const struct job *job, Tierd__Wire__JobEntry *entry)
{
	struct gpu_updates_figures figures = gpu_updates_figures(job);

	entry->updated_by_processors = update_elements(job, SHARE_PROCESSORS);
	entry->updated_by_gpus = update_elements(job, SHARE_GPUS);
	entry->update_to_gpu_bytes = figures.to_gpu_bytes;
	entry->update_from_gpu_bytes = figures.from_gpu_bytes;
	entry->update_spared_bytes = figures.spared_bytes;
}

static void fill_job_gpu(struct report_job_gpu *gpu, const struct gpu_job_figures *figures)
{
	tierd__wire__job_gpu__init(&gpu->wire);
	gpu->wire.number = figures->number;
	gpu->wire.uuid = (char *)gpu_uuid_text(figures->gpu, gpu->uuid);
	gpu->wire.parameter_bytes = figures->parameter_bytes;
	gpu->wire.gradient_bytes = figures->gradient_bytes;
	gpu->wire.update_bytes = figures->update_bytes;
	gpu->wire.state_bytes = figures->state_bytes;
}

int report_job_gpus(const struct job *job, struct report_job_gpus *gpus, Tierd__Wire__JobEntry *entry)
{
	struct gpu_job_figures figures[GPUS_MAX];
	unsigned count = gpu_figures_of_job(job, figures);
	struct gpu_energy energy = gpu_energy_of_job(job);
	struct gpu_exchange_figures exchange = gpu_exchange_of_job(job);

	entry->gpu_energy_millijoules = energy.millijoules;
	entry->gpu_energy_steps = energy.steps;
	entry->gpu_exchanged_bytes = exchange.bytes;
	entry->gpu_exchange_problem = (char *)exchange.problem;
	entry->gpu_summed_bytes = gpu_summed_bytes(job);
	fill_updates(job, entry);
	if (count == 0)
		return 0;
	gpus->gpus = calloc(count, sizeof(*gpus->gpus));
	gpus->pointers = calloc(count, sizeof(*gpus->pointers));
	if (!gpus->gpus || !gpus->pointers)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		fill_job_gpu(&gpus->gpus[i], &figures[i]);
		gpus->pointers[i] = &gpus->gpus[i].wire;
	}
	entry->n_gpus = count;
	entry->gpus = gpus->pointers;
	return 0;
}

void report_job_gpus_free(struct report_job_gpus *gpus)
{
	free(gpus->gpus);
	free(gpus->pointers);
}

unsigned report_job_gpu_count(const struct job *job)
{
	struct gpu_job_figures figures[GPUS_MAX];

	return gpu_figures_of_job(job, figures);
}
