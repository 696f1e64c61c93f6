#include "tests/unit/collectives/gpu_machine.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/nccl_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"

#define MEMORY_BYTES ((size_t)4 << 20)
#define ALIGNMENT 256

/* ---- GPUs ---- */

static char *map_memory(int gpu)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED, .location = { DRIVER_ON_GPU, gpu } };
	struct driver_access accesses[MACHINE_GPUS];
	driver_allocation allocation;
	driver_address address;

	for (int i = 0; i < MACHINE_GPUS; i++)
		accesses[i] = (struct driver_access){ { DRIVER_ON_GPU, i }, DRIVER_READ_WRITE };
	assert_int_equal(cuMemCreate(&allocation, MEMORY_BYTES, &kind, 0), DRIVER_DONE);
	assert_int_equal(cuMemAddressReserve(&address, MEMORY_BYTES, 0, 0, 0), DRIVER_DONE);
	assert_int_equal(cuMemMap(address, MEMORY_BYTES, 0, allocation, 0), DRIVER_DONE);
	assert_int_equal(cuMemRelease(allocation), DRIVER_DONE);
	assert_int_equal(cuMemSetAccess(address, MEMORY_BYTES, accesses, MACHINE_GPUS), DRIVER_DONE);
	return (char *)(uintptr_t)address;
}

struct machine *machine_new(void)
{
	struct machine *machine = calloc(1, sizeof(*machine));

	assert_non_null(machine);
	pthread_mutex_init(&machine->lock, NULL);
	pthread_cond_init(&machine->changed, NULL);
	standin_tell("STANDIN_GPUS", "4");
	assert_int_equal(cuInit(0), DRIVER_DONE);
	for (int i = 0; i < MACHINE_GPUS; i++) {
		struct machine_gpu *gpu = &machine->gpus[i];

		assert_int_equal(cuDevicePrimaryCtxRetain(&gpu->context, i), DRIVER_DONE);
		assert_int_equal(cuCtxSetCurrent(gpu->context), DRIVER_DONE);
		assert_int_equal(cuStreamCreate(&gpu->stream, DRIVER_NO_STREAM_0), DRIVER_DONE);
		gpu->machine = machine;
		gpu->memory = map_memory(i);
		for (unsigned event = 0; event < MACHINE_MARKS; event++)
			assert_int_equal(cuEventCreate(&gpu->events[event], DRIVER_NO_TIMES), DRIVER_DONE);
	}
	return machine;
}

void machine_drain(struct machine *machine)
{
	for (int i = 0; i < MACHINE_GPUS; i++) {
		assert_int_equal(cuCtxSetCurrent(machine->gpus[i].context), DRIVER_DONE);
		assert_int_equal(cuStreamSynchronize(machine->gpus[i].stream), DRIVER_DONE);
	}
}

static void wait_for_let_go(void *argument)
{
	struct machine_gpu *gpu = argument;
	struct machine *machine = gpu->machine;

	pthread_mutex_lock(&machine->lock);
	while (gpu->is_held)
		pthread_cond_wait(&machine->changed, &machine->lock);
	pthread_mutex_unlock(&machine->lock);
}

static void set_held(struct machine *machine, unsigned gpu, bool is_held)
{
	pthread_mutex_lock(&machine->lock);
	machine->gpus[gpu].is_held = is_held;
	pthread_cond_broadcast(&machine->changed);
	pthread_mutex_unlock(&machine->lock);
}

void machine_hold(struct machine *machine, unsigned gpu)
{
	struct machine_gpu *place = &machine->gpus[gpu];

	set_held(machine, gpu, true);
	assert_int_equal(cuCtxSetCurrent(place->context), DRIVER_DONE);
	assert_int_equal(cuLaunchHostFunc(place->stream, wait_for_let_go, place), DRIVER_DONE);
}

void machine_let_go(struct machine *machine, unsigned gpu)
{
	set_held(machine, gpu, false);
}

/* Nothing of NCCL may be left. */
void machine_free(struct machine *machine)
{
	assert_int_equal(standin_members(), 0);
	machine_drain(machine);
	for (int i = 0; i < MACHINE_GPUS; i++) {
		struct machine_gpu *gpu = &machine->gpus[i];

		assert_int_equal(cuCtxSetCurrent(gpu->context), DRIVER_DONE);
		for (unsigned event = 0; event < MACHINE_MARKS; event++)
			assert_int_equal(cuEventDestroy_v2(gpu->events[event]), DRIVER_DONE);
		assert_int_equal(cuStreamDestroy_v2(gpu->stream), DRIVER_DONE);
		assert_int_equal(cuMemUnmap((uintptr_t)gpu->memory, MEMORY_BYTES), DRIVER_DONE);
		assert_int_equal(cuMemAddressFree((uintptr_t)gpu->memory, MEMORY_BYTES), DRIVER_DONE);
		assert_int_equal(cuDevicePrimaryCtxRelease_v2(i), DRIVER_DONE);
	}
	pthread_cond_destroy(&machine->changed);
	pthread_mutex_destroy(&machine->lock);
	free(machine);
}

void *machine_allocate(struct machine *machine, unsigned gpu, size_t bytes)
{
	struct machine_gpu *place = &machine->gpus[gpu];
	char *memory = place->memory + place->used;

	place->used += (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
	assert_true(place->used <= MEMORY_BYTES);
	return memory;
}

void machine_reset(struct machine *machine)
{
	for (int i = 0; i < MACHINE_GPUS; i++)
		machine->gpus[i].used = 0;
}

/* ---- What their owner does ---- */

static int enter(struct machine *machine, int gpu, enum machine_fault call)
{
	if (machine->fault == call && gpu == MACHINE_GPUS - 1)
		return -ENODEV;
	return cuCtxSetCurrent(machine->gpus[gpu].context) == DRIVER_DONE ? 0 : -EIO;
}

static int use(void *owner, int gpu)
{
	return enter(owner, gpu, FAULT_USE);
}

static int copy(void *owner, int gpu, void *stream, void *to, const void *from, size_t bytes)
{
	struct machine *machine = owner;
	int r = enter(machine, gpu, FAULT_COPY);

	machine->copies++;
	if (r == 0 && cuMemcpyAsync((uintptr_t)to, (uintptr_t)from, bytes, stream) != DRIVER_DONE)
		r = -EIO;
	return r;
}

struct kernel {
	struct communicator_sum sum;
	const void *contributions[MACHINE_RANKS];
};

static void run_sum(void *argument)
{
	struct kernel *kernel = argument;
	const struct communicator_sum *sum = &kernel->sum;

	reduce_sum_kernel(SIMD_SCALAR, sum->format)(sum->sum, sum->is_added, kernel->contributions,
						    sum->rank_count, sum->count);
	free(kernel);
}

static int sum_on_gpu(void *owner, int gpu, void *stream, const struct communicator_sum *sum)
{
	struct kernel *kernel = malloc(sizeof(*kernel));
	int r = enter(owner, gpu, FAULT_SUM);

	assert_non_null(kernel);
	kernel->sum = *sum;
	for (unsigned i = 0; i < sum->rank_count; i++)
		kernel->contributions[i] = sum->contributions[i];
	if (r == 0 && cuLaunchHostFunc(stream, run_sum, kernel) != DRIVER_DONE)
		r = -EIO;
	if (r < 0) {
		free(kernel);
		return r;
	}
	for (unsigned i = 0; i < sum->rank_count; i++)
		if (sum->contributions[i])
			standin_touch(stream, (uintptr_t)sum->contributions[i],
				      sum->count * reduce_element_bytes(sum->format), false);
	standin_touch(stream, (uintptr_t)sum->sum, sum->count * sizeof(float), true);
	return 0;
}

static int mark(void *owner, int number, void *stream, uint64_t *ret_mark)
{
	struct machine *machine = owner;
	struct machine_gpu *gpu = &machine->gpus[number];
	int r = enter(machine, number, FAULT_MARK);

	if (r == 0 && cuEventRecord(gpu->events[gpu->marks % MACHINE_MARKS], stream) != DRIVER_DONE)
		r = -EIO;
	if (r == 0)
		*ret_mark = gpu->marks++;
	return r;
}

static int is_past(void *owner, int number, uint64_t mark_number)
{
	struct machine *machine = owner;
	int r = enter(machine, number, FAULT_ANSWER);

	if (r < 0)
		return r;
	switch (cuEventQuery(machine->gpus[number].events[mark_number % MACHINE_MARKS])) {
	case DRIVER_DONE:
		return 1;
	case DRIVER_NOT_READY:
		return 0;
	default:
		return -EIO;
	}
}

const struct communicator_gpu_ops machine_ops = {
	.use = use, .copy = copy, .sum = sum_on_gpu, .mark = mark, .is_past = is_past
};
