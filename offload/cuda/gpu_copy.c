/* Copies of a GPU engine: which piece a stream gets next.
 *
 * A copy is held until the event that it is after has come, waits until its last piece is on its way, and is
 * done when that has arrived. Of a stream that cannot be asked any more nobody knows what it still writes:
 * its GPU is given up. */
#include <assert.h>
#include <errno.h>

#include "common/clock.h"
#include "offload/cuda/gpu_private.h"

static struct gpu_lane *lane_of(struct gpu_engine *engine, const struct gpu_copy *copy)
{
	return &engine->lanes[copy->direction];
}

static struct gpu_copy *copy_of(struct queue *link)
{
	return container_of(queue_entry(link, struct gpu_request, link), struct gpu_copy, request);
}

static void end_if_done(struct gpu_engine *engine, struct gpu_copy *copy)
{
	if (copy->is_waiting || copy->moving > 0)
		return;
	queue_remove(&copy->link);
	gpu_finish(engine, &copy->request, copy->request.status);
}

/* No more of it begins. */
static void stop(struct gpu_engine *engine, struct gpu_copy *copy, int status)
{
	queue_remove(&copy->request.link);
	copy->is_waiting = false;
	copy->request.status = status;
	end_if_done(engine, copy);
}

static void wait_in_line(struct gpu_engine *engine, struct gpu_copy *copy)
{
	struct gpu_lane *lane = lane_of(engine, copy);

	queue_push(copy->is_held ? &lane->held : &lane->waiting[copy->priority], &copy->request.link);
}

static void take(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_copy *copy = container_of(request, struct gpu_copy, request);

	copy->is_held = copy->after;
	copy->is_waiting = true;
	copy->request.status = 0;
	queue_push(&engine->copies, &copy->link);
	wait_in_line(engine, copy);
}

void gpu_copies_attend(struct gpu_engine *engine)
{
	QUEUE_FOREACH (link, &engine->copies) {
		struct gpu_copy *copy = queue_entry(link, struct gpu_copy, link);
		enum tier_priority wanted = copy->wanted;

		if (!copy->is_waiting)
			continue;
		if (copy->is_cancelled) {
			stop(engine, copy, -ECANCELED);
		} else if (wanted != copy->priority) {
			queue_remove(&copy->request.link);
			copy->priority = wanted;
			wait_in_line(engine, copy);
		}
	}
}

static void fail_all(struct gpu_engine *engine)
{
	for (int direction = 0; direction < GPU_DIRECTIONS; direction++)
		engine->lanes[direction].count = 0;
	QUEUE_FOREACH (link, &engine->copies) {
		struct gpu_copy *copy = queue_entry(link, struct gpu_copy, link);

		copy->moving = 0;
		stop(engine, copy, gpu_refuse(engine, &copy->request.problem));
	}
}

static void count_traffic(struct gpu_engine *engine, struct gpu_lane *lane, size_t bytes)
{
	struct gpu_traffic *traffic = &engine->traffic[lane - engine->lanes];
	uint64_t now_ns = clock_now_ns();

	pthread_mutex_lock(&engine->lock);
	traffic->bytes += bytes;
	traffic->busy_ns += now_ns - lane->busy_since_ns;
	pthread_mutex_unlock(&engine->lock);
	lane->busy_since_ns = now_ns;
}

static void end_pieces(struct gpu_engine *engine, struct gpu_lane *lane)
{
	while (lane->count > 0) {
		struct gpu_piece *piece = &lane->pieces[lane->first];
		struct gpu_problem ignored;
		int error = engine->driver.event_query(piece->end);

		if (error == DRIVER_NOT_READY) {
			gpu_check_patience(engine, lane->busy_since_ns, "a copy");
			break;
		}
		if (gpu_check(engine, "cuEventQuery", error, &ignored) < 0 && !engine->is_lost)
			gpu_drain(engine, lane->stream);
		if (engine->is_lost)
			break;
		count_traffic(engine, lane, piece->bytes);
		lane->first = (lane->first + 1) % GPU_PIECES;
		lane->count--;
		piece->copy->moving--;
		end_if_done(engine, piece->copy);
	}
}

static void release_held(struct gpu_engine *engine, struct gpu_lane *lane)
{
	QUEUE_FOREACH (link, &lane->held) {
		struct gpu_copy *copy = copy_of(link);
		int error = engine->driver.event_query(copy->after->event), r;

		if (error == DRIVER_NOT_READY)
			continue;
		r = gpu_check(engine, "cuEventQuery", error, &copy->request.problem);
		if (engine->is_lost)
			break;
		if (r < 0) {
			stop(engine, copy, r);
			continue;
		}
		queue_remove(link);
		copy->is_held = false;
		copy->after_ns = clock_now_ns();
		wait_in_line(engine, copy);
	}
}

/* No piece crosses the boundary of two registrations of host memory. */
size_t gpu_piece_bytes(enum gpu_direction direction, driver_address to, driver_address from, size_t bytes)
{
	driver_address host = direction == GPU_TO_HOST ? to : from;
	size_t most = direction == GPU_TO_GPU ? bytes : GPU_PIN_BYTES - host % GPU_PIN_BYTES;

	most = most < GPU_PIECE_BYTES ? most : GPU_PIECE_BYTES;
	return bytes < most ? bytes : most;
}

static int begin_piece(struct gpu_engine *engine, struct gpu_lane *lane, struct gpu_copy *copy)
{
	struct gpu_piece *piece = &lane->pieces[(lane->first + lane->count) % GPU_PIECES];
	struct gpu_problem *problem = &copy->request.problem;
	const struct driver *driver = &engine->driver;
	driver_address to = copy->to + copy->begun, from = copy->from + copy->begun;
	size_t bytes = gpu_piece_bytes(copy->direction, to, from, copy->bytes - copy->begun);
	int r;

	r = gpu_check(engine, "cuMemcpyAsync", driver->copy(to, from, bytes, lane->stream), problem);
	if (r < 0)
		return r;
	r = gpu_check(engine, "cuEventRecord", driver->event_record(piece->end, lane->stream), problem);
	if (r < 0 && !engine->is_lost)
		gpu_drain(engine, lane->stream);
	if (r < 0)
		return r;
	piece->copy = copy;
	piece->bytes = bytes;
	if (lane->count++ == 0)
		lane->busy_since_ns = clock_now_ns();
	copy->begun += bytes;
	copy->moving++;
	return 0;
}

/* All of it is on its way. */
static void has_begun(struct gpu_engine *engine, struct gpu_lane *lane, struct gpu_copy *copy)
{
	int r = 0;

	if (copy->behind)
		r = gpu_check(engine, "cuEventRecord",
			      engine->driver.event_record(copy->behind->event, lane->stream),
			      &copy->request.problem);
	if (copy->behind && r == 0)
		gpu_tell_recorded(engine, copy);
	if (!engine->is_lost)
		stop(engine, copy, r);
}

static struct gpu_copy *first_waiting(const struct gpu_lane *lane)
{
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		if (!queue_is_empty(&lane->waiting[priority]))
			return copy_of(queue_first(&lane->waiting[priority]));
	return NULL;
}

static void begin_pieces(struct gpu_engine *engine, struct gpu_lane *lane)
{
	struct gpu_copy *copy;

	while (!engine->is_lost && lane->count < GPU_PIECES && (copy = first_waiting(lane))) {
		int r = copy->begun < copy->bytes ? begin_piece(engine, lane, copy) : 0;

		if (engine->is_lost)
			break;
		if (r < 0)
			stop(engine, copy, r);
		else if (copy->begun == copy->bytes)
			has_begun(engine, lane, copy);
	}
}

void gpu_copies_advance(struct gpu_engine *engine)
{
	for (int direction = 0; direction < GPU_DIRECTIONS && !engine->is_lost; direction++) {
		struct gpu_lane *lane = &engine->lanes[direction];

		end_pieces(engine, lane);
		if (!engine->is_lost)
			release_held(engine, lane);
		begin_pieces(engine, lane);
	}
	if (engine->is_lost)
		fail_all(engine);
}

void gpu_copy_submit(struct gpu_engine *engine, struct gpu_copy *copy)
{
	assert(!copy->behind || copy->recorded);
	copy->begun = 0;
	copy->moving = 0;
	copy->after_ns = 0;
	copy->is_cancelled = false;
	copy->wanted = copy->priority;
	gpu_hand_over(engine, &copy->request, take);
}

void gpu_copy_cancel(struct gpu_engine *engine, struct gpu_copy *copy)
{
	copy->is_cancelled = true;
	gpu_change(engine);
}

void gpu_copy_raise(struct gpu_engine *engine, struct gpu_copy *copy, enum tier_priority priority)
{
	copy->wanted = priority;
	gpu_change(engine);
}
