/* Updates on a GPU: chunks of passes, and which is next. */
#include "offload/cuda/gpu_update.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "offload/cuda/gpu_update_private.h"

/* What the fastest access of a GPU has. */
#define ALIGNMENT 256

/* Each part goes in, and comes back; and the launch. */
#define STEPS_MAX (2 * GPU_PARTS + 1)
#define LOTS (2 * GPU_STREAMS)

/* A chunk on its way. Two lots of a stream have the same memory of the GPU one after the other. */
struct lot {
	struct gpu_program program;
	struct gpu_step steps[STEPS_MAX];
	_Alignas(16) unsigned char arguments[GPU_ARGUMENTS_BYTES];
	struct gpu_pass *pass; /* NULL: it is free */
};

struct gpu_updater {
	struct gpu_updater_config config;
	struct queue passes; /* those with chunks that have not begun */
	unsigned next;
	struct lot lots[LOTS];
};

/* ---- Chunks ---- */

static size_t bytes_of(const struct gpu_pass_part *part, uint64_t count)
{
	return (count + part->elements - 1) / part->elements * part->bytes;
}

static bool moves(const struct gpu_pass_part *part)
{
	return part->array.address && !part->array.is_on_gpu;
}

static size_t room_of(const struct gpu_updater *updater)
{
	return updater->config.bytes / GPU_STREAMS / ALIGNMENT * ALIGNMENT;
}

/* Of a pass all of whose arrays are on the GPU there is one chunk. */
static uint64_t chunk_elements(const struct gpu_pass *pass, const struct gpu_pass_part parts[GPU_PARTS])
{
	uint64_t left = pass->count - pass->begun, most;
	size_t grain_bytes = 0;

	for (unsigned i = 0; i < GPU_PARTS; i++)
		if (moves(&parts[i]))
			grain_bytes += bytes_of(&parts[i], pass->kind->grain);
	if (grain_bytes == 0)
		return left;
	most = (room_of(pass->updater) - (size_t)GPU_PARTS * ALIGNMENT) / grain_bytes * pass->kind->grain;
	assert(most > 0);
	return left < most ? left : most;
}

static void add_copy(struct lot *lot, enum gpu_direction direction, driver_address to, driver_address from,
		     size_t bytes)
{
	lot->steps[lot->program.count++] =
		(struct gpu_step){ .direction = direction, .to = to, .from = from, .bytes = bytes };
	lot->pass->moved[direction] += bytes;
}

/* Says where on the GPU each part is. */
static void bring_in(struct lot *lot, const struct gpu_pass_part parts[GPU_PARTS], struct gpu_chunk *chunk)
{
	const struct gpu_updater *updater = lot->pass->updater;
	driver_address at = updater->config.memory + lot->program.stream * room_of(updater);

	for (unsigned i = 0; i < GPU_PARTS; i++) {
		driver_address there = parts[i].array.address + bytes_of(&parts[i], chunk->first);
		size_t bytes = bytes_of(&parts[i], chunk->count);

		chunk->here[i] = parts[i].array.address ? there : 0;
		if (!moves(&parts[i]))
			continue;
		chunk->here[i] = at;
		if (parts[i].array.mirror)
			chunk->here[i] = parts[i].array.mirror + bytes_of(&parts[i], chunk->first);
		else
			at += size_round_up(bytes, ALIGNMENT);
		if (parts[i].is_read && parts[i].is_mirrored)
			lot->pass->spared += bytes;
		else if (parts[i].is_read)
			add_copy(lot, GPU_FROM_HOST, chunk->here[i], there, bytes);
	}
}

static void bring_back(struct lot *lot, const struct gpu_pass_part parts[GPU_PARTS],
		       const struct gpu_chunk *chunk)
{
	for (unsigned i = 0; i < GPU_PARTS; i++)
		if (moves(&parts[i]) && parts[i].is_written)
			add_copy(lot, GPU_TO_HOST, parts[i].array.address + bytes_of(&parts[i], chunk->first),
				 chunk->here[i], bytes_of(&parts[i], chunk->count));
}

static struct driver_function *find(const struct gpu_kernels *kernels, const char *name)
{
	unsigned i = 0;

	while (strcmp(kernels->names[i], name) != 0) {
		i++;
		assert(i < kernels->count);
	}
	return kernels->functions[i];
}

static void launch(struct lot *lot, const struct gpu_chunk *chunk)
{
	struct gpu_step *step = &lot->steps[lot->program.count++];
	const struct gpu_pass *pass = lot->pass;
	const char *kernel = pass->kind->launch(pass, chunk, lot->arguments, step);

	step->function = find(pass->kernels ? pass->kernels : pass->updater->config.kernels, kernel);
}

static void begin_chunk(struct lot *lot, struct gpu_pass *pass)
{
	struct gpu_chunk chunk = { .first = pass->begun };
	struct gpu_pass_part parts[GPU_PARTS];

	/* Of those that a kind does not have. */
	for (unsigned i = 0; i < GPU_PARTS; i++)
		parts[i] = (struct gpu_pass_part){ .elements = 1 };
	pass->kind->find_parts(pass, parts);
	chunk.count = chunk_elements(pass, parts);
	lot->pass = pass;
	lot->program.count = 0;
	bring_in(lot, parts, &chunk);
	launch(lot, &chunk);
	bring_back(lot, parts, &chunk);
	pass->begun += chunk.count;
	pass->running++;
	gpu_program_submit(pass->updater->config.engine, &lot->program);
}

static struct lot *find_free(struct gpu_updater *updater)
{
	for (unsigned i = 0; i < LOTS; i++) {
		struct lot *lot = &updater->lots[(updater->next + i) % LOTS];

		if (lot->pass)
			continue;
		updater->next = (updater->next + i + 1) % LOTS;
		return lot;
	}
	return NULL;
}

static void begin_chunks(struct gpu_updater *updater)
{
	struct lot *lot;

	while (!queue_is_empty(&updater->passes) && (lot = find_free(updater))) {
		struct queue *first = queue_first(&updater->passes);
		struct gpu_pass *pass = queue_entry(first, struct gpu_pass, link);

		begin_chunk(lot, pass);
		if (pass->begun == pass->count)
			queue_remove(first);
	}
}

/* ---- Passes ---- */

/* No more of it begins. */
static void stop(struct gpu_pass *pass, int status, const struct gpu_problem *problem)
{
	queue_remove(&pass->link);
	if (pass->status < 0)
		return;
	pass->status = status;
	pass->problem = *problem;
}

static void end_chunk(struct gpu_request *request, int status)
{
	struct lot *lot = container_of(request, struct lot, program.request);
	struct gpu_pass *pass = lot->pass;
	struct gpu_updater *updater = pass->updater;

	lot->pass = NULL;
	pass->running--;
	if (status < 0)
		stop(pass, status, &request->problem);
	begin_chunks(updater);
	if (pass->running == 0 && (pass->begun == pass->count || pass->status < 0))
		pass->done(pass, pass->status);
}

static void wait_in_line(struct gpu_pass *pass)
{
	queue_push(&pass->updater->passes, &pass->link);
	begin_chunks(pass->updater);
}

/* Its event has come, or there is nothing to do, or no more. */
static void end_wait(struct gpu_request *request, int status)
{
	struct gpu_pass *pass = container_of(request, struct gpu_pass, wait.request);

	if (status < 0)
		stop(pass, status, &request->problem);
	if (pass->status < 0 || pass->count == 0)
		pass->done(pass, pass->status);
	else
		wait_in_line(pass);
}

void gpu_updater_run(struct gpu_updater *updater, struct gpu_pass *pass, const struct gpu_pass_kind *kind)
{
	assert(pass->done);
	pass->kind = kind;
	pass->updater = updater;
	pass->wait = (struct gpu_program){ .request = { .done = end_wait }, .after = pass->after };
	pass->problem.text[0] = '\0';
	pass->begun = 0;
	pass->running = 0;
	memset(pass->moved, 0, sizeof(pass->moved));
	pass->spared = 0;
	pass->status = 0;
	queue_init(&pass->link);
	if (pass->after || pass->count == 0)
		gpu_program_submit(updater->config.engine, &pass->wait);
	else
		wait_in_line(pass);
}

void gpu_updater_update(struct gpu_updater *updater, struct gpu_update *update)
{
	gpu_updater_run(updater, &update->pass, &gpu_update_kind);
}

void gpu_updater_norm(struct gpu_updater *updater, struct gpu_norm *norm)
{
	gpu_updater_run(updater, &norm->pass, &gpu_norm_kind);
}

void gpu_updater_cancel(struct gpu_updater *updater, struct gpu_pass *pass)
{
	static const struct gpu_problem none;
	bool is_in_line = !queue_is_empty(&pass->link);

	gpu_program_cancel(updater->config.engine, &pass->wait);
	if (!is_in_line)
		return;
	stop(pass, -ECANCELED, &none);
	if (pass->running > 0)
		return;
	/* So that done() does not run from here. */
	pass->wait.after = NULL;
	gpu_program_submit(updater->config.engine, &pass->wait);
}

/* ---- Updaters ---- */

struct gpu_updater *gpu_updater_new(const struct gpu_updater_config *config)
{
	struct gpu_updater *updater = calloc(1, sizeof(*updater));

	assert(config->bytes >= GPU_UPDATES_LEAST_BYTES && config->memory % ALIGNMENT == 0);
	if (!updater)
		return NULL;
	updater->config = *config;
	queue_init(&updater->passes);
	for (unsigned i = 0; i < LOTS; i++)
		updater->lots[i].program = (struct gpu_program){ .request = { .done = end_chunk },
								 .stream = i % GPU_STREAMS,
								 .steps = updater->lots[i].steps };
	return updater;
}

struct gpu_updater *gpu_updater_free(struct gpu_updater *updater)
{
	for (unsigned i = 0; updater && i < LOTS; i++)
		assert(!updater->lots[i].pass);
	free(updater);
	return NULL;
}
