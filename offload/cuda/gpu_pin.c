/* Host memory is registered in pieces, because the driver takes a tenth of a second for a GiB and more, and
 * copies wait for the thread meanwhile. No copy crosses the boundary of two pieces: the driver would refuse
 * it. */
#include <assert.h>
#include <errno.h>
#include <search.h>
#include <stdio.h>

#include "offload/cuda/gpu_private.h"

/* The driver registers memory once for a process. The context in which it was registered stays until the
 * piece goes, because the registration would go with it, also for other GPUs. */
struct piece {
	char *base;
	size_t bytes;
	unsigned users;
	int device;
	struct driver_context *context; /* NULL: of what is kept, it was let go */
	uint64_t lost_users;		/* a bit for each GPU that was lost, and may use it still */
	struct queue link;		/* of those that are kept */
	bool is_busy;			/* an engine registers it, or the contrary: others wait for that */
};

/* Of all engines, by their bases. Nobody has the lock while the driver does something: engines register at
 * the same time, and one that hangs holds up those alone that want the same piece. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_changed = PTHREAD_COND_INITIALIZER;
static void *pieces;

/* Those that nobody uses, and that the driver has not unregistered, or that a GPU which is lost may still
 * use. Copies would go to their pages, whatever is mapped there since. */
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue kept = { &kept, &kept };

static struct gpu_pin *pin_of(struct gpu_request *request)
{
	return container_of(request, struct gpu_pin, request);
}

static uint64_t bit_of(int device)
{
	return UINT64_C(1) << device;
}

static int compare(const void *a, const void *b)
{
	const char *first = ((const struct piece *)a)->base, *second = ((const struct piece *)b)->base;

	return (first > second) - (first < second);
}

/* With the lock held. */
static struct piece *find(char *base)
{
	const struct piece key = { .base = base };
	struct piece *const *found;

	while ((found = tfind(&key, &pieces, compare)) && (*found)->is_busy)
		pthread_cond_wait(&has_changed, &lock);
	return found ? *found : NULL;
}

/* Only this engine has it meanwhile. */
static void begin(struct piece *piece)
{
	piece->is_busy = true;
	pthread_mutex_unlock(&lock);
}

static void end(struct piece *piece)
{
	pthread_mutex_lock(&lock);
	piece->is_busy = false;
	pthread_cond_broadcast(&has_changed);
}

static void let_context_go(const struct gpu_engine *engine, struct piece *piece)
{
	if (piece->context)
		(void)engine->driver.context_release(piece->device);
	piece->context = NULL;
}

static int register_piece(struct gpu_engine *engine, struct piece *piece, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int r = gpu_check(engine, "cuDevicePrimaryCtxRetain",
			  driver->context_retain(&piece->context, piece->device), problem);

	if (r < 0)
		return r;
	r = gpu_check(engine, "cuMemHostRegister",
		      driver->host_register(piece->base, piece->bytes, DRIVER_PORTABLE), problem);
	if (r < 0)
		let_context_go(engine, piece);
	return r;
}

/* In the piece's context. One that is lost has to go, so that its GPU comes back. */
static int unregister_there(const struct gpu_engine *engine, struct piece *piece)
{
	const struct driver *driver = &engine->driver;
	int error = driver->context_enter(piece->context);
	size_t unused;

	if (error == DRIVER_DONE)
		error = driver->host_unregister(piece->base);
	if (error == DRIVER_DONE || driver->memory_info(&unused, &unused) != DRIVER_DONE)
		let_context_go(engine, piece);
	(void)driver->context_enter(engine->driver_context);
	return error;
}

/* By any engine. Nobody knows what a GPU that is lost still does with the memory, so that stays registered as
 * long as the GPU's context is there. */
static int unregister_piece(struct gpu_engine *engine, struct piece *piece, struct gpu_problem *problem)
{
	if (piece->lost_users)
		piece->lost_users &= gpu_contexts(engine);
	if (!piece->lost_users)
		return gpu_check(engine, "cuMemHostUnregister", unregister_there(engine, piece), problem);
	if (piece->lost_users & bit_of(piece->device))
		let_context_go(engine, piece);
	return 0;
}

/* ---- What is kept ---- */

static void keep(struct piece *piece)
{
	pthread_mutex_lock(&kept_lock);
	queue_push(&kept, &piece->link);
	pthread_mutex_unlock(&kept_lock);
}

static void keep_no_longer(struct piece *piece)
{
	pthread_mutex_lock(&kept_lock);
	queue_remove(&piece->link);
	pthread_mutex_unlock(&kept_lock);
}

static uint64_t keepers_of(const struct piece *piece)
{
	return piece->lost_users | bit_of(piece->device);
}

/* Of one that is kept for that GPU. Returns whose context it is; -1: there is none. */
static int take_context(int device)
{
	int found = -1;

	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&kept_lock);
	QUEUE_FOREACH (link, &kept) {
		struct piece *piece = queue_entry(link, struct piece, link);

		if (found >= 0 || piece->is_busy || !piece->context || !(keepers_of(piece) & bit_of(device)))
			continue;
		piece->context = NULL;
		found = piece->device;
	}
	pthread_mutex_unlock(&kept_lock);
	pthread_mutex_unlock(&lock);
	return found;
}

/* Whoever closes a GPU may have plans for it; and what is registered goes with the context. */
void gpu_pins_close(const struct gpu_engine *engine)
{
	int device;

	while ((device = take_context(engine->device)) >= 0)
		(void)engine->driver.context_release(device);
}

void gpu_pins_forget(const struct gpu_engine *engine)
{
	uint64_t contexts = gpu_contexts(engine);

	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&kept_lock);
	QUEUE_FOREACH (link, &kept) {
		struct piece *piece = queue_entry(link, struct piece, link);

		if (piece->is_busy || (keepers_of(piece) & contexts))
			continue;
		queue_remove(link);
		tdelete(piece, &pieces, compare);
		free(piece);
	}
	pthread_mutex_unlock(&kept_lock);
	pthread_mutex_unlock(&lock);
}

bool gpu_pin_keeps(const void *base, size_t bytes)
{
	const char *begin = base;
	bool keeps = false;

	pthread_mutex_lock(&kept_lock);
	QUEUE_FOREACH (link, &kept) {
		const struct piece *piece = queue_entry(link, struct piece, link);

		keeps |= piece->base < begin + bytes && begin < piece->base + piece->bytes;
	}
	pthread_mutex_unlock(&kept_lock);
	return keeps;
}

/* ---- Pieces ---- */

/* These with the lock held, but for what the driver does. */
static int add_piece(struct gpu_engine *engine, char *base, size_t bytes, struct gpu_problem *problem)
{
	struct piece *piece = calloc(1, sizeof(*piece));
	int r;

	if (piece)
		*piece = (struct piece){ .base = base, .bytes = bytes, .users = 1, .device = engine->device };
	if (piece)
		queue_init(&piece->link);
	if (!piece || !tsearch(piece, &pieces, compare)) {
		snprintf(problem->text, sizeof(problem->text), "%s: out of host memory", engine->name);
		free(piece);
		return -ENOMEM;
	}
	begin(piece);
	r = register_piece(engine, piece, problem);
	end(piece);
	if (r < 0) {
		tdelete(piece, &pieces, compare);
		free(piece);
	}
	return r;
}

static int remove_piece(struct gpu_engine *engine, struct piece *piece, struct gpu_problem *problem)
{
	int r;

	if (engine->is_lost)
		piece->lost_users |= bit_of(engine->device);
	if (--piece->users > 0)
		return 0;
	begin(piece);
	r = unregister_piece(engine, piece, problem);
	end(piece);
	if (r < 0 || piece->lost_users) {
		keep(piece);
		return r;
	}
	tdelete(piece, &pieces, compare);
	free(piece);
	return 0;
}

/* It is registered still, unless its context has gone. */
static int use_kept(struct gpu_engine *engine, struct piece *piece, struct gpu_problem *problem)
{
	int r = 0;

	if (!piece->context) {
		piece->device = engine->device;
		begin(piece);
		r = register_piece(engine, piece, problem);
		end(piece);
	}
	if (r == 0)
		keep_no_longer(piece);
	return r;
}

static int share_piece(struct gpu_engine *engine, struct piece *piece, size_t bytes,
		       struct gpu_problem *problem)
{
	int r;

	if (piece->bytes != bytes) {
		snprintf(problem->text, sizeof(problem->text),
			 "%s: a part of the memory is registered with other bounds", engine->name);
		return -EEXIST;
	}
	r = piece->users == 0 ? use_kept(engine, piece, problem) : 0;
	piece->users += r == 0;
	return r;
}

/* From there to the next boundary, or the end. */
static size_t piece_at(const struct gpu_pin *pin, size_t offset)
{
	size_t bytes = GPU_PIN_BYTES - ((uintptr_t)pin->base + offset) % GPU_PIN_BYTES;

	return bytes < pin->bytes - offset ? bytes : pin->bytes - offset;
}

static int add_next(struct gpu_engine *engine, struct gpu_pin *pin, struct gpu_problem *problem)
{
	char *base = (char *)pin->base + pin->registered;
	size_t bytes = piece_at(pin, pin->registered);
	struct piece *piece;
	int r;

	pthread_mutex_lock(&lock);
	piece = find(base);
	r = piece ? share_piece(engine, piece, bytes, problem) : add_piece(engine, base, bytes, problem);
	pthread_mutex_unlock(&lock);
	if (r == 0)
		pin->registered += bytes;
	return r;
}

static int remove_last(struct gpu_engine *engine, struct gpu_pin *pin, struct gpu_problem *problem)
{
	uintptr_t end = (uintptr_t)pin->base + pin->registered;
	uintptr_t begin = (end - 1) / GPU_PIN_BYTES * GPU_PIN_BYTES;
	char *base = begin < (uintptr_t)pin->base ? pin->base : (char *)begin;
	int r;

	pthread_mutex_lock(&lock);
	r = remove_piece(engine, find(base), problem);
	pthread_mutex_unlock(&lock);
	pin->registered = (size_t)(base - (char *)pin->base);
	return r;
}

static int add(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_pin *pin = pin_of(request);
	struct gpu_problem ignored;
	int r;

	if (engine->is_lost)
		r = gpu_refuse(engine, &request->problem);
	else
		r = add_next(engine, pin, &request->problem);
	while (r < 0 && pin->registered > 0)
		(void)remove_last(engine, pin, &ignored);
	if (r < 0)
		return r;
	return pin->registered < pin->bytes ? GPU_AGAIN : 0;
}

/* Goes on after a failure, and returns the first. */
static int remove_one(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_pin *pin = pin_of(request);
	struct gpu_problem problem;
	int r;

	if (pin->registered == 0)
		return engine->is_lost ? 0 : request->status;
	r = remove_last(engine, pin, &problem);
	if (r < 0 && request->status == 0) {
		request->status = r;
		request->problem = problem;
	}
	return GPU_AGAIN;
}

void gpu_pin_add(struct gpu_engine *engine, struct gpu_pin *pin)
{
	assert(pin->bytes > 0);
	pin->registered = 0;
	gpu_submit(engine, &pin->request, add);
}

void gpu_pin_remove(struct gpu_engine *engine, struct gpu_pin *pin)
{
	pin->request.status = 0;
	gpu_submit(engine, &pin->request, remove_one);
}
