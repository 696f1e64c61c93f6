#include "daemon/values/view.h"

#include <errno.h>

#include "daemon/resources/resources.h"
#include "daemon/model/model.h"
#include "daemon/update/update.h"

/* Pieces that are looked at in a turn. */
#define LOOKS_PER_TURN 256

/* ---- Life ---- */

static void end(struct view *view, int status)
{
	view_cancel(view);
	view->done(view, status);
}

static void end_piece(struct view *view, struct piece *piece)
{
	piece->status = PIECE_HERE;
	view->missing--;
}

static void on_copied(struct copy *copy, int status)
{
	struct view *view = container_of(copy, struct view, copy);
	struct piece *piece = &view->selection.pieces[view->next];

	view->is_copying = false;
	job_settle(view->job);
	if (!view->is_begun) {
		view->rest(view);
		return;
	}
	if (status < 0) {
		end(view, status);
		return;
	}
	piece->copied += copy->range.count;
	if (piece->copied == piece->range.count)
		end_piece(view, piece);
	if (view->missing == 0)
		end(view, 0);
}

int view_choose(struct view *view, struct selection *selection)
{
	struct memory memory = MEMORY_INIT;
	int r = selection->bytes > 0 ? memory_new_private(selection->bytes, &memory) : 0;

	if (r < 0)
		return r;
	if (memory.base)
		memory_make_huge(&memory, false);
	view->memory = memory;
	view->selection = *selection;
	*selection = (struct selection){ NULL };
	return 0;
}

void view_begin(struct view *view, uint64_t version)
{
	for (uint32_t i = 0; i < view->selection.count; i++) {
		view->selection.pieces[i].status = PIECE_MISSING;
		view->selection.pieces[i].copied = 0;
	}
	view->version = version;
	view->missing = view->selection.count;
	view->next = 0;
	view->is_begun = true;
}

void view_cancel(struct view *view)
{
	view->is_begun = false;
}

bool view_is_in_use(const struct view *view)
{
	return view->is_copying || !queue_is_empty(&view->watch.link);
}

void view_clear(struct view *view, struct node *node)
{
	selection_clear(&view->selection);
	disposal_start_memory(node, &view->memory);
	view->missing = 0;
}

const char *view_find(const struct view *view, const struct copy_range *range)
{
	uint64_t bytes = copy_element_bytes(range->section, range->state);

	if (view->is_begun || view->missing > 0)
		return NULL;
	SELECTION_FOREACH (piece, &view->selection, range->pack) {
		const struct copy_range *kept = &piece->range;

		if (kept->section == range->section && kept->state == range->state &&
		    kept->first <= range->first && range->first + range->count <= kept->first + kept->count)
			return view->memory.base + piece->offset + (range->first - kept->first) * bytes;
	}
	return NULL;
}

/* ---- Copying ahead of the sweep ---- */

/* Up to where the next copy would begin on whole blocks. */
static struct copy_range rest_of(const struct piece *piece)
{
	struct copy_range range = piece->range;
	uint64_t most = COPY_BYTES / copy_element_bytes(range.section, range.state);

	range.first += piece->copied;
	range.count -= piece->copied;
	most -= range.first % most;
	if (range.count > most)
		range.count = most;
	return range;
}

static int copy_piece(struct view *view, struct piece *piece)
{
	struct copy_range range = rest_of(piece);

	view->copy.job = view->job;
	view->copy.range = range;
	view->copy.buffer = view->buffer;
	view->copy.target = view->memory.base + piece->offset +
			    piece->copied * copy_element_bytes(range.section, range.state);
	view->copy.done = on_copied;
	return copy_start(&view->copy);
}

/* The next piece that can be copied now; false: none was found in a while. */
static bool find_piece(struct view *view)
{
	uint32_t count = view->selection.count;

	for (uint32_t i = 0; i < count && i < LOOKS_PER_TURN; i++) {
		const struct piece *piece = &view->selection.pieces[view->next];

		if (piece->status == PIECE_MISSING &&
		    copy_look(view->job, &piece->range, view->version) == COPY_POSSIBLE)
			return true;
		view->next = (view->next + 1) % count;
	}
	return false;
}

void view_go_on(struct view *view)
{
	int r;

	if (!view->is_begun || view->is_copying)
		return;
	if (!find_piece(view)) {
		/* Without a sweep there are some, farther on. */
		if (!update_is_sweeping(view->job))
			job_settle(view->job);
		return;
	}
	view->is_copying = true;
	r = copy_piece(view, &view->selection.pieces[view->next]);
	if (r == 0)
		return;
	view->is_copying = false;
	end(view, r);
}

/* ---- Saving before the sweep ---- */

static struct view *view_of(const struct sweep_watch *watch)
{
	return container_of(watch, struct view, watch);
}

static void begin_save(struct sweep_watch *watch, uint32_t pack)
{
	struct view *view = view_of(watch);

	/* Nobody wants what was given up. */
	if (!view->is_begun)
		return;
	SELECTION_FOREACH (piece, &view->selection, pack)
		if (piece->status == PIECE_MISSING && section_is_trainable(piece->range.section))
			piece->status = PIECE_SAVING;
}

static bool saves(const struct sweep_watch *watch, uint32_t pack)
{
	const struct view *view = view_of(watch);

	SELECTION_FOREACH (piece, &view->selection, pack)
		if (piece->status == PIECE_SAVING)
			return true;
	return false;
}

static void save_piece(const struct view *view, const struct piece *piece, const struct sweep_range *chunk,
		       const struct optimizer_arrays *arrays)
{
	const struct copy_range *range = &piece->range;
	uint64_t first = range->first > chunk->first ? range->first : chunk->first;
	uint64_t end = range->first + range->count, chunk_end = chunk->first + chunk->count;
	uint64_t at = first - chunk->first;
	const char *parameter = arrays->parameter, *kept = arrays->master;
	uint64_t bytes = copy_element_bytes(range->section, range->state);

	if (chunk_end < end)
		end = chunk_end;
	if (end <= first)
		return;
	if (range->state >= STATE_SLOTS)
		kept = (const char *)arrays->slots[range->state - STATE_SLOTS];
	if (kept && range->state != STATE_PARAMETER)
		kept += state_offset(range->section, (unsigned)range->state, at);
	const struct copy_range saved = { .pack = range->pack,
					  .section = range->section,
					  .state = range->state,
					  .first = first,
					  .count = end - first };

	copy_values(&saved, parameter + at * section_element_bytes(range->section), kept,
		    view->memory.base + piece->offset + (first - range->first) * bytes);
}

static void save(const struct sweep_watch *watch, const struct sweep_range *chunk,
		 const struct optimizer_arrays *arrays)
{
	const struct view *view = view_of(watch);

	SELECTION_FOREACH (piece, &view->selection, chunk->pack)
		if (piece->status == PIECE_SAVING && piece->range.section == chunk->section)
			save_piece(view, piece, chunk, arrays);
}

static void end_save(struct sweep_watch *watch, uint32_t pack)
{
	struct view *view = view_of(watch);

	SELECTION_FOREACH (piece, &view->selection, pack)
		if (piece->status == PIECE_SAVING)
			end_piece(view, piece);
	if (view->is_begun && view->missing == 0)
		end(view, 0);
}

static void end_sweep(struct sweep_watch *watch, int status)
{
	struct view *view = view_of(watch);

	queue_remove(&watch->link);
	if (view->is_begun && status < 0)
		end(view, status);
	else if (!view->is_begun)
		view->rest(view);
}

static const struct sweep_watch_ops watch_ops = {
	.begin_save = begin_save,
	.saves = saves,
	.save = save,
	.end_save = end_save,
	.end_sweep = end_sweep,
};

void view_init(struct view *view, struct job *job)
{
	*view = (struct view){ .watch.ops = &watch_ops, .job = job, .memory = MEMORY_INIT };
	queue_init(&view->watch.link);
}
