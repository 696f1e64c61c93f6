/* A job takes its values piece by piece: a copy, as a reader's, brings elements of the other job into a
 * buffer; a write, as a client's, puts them where this job's first values belong. The other job goes on
 * meanwhile if it likes: the first piece that it has changed since the beginning is the end of it. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/operation.h"
#include "daemon/values/source.h"

/* Of tensors that have no source. */
#define NAMES_SHOWN 4

/* ---- The end ---- */

/* As if it had not begun. */
static void end(struct source *source)
{
	queue_remove(&source->from_link);
	source->from = NULL;
	source->snapshot = store_free(source->snapshot);
	source_map_clear(&source->map);
	source_clear_updates(source);
	free(TAKE_PTR(source->buffer));
	free(TAKE_PTR(source->values));
	if (source->charged > 0)
		budget_uncharge(source->job, source->charged);
	source->charged = 0;
	source->has_begun = false;
}

struct source *source_free(struct source *source)
{
	if (!source)
		return NULL;
	end(source);
	free(source);
	return NULL;
}

void source_fail(struct source *source, int r, const char *what)
{
	if (source->status == 0)
		source->status = refuse(source->message, sizeof(source->message), r, "job %s, %s: %s",
					source->name, what, store_error(r));
}

bool source_has_state(const struct source *source)
{
	return source && source->has_state;
}

bool source_is_quiet(const struct job *job)
{
	return !job->values->source || !job->values->source->is_busy;
}

void sources_go_on(struct job *from)
{
	QUEUE_FOREACH (link, &from->values->dependents)
		job_settle(queue_entry(link, struct source, from_link)->job);
}

/* Nothing of it is in flight: a copy would have a pin on it. */
void sources_end_job(struct job *from)
{
	for (struct queue *link = queue_pop(&from->values->dependents); link;
	     link = queue_pop(&from->values->dependents)) {
		struct source *source = queue_entry(link, struct source, from_link);

		source->from = NULL;
		/* Before the store that it is a part of. */
		source->snapshot = store_free(source->snapshot);
		source->map.catalog = NULL;
		source->status = -ENOENT;
		snprintf(source->message, sizeof(source->message),
			 "job %s has ended while its values were taken", source->job_name);
		job_settle(source->job);
	}
}

/* ---- The beginning ---- */

static const struct port *owner_port(const struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && job->members.ranks[rank]->port->uid == job->uid)
			return job->members.ranks[rank]->port;
	return job->members.ranks[0]->port;
}

static bool is_denied(const struct source *source, const struct port *port)
{
	const struct job *from = source->from;

	return !access_may_see(from, port) ||
	       (source->may_read_all && !access_may_train(from, port) && !access_may_drop(from, port));
}

void sources_end_denied(struct job *from, const char *reason)
{
	QUEUE_FOREACH (link, &from->values->dependents) {
		struct source *source = queue_entry(link, struct source, from_link);

		/* Without ranks it begins anew. */
		if (source->status < 0 || source->job->members.count == 0 ||
		    !is_denied(source, owner_port(source->job)))
			continue;
		source->status = refuse(source->message, sizeof(source->message), -EPERM, "%s", reason);
		job_settle(source->job);
	}
}

/* What a client has written stays. */
static bool is_wanted(const struct tensor *tensor)
{
	return tensor->has_source || tensor->written_count == 0;
}

/* Also what an earlier try has brought: it may be of another step. */
static int match_tensor(struct source *source, struct tensor *tensor, char *message, size_t size)
{
	int r;

	if (!is_wanted(tensor))
		return 1;
	tensor->written_count = 0;
	tensor->has_source = false;
	r = source_map_match(&source->map, tensor, message, size);
	tensor->has_source = r > 0;
	return r;
}

static int refuse_sourceless(const struct source *source, unsigned count, const char *names, char *message,
			     size_t size)
{
	return refuse(message, size, -ENODATA,
		      "%u tensor%s no source in job %s: %s%s; give them initializers and set partial, or "
		      "write their values",
		      count, count == 1 ? " has" : "s have", source->name, names,
		      count > NAMES_SHOWN ? ", …" : "");
}

static int match_all(struct source *source, char *message, size_t size)
{
	const struct catalog *catalog = &source->job->catalog;
	unsigned missing = 0;
	char names[256] = "";
	size_t used = 0;

	for (uint32_t u = 0; u < catalog->unit_count; u++)
		for (uint32_t i = 0; i < catalog->units[u].tensor_count; i++) {
			struct tensor *tensor = &catalog->units[u].tensors[i];
			int r = match_tensor(source, tensor, message, size);

			if (r < 0)
				return r;
			if (r == 0 && missing++ < NAMES_SHOWN && used < sizeof(names))
				used += (size_t)snprintf(names + used, sizeof(names) - used, "%s\"%s\"",
							 used ? ", " : "", tensor->name);
		}
	return missing == 0 || source->is_partial ? 0
						  : refuse_sourceless(source, missing, names, message, size);
}

/* What its map takes is what the job's takes. */
static uint64_t snapshot_bytes(const struct source *source)
{
	return source->snapshot_name[0] ? store_host_bytes(job_nvme_store(source->from)) : 0;
}

static int make_memory(struct source *source, char *message, size_t size)
{
	uint64_t bytes = COPY_BUFFER_BYTES + COPY_BYTES + source_map_bytes(&source->from->catalog) +
			 snapshot_bytes(source) + source_updates_bytes(source);
	int r = budget_charge(source->job, bytes, message, size);

	if (r < 0)
		return r;
	source->charged = bytes;
	source->buffer = aligned_alloc(STORE_PAGE_BYTES, COPY_BUFFER_BYTES);
	source->values = aligned_alloc(STORE_PAGE_BYTES, COPY_BYTES);
	if (!source->buffer || !source->values ||
	    source_map_new(&source->from->catalog, source->name, &source->map) < 0)
		return refuse(message, size, -ENOMEM, "out of memory");
	return 0;
}

static int look_at(const struct source *source, const struct job *from, char *message, size_t size)
{
	char loss[JOB_LOSS_TEXT];

	if (job_is_rolling_back(from))
		return refuse(message, size, -EAGAIN, "job %s is being rolled back; try again", source->name);
	if (job_is_broken(from))
		return refuse(message, size, -EIO, "its source, %s",
			      job_describe_loss(from, loss, sizeof(loss)));
	if (!job_has_state(from))
		return refuse(message, size, -EBUSY, "job %s has no values yet to take (%s)", source->name,
			      job_status_name(from));
	return 0;
}

/* A step that is being applied ends first. */
static bool stands(const struct job *from)
{
	return (from->state == JOB_TRAINED || from->state == JOB_RELEASED) && !update_is_sweeping(from) &&
	       from->decided == from->step;
}

static int find_from(struct source *source, char *message, size_t size)
{
	const struct port *port = owner_port(source->job);
	struct job *from = source_find_job(source, source->job->node, port);
	int r = from ? look_at(source, from, message, size) : source_refuse_missing(source, message, size);

	if (r < 0)
		return r;
	source->from = from;
	source->may_read_all = access_may_train(from, port) || access_may_drop(from, port);
	queue_push(&from->values->dependents, &source->from_link);
	return 0;
}

static int begin_snapshot(struct store_task *task, struct store *store)
{
	struct source *source = container_of(task, struct source, opening);

	return store_open_snapshot(store, source->snapshot_name, &task->request, &source->snapshot);
}

/* Of a job that has ended meanwhile that is said already. */
static void on_snapshot(struct store_task *task, int status)
{
	struct source *source = container_of(task, struct source, opening);

	source->is_busy = false;
	/* Its job was to be rolled back, and is there still: but it knows nothing of this source any more. */
	if (!source->from)
		source->snapshot = store_free(source->snapshot);
	if (status < 0 && source->status == 0) {
		source->status = status == -ESHUTDOWN ? -ENOENT : status;
		snapshot_explain(task->job, source->snapshot_name, status, source->message,
				 sizeof(source->message));
	}
	job_settle(source->job);
}

static void open_snapshot(struct source *source)
{
	source->is_busy = true;
	source->opening =
		(struct store_task){ .job = source->from, .begin = begin_snapshot, .done = on_snapshot };
	store_task_send(&source->opening);
}

static int match(struct source *source, char *message, size_t size)
{
	int r = match_all(source, message, size);

	if (r == 0 && source->has_state)
		r = source_match_slots(source, message, size);
	if (r < 0)
		return r;
	source->version = source->snapshot ? store_step(source->snapshot) : source->from->step;
	source->state = STATE_PARAMETER;
	source->unit = source->tensor = 0;
	source->first = source->filled = source->tensors = 0;
	source->has_begun = true;
	return 0;
}

/* 1: it stands in the middle of a step, or its snapshot is not open yet, or not its record. */
static int begin(struct source *source, char *message, size_t size)
{
	int r = source->from ? 0 : find_from(source, message, size);

	if (r == 0)
		r = look_at(source, source->from, message, size);
	if (r == 0 && !source->snapshot_name[0] && !stands(source->from))
		return 1;
	if (r == 0 && !source->buffer)
		r = make_memory(source, message, size);
	if (r == 0 && source->snapshot_name[0] && !source->snapshot) {
		open_snapshot(source);
		return 1;
	}
	if (r == 0 && source->snapshot && source->has_state && !source->updates)
		return source_read_updates(source, message, size);
	return r == 0 ? match(source, message, size) : r;
}

/* ---- Pieces ---- */

static struct tensor *tensor_at(const struct source *source)
{
	return &source->job->catalog.units[source->unit].tensors[source->tensor];
}

static void go_to_next_tensor(struct source *source)
{
	source->first = 0;
	if (++source->tensor < source->job->catalog.units[source->unit].tensor_count)
		return;
	source->tensor = 0;
	if (++source->unit < source->job->catalog.unit_count)
		return;
	source->unit = 0;
	source->state = source->state == STATE_PARAMETER ? STATE_SLOTS : source->state + 1;
}

/* Of a unit's slots all are taken, or none. */
static bool takes_piece(const struct source *source)
{
	const struct tensor *tensor = tensor_at(source);
	bool takes = source->state == STATE_PARAMETER
			     ? tensor->has_source
			     : source->job->catalog.units[source->unit].has_source && !tensor->is_frozen;

	return takes && source->first < tensor->layout.elements;
}

/* False: there is no element left. */
static bool find_piece(struct source *source)
{
	int last = source->has_state ? (int)state_count(&source->job->options) - 1 : STATE_PARAMETER;

	while (source->state <= last && !takes_piece(source)) {
		source->tensors += source->state == STATE_PARAMETER && tensor_at(source)->has_source;
		go_to_next_tensor(source);
	}
	return source->state <= last;
}

static bool has_same_format(const struct tensor *here, enum unit_section there)
{
	return section_element_bytes(here->layout.section) == section_element_bytes(there) &&
	       (here->format == FORMAT_BYTES ||
		state_master_kind(here->layout.section) == state_master_kind(there));
}

/* A frozen tensor takes equal bytes as they are; all else is best as a master. */
static int state_for(const struct source *source, const struct tensor *here, enum unit_section there)
{
	bool is_kept = here->is_frozen && has_same_format(here, there);

	return is_kept || !section_is_trainable(there) || !source->may_read_all ? STATE_PARAMETER
										: STATE_MASTER;
}

/* Elements of a tensor of this job as a range of the other; without its state. */
static struct copy_range find_range(const struct source *source, const struct tensor *tensor, uint64_t first,
				    uint64_t most)
{
	uint64_t left = tensor->layout.elements - first, at;
	const struct source_entry *entry = source_map_find(&source->map, tensor, first, &at);
	const struct unit *unit = &source->from->catalog.units[entry->unit];
	const struct tensor_layout *layout = &unit->tensors[entry->tensor].layout;
	uint64_t count = entry->end - entry->first - at;

	count = count < left ? count : left;
	return (struct copy_range){ .pack = unit->pack,
				    .section = layout->section,
				    .first =
					    unit_part(unit, layout->section)->pack_first + layout->first + at,
				    .count = count < most ? count : most };
}

/* ---- To this job ---- */

static void fail_piece(struct source *source, int status, const char *verb)
{
	char what[64];

	snprintf(what, sizeof(what), "its %s cannot be %s",
		 source->state == STATE_PARAMETER ? "values" : "optimizer's state", verb);
	source_fail(source, status, what);
}

static void on_written(struct job *job, int status)
{
	struct source *source = job->values->source;

	source->is_busy = false;
	if (status < 0)
		fail_piece(source, status, "written");
	source->first += source->filled;
	source->filled = 0;
	job_settle(job);
}

static void start_write(struct source *source, struct tensor_operation *operation)
{
	const struct copy_range *range = &source->copy.range;

	operation->values = source->values;
	operation->done = on_written;
	if (source->state != STATE_PARAMETER) {
		operation->state = source->state;
		state_write_begin(operation);
		return;
	}
	operation->is_same_format =
		operation->tensor->is_frozen && has_same_format(operation->tensor, range->section);
	if (!operation->is_same_format)
		operation->format =
			range->state == STATE_MASTER ? MASTER_ITSELF : state_master_kind(range->section);
	operation_start_write(operation);
}

static int write_piece(struct source *source)
{
	struct tensor_operation *operation = operation_new(source->job, NULL, OPERATION_WRITE, source->unit,
							   source->tensor, source->first, source->filled);

	source->is_busy = true;
	if (operation)
		start_write(source, operation);
	else
		on_written(source->job, -ENOMEM);
	return 1;
}

/* ---- From the other ---- */

/* Parts of the other's tensors may differ in format; slots are put together, since they are kept in blocks,
 * none of which a part may leave half written. */
static bool is_whole(const struct source *source)
{
	return source->filled > 0 && (source->state == STATE_PARAMETER || source->filled == PIECE_ELEMENTS ||
				      source->first + source->filled == tensor_at(source)->layout.elements);
}

static void on_copied(struct copy *copy, int status)
{
	struct source *source = container_of(copy, struct source, copy);

	source->is_busy = false;
	if (status < 0)
		fail_piece(source, status, "read");
	else
		source->filled += copy->range.count;
	job_settle(source->job);
}

static int refuse_gone(const struct source *source, char *message, size_t size)
{
	return refuse(message, size, -ESTALE,
		      "job %s has moved on to step %llu while its values of step %llu were taken; try again "
		      "when nobody trains it",
		      source->name, (unsigned long long)source->from->decided,
		      (unsigned long long)source->version);
}

/* 1 also where it has to wait. */
static int start_copy(struct source *source, const struct copy_range *range, char *message, size_t size)
{
	enum copy_outlook outlook =
		source->snapshot ? COPY_POSSIBLE : copy_look(source->from, range, source->version);
	int r;

	if (outlook == COPY_GONE)
		return refuse_gone(source, message, size);
	if (outlook == COPY_LATER)
		return 1;
	source->copy = (struct copy){ .job = source->from,
				      .snapshot = source->snapshot,
				      .range = *range,
				      .target = source->values + source->filled,
				      .buffer = source->buffer,
				      .done = on_copied };
	source->is_busy = true;
	r = copy_start(&source->copy);
	if (r == 0)
		return 1;
	source->is_busy = false;
	return refuse(message, size, r, "job %s, its values cannot be read: %s", source->name,
		      store_error(r));
}

static int take_piece(struct source *source, char *message, size_t size)
{
	const struct tensor *tensor = tensor_at(source);
	struct copy_range range =
		find_range(source, tensor, source->first + source->filled, PIECE_ELEMENTS - source->filled);

	range.state =
		source->state == STATE_PARAMETER ? state_for(source, tensor, range.section) : source->state;
	return start_copy(source, &range, message, size);
}

/* It may have been dropped, or be on its way to or from host memory. */
static int look_again(const struct source *source, char *message, size_t size)
{
	const struct job *from = source->from;

	if (job_is_ending(from))
		return source_refuse_missing(source, message, size);
	if (from->state == JOB_RETURNING)
		return 1;
	return look_at(source, from, message, size);
}

static int go_on(struct source *source, char *message, size_t size)
{
	int r = source->status < 0 ? refuse(message, size, source->status, "%s", source->message) : 0;

	source->status = 0;
	if (r == 0 && !source->has_begun)
		r = begin(source, message, size);
	if (r == 0)
		r = look_again(source, message, size);
	if (r != 0 || !find_piece(source))
		return r;
	return is_whole(source) ? write_piece(source) : take_piece(source, message, size);
}

int source_go_on(struct job *job, char *message, size_t size)
{
	struct source *source = job->values->source;
	int r;

	if (!source)
		return 0;
	if (source->is_busy)
		return 1;
	source->job = job;
	r = go_on(source, message, size);
	if (r > 0)
		return r;
	if (r == 0)
		events_of_job(job, EVENT_INITIALIZED, NULL,
			      "%llu tensor%s the values of job %s, of step %llu",
			      (unsigned long long)source->tensors, source->tensors == 1 ? " has" : "s have",
			      source->name, (unsigned long long)source->version);
	end(source);
	if (r == 0)
		job->values->source = source_free(source);
	return r;
}
