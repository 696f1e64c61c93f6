/* Programs of a GPU engine: what streams are told. Each has one program more than it can work at, so that it
 * does not wait for the engine; all others wait here, where they can be cancelled. */
#include <errno.h>

#include "common/clock.h"
#include "offload/cuda/gpu_private.h"

static struct gpu_program *program_of(struct queue *link)
{
	return container_of(queue_entry(link, struct gpu_request, link), struct gpu_program, request);
}

static void end(struct gpu_engine *engine, struct gpu_program *program, int status)
{
	queue_remove(&program->request.link);
	gpu_finish(engine, &program->request, status);
}

static void take(struct gpu_engine *engine, struct gpu_request *request)
{
	const struct gpu_program *program = container_of(request, struct gpu_program, request);

	queue_push(&engine->tracks[program->stream].waiting, &request->link);
}

void gpu_programs_attend(struct gpu_engine *engine)
{
	for (unsigned stream = 0; stream < GPU_STREAMS; stream++)
		QUEUE_FOREACH (link, &engine->tracks[stream].waiting)
			if (program_of(link)->is_cancelled)
				end(engine, program_of(link), -ECANCELED);
}

bool gpu_programs_wait(const struct gpu_engine *engine)
{
	for (unsigned stream = 0; stream < GPU_STREAMS; stream++)
		if (!queue_is_empty(&engine->tracks[stream].waiting))
			return true;
	return false;
}

bool gpu_programs_run(const struct gpu_engine *engine)
{
	for (unsigned stream = 0; stream < GPU_STREAMS; stream++)
		if (!queue_is_empty(&engine->tracks[stream].running))
			return true;
	return false;
}

/* ---- Beginning ---- */

static int begin_copy(struct gpu_engine *engine, struct driver_stream *stream, const struct gpu_step *step,
		      struct gpu_problem *problem)
{
	size_t bytes;
	int r = 0;

	for (size_t done = 0; r == 0 && done < step->bytes; done += bytes) {
		driver_address to = step->to + done, from = step->from + done;

		bytes = gpu_piece_bytes(step->direction, to, from, step->bytes - done);
		r = gpu_check(engine, "cuMemcpyAsync", engine->driver.copy(to, from, bytes, stream), problem);
	}
	return r;
}

static int begin_step(struct gpu_engine *engine, struct driver_stream *stream, const struct gpu_step *step,
		      struct gpu_problem *problem)
{
	void *parameters[] = { (void *)step->arguments };

	if (!step->function)
		return begin_copy(engine, stream, step, problem);
	return gpu_check(engine, "cuLaunchKernel",
			 engine->driver.launch(step->function, step->blocks, 1, 1, step->threads, 1, 1, 0,
					       stream, parameters, NULL),
			 problem);
}

static int begin_steps(struct gpu_engine *engine, const struct gpu_track *track, struct driver_event *behind,
		       struct gpu_program *program)
{
	struct gpu_problem *problem = &program->request.problem;
	int r = 0;

	for (unsigned i = 0; r == 0 && i < program->count; i++)
		r = begin_step(engine, track->stream, &program->steps[i], problem);
	if (r == 0)
		r = gpu_check(engine, "cuEventRecord", engine->driver.event_record(behind, track->stream),
			      problem);
	if (r < 0 && !engine->is_lost)
		gpu_drain(engine, track->stream);
	return r;
}

static void begin(struct gpu_engine *engine, struct gpu_track *track, struct gpu_program *program)
{
	unsigned place = (track->first + track->count) % GPU_PROGRAMS;
	int r = begin_steps(engine, track, track->ends[place], program);

	if (engine->is_lost)
		return;
	if (r < 0) {
		end(engine, program, r);
		return;
	}
	queue_remove(&program->request.link);
	queue_push(&track->running, &program->request.link);
	if (track->count++ == 0)
		track->busy_since_ns = clock_now_ns();
}

/* Whether it may begin; an error ends it. */
static bool is_ready(struct gpu_engine *engine, struct gpu_program *program)
{
	int error = DRIVER_DONE, r;

	if (program->after)
		error = engine->driver.event_query(program->after->event);
	if (error == DRIVER_NOT_READY)
		return false;
	r = gpu_check(engine, "cuEventQuery", error, &program->request.problem);
	if (r < 0 && !engine->is_lost)
		end(engine, program, r);
	return r == 0;
}

static void begin_programs(struct gpu_engine *engine, struct gpu_track *track)
{
	QUEUE_FOREACH (link, &track->waiting) {
		if (engine->is_lost || track->count == GPU_PROGRAMS)
			break;
		if (is_ready(engine, program_of(link)))
			begin(engine, track, program_of(link));
	}
}

/* ---- Ending ---- */

static void end_programs(struct gpu_engine *engine, struct gpu_track *track)
{
	while (track->count > 0) {
		int error = engine->driver.event_query(track->ends[track->first]);
		struct gpu_problem ignored;

		if (error == DRIVER_NOT_READY) {
			gpu_check_patience(engine, track->busy_since_ns, "a kernel");
			break;
		}
		if (gpu_check(engine, "cuEventQuery", error, &ignored) < 0 && !engine->is_lost)
			gpu_drain(engine, track->stream);
		if (engine->is_lost)
			break;
		track->first = (track->first + 1) % GPU_PROGRAMS;
		track->count--;
		track->busy_since_ns = clock_now_ns();
		end(engine, program_of(queue_first(&track->running)), 0);
	}
}

static void fail_all(struct gpu_engine *engine, struct queue *programs)
{
	QUEUE_FOREACH (link, programs)
		end(engine, program_of(link), gpu_refuse(engine, &program_of(link)->request.problem));
}

void gpu_programs_advance(struct gpu_engine *engine)
{
	for (unsigned stream = 0; stream < GPU_STREAMS && !engine->is_lost; stream++) {
		end_programs(engine, &engine->tracks[stream]);
		begin_programs(engine, &engine->tracks[stream]);
	}
	for (unsigned stream = 0; stream < GPU_STREAMS && engine->is_lost; stream++) {
		engine->tracks[stream].count = 0;
		fail_all(engine, &engine->tracks[stream].running);
		fail_all(engine, &engine->tracks[stream].waiting);
	}
}

/* ---- The caller's side ---- */

void gpu_program_submit(struct gpu_engine *engine, struct gpu_program *program)
{
	program->is_cancelled = false;
	gpu_hand_over(engine, &program->request, take);
}

void gpu_program_cancel(struct gpu_engine *engine, struct gpu_program *program)
{
	program->is_cancelled = true;
	gpu_change(engine);
}
