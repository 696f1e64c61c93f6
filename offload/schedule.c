/* Start-time fair queueing, in bytes. A flow's turn costs it virtual time: the bytes of the piece over its
 * weight. The flow with the earliest time is next; one that has been away begins at the present, so it is
 * served at once, but has saved nothing up. Each class has times of its own. */
#include "offload/schedule.h"

#include <assert.h>

#define PAGE_BYTES 4096
/* Virtual time of a page at weight 1: the finest weight still tells single pages apart by a sixteenth. The
 * clock wraps after years, which the comparison allows for. */
#define PAGE_TIME (UINT64_C(16) * SCHEDULE_MAX_WEIGHT)

static bool is_before(uint64_t time, uint64_t other)
{
	return (int64_t)(time - other) < 0;
}

static enum schedule_class class_of(enum tier_priority priority)
{
	if (priority == TIER_IDLE)
		return SCHEDULE_IDLE;
	return priority == TIER_DEMAND ? SCHEDULE_DEMAND : SCHEDULE_BACKGROUND;
}

static size_t piece_of(const struct tier_io *io)
{
	size_t rest = io->length - io->finished;

	return rest < SCHEDULE_PIECE_BYTES ? rest : SCHEDULE_PIECE_BYTES;
}

static struct tier_io *first_of(const struct schedule_flow *flow, enum tier_priority priority)
{
	struct queue *link = queue_first(&flow->waiting[priority]);

	return link ? queue_entry(link, struct tier_io, link) : NULL;
}

/* The flow's next transfer of the class, or NULL. */
static struct tier_io *peek(const struct schedule_flow *flow, enum schedule_class class)
{
	struct tier_io *prefetch, *write_back;

	if (class != SCHEDULE_BACKGROUND)
		return first_of(flow, class == SCHEDULE_DEMAND ? TIER_DEMAND : TIER_IDLE);
	prefetch = first_of(flow, TIER_PREFETCH);
	write_back = first_of(flow, TIER_WRITE_BACK);
	if (prefetch && write_back && flow->earned >= piece_of(write_back))
		return write_back;
	return prefetch ? prefetch : write_back;
}

/* ---- The heap of a class: flows that have something waiting, by their times ---- */

static void put(struct schedule_heap *heap, enum schedule_class class, unsigned index,
		struct schedule_flow *flow)
{
	heap->flows[index] = flow;
	flow->turns[class].index = index;
}

/* A flow whose place is at index, or above, by its time. */
static void sift_up(struct schedule_heap *heap, enum schedule_class class, unsigned index,
		    struct schedule_flow *flow)
{
	while (index > 0) {
		struct schedule_flow *parent = heap->flows[(index - 1) / 2];

		if (!is_before(flow->turns[class].time, parent->turns[class].time))
			break;
		put(heap, class, index, parent);
		index = (index - 1) / 2;
	}
	put(heap, class, index, flow);
}

/* A flow whose place is at index, or below. */
static void sift_down(struct schedule_heap *heap, enum schedule_class class, unsigned index,
		      struct schedule_flow *flow)
{
	for (unsigned child; (child = 2 * index + 1) < heap->count; index = child) {
		if (child + 1 < heap->count && is_before(heap->flows[child + 1]->turns[class].time,
							 heap->flows[child]->turns[class].time))
			child++;
		if (!is_before(heap->flows[child]->turns[class].time, flow->turns[class].time))
			break;
		put(heap, class, index, heap->flows[child]);
	}
	put(heap, class, index, flow);
}

static void enter(struct schedule_flow *flow, enum schedule_class class)
{
	struct schedule_heap *heap = &flow->schedule->heaps[class];
	struct schedule_turn *turn = &flow->turns[class];

	assert(heap->count < SCHEDULE_MAX_FLOWS);
	if (is_before(turn->time, heap->now))
		turn->time = heap->now;
	sift_up(heap, class, heap->count++, flow);
}

static void leave(struct schedule_flow *flow, enum schedule_class class)
{
	struct schedule_heap *heap = &flow->schedule->heaps[class];
	struct schedule_flow *last = heap->flows[--heap->count];
	unsigned index = flow->turns[class].index;

	if (class == SCHEDULE_BACKGROUND && heap->count == 0)
		flow->schedule->earned = 0;
	if (class == SCHEDULE_IDLE && heap->count == 0)
		flow->schedule->idle_earned = 0;
	if (last == flow)
		return;
	sift_down(heap, class, index, last);
	sift_up(heap, class, last->turns[class].index, last);
}

/* ---- What waits ---- */

static void add(struct schedule_flow *flow, struct tier_io *io, bool is_rest)
{
	enum schedule_class class = class_of(io->priority);
	bool was_empty = !peek(flow, class);

	io->flow = flow;
	if (is_rest)
		queue_push_front(&flow->waiting[io->priority], &io->link);
	else
		queue_push(&flow->waiting[io->priority], &io->link);
	if (was_empty)
		enter(flow, class);
}

static void take(struct tier_io *io)
{
	struct schedule_flow *flow = io->flow;
	enum schedule_class class = class_of(io->priority);

	queue_remove(&io->link);
	if (queue_is_empty(&flow->waiting[TIER_WRITE_BACK]))
		flow->earned = 0;
	if (!peek(flow, class))
		leave(flow, class);
}

void schedule_init(struct schedule *schedule, const struct schedule_limits *limits)
{
	*schedule = (struct schedule){ .limits = *limits };
}

void schedule_flow_init(struct schedule_flow *flow, struct schedule *schedule, unsigned weight)
{
	assert(weight >= 1 && weight <= SCHEDULE_MAX_WEIGHT);
	*flow = (struct schedule_flow){ .schedule = schedule, .weight = weight };
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		queue_init(&flow->waiting[priority]);
}

bool schedule_flow_is_idle(const struct schedule_flow *flow)
{
	return flow->in_flight == 0 && !peek(flow, SCHEDULE_DEMAND) && !peek(flow, SCHEDULE_BACKGROUND) &&
	       !peek(flow, SCHEDULE_IDLE);
}

void schedule_push(struct schedule_flow *flow, struct tier_io *io)
{
	add(flow, io, false);
}

void schedule_push_rest(struct schedule_flow *flow, struct tier_io *io)
{
	add(flow, io, true);
}

void schedule_raise(struct tier_io *io, enum tier_priority priority)
{
	struct schedule_flow *flow = io->flow;

	if (priority >= io->priority)
		return;
	if (queue_is_empty(&io->link)) {
		io->priority = priority;
		return;
	}
	take(io);
	io->priority = priority;
	add(flow, io, false);
}

/* ---- What is next ---- */

static struct tier_io *top(const struct schedule *schedule, enum schedule_class class)
{
	const struct schedule_heap *heap = &schedule->heaps[class];

	return heap->count > 0 ? peek(heap->flows[0], class) : NULL;
}

static bool is_any_wanted(const struct schedule *schedule)
{
	return top(schedule, SCHEDULE_DEMAND) || top(schedule, SCHEDULE_BACKGROUND);
}

/* What is idle has no haste; but in its turn it has the room of what it goes before, which is full. */
static size_t bound_of(const struct schedule *schedule)
{
	size_t bound = schedule->limits.background_bytes;

	if (schedule->in_flight > schedule->background_in_flight)
		return bound / SCHEDULE_DEMAND_DIVISOR;
	return is_any_wanted(schedule) ? bound + schedule->grown : bound;
}

/* So a demand read waits for the bound that is configured and a quarter of what was moved since the last one
 * came, at most. */
static void grow(struct schedule *schedule, size_t moved)
{
	size_t most = (SCHEDULE_GROWTH_MAX - 1) * schedule->limits.background_bytes;

	schedule->grown += moved / SCHEDULE_GROWTH_PART;
	if (schedule->grown > most)
		schedule->grown = most;
}

/* A transfer that is too large for now is not overtaken by a smaller one, or it might never start. */
static bool has_room(const struct schedule *schedule, const struct tier_io *background)
{
	unsigned depth = schedule->limits.depth;

	if (schedule->background_in_flight == 0)
		return true;
	return schedule->background_in_flight < depth - depth / 4 &&
	       schedule->background_bytes + piece_of(background) <= bound_of(schedule);
}

static void earn(size_t *earned, const struct tier_io *io, unsigned part)
{
	*earned += piece_of(io) / part;
	if (*earned > SCHEDULE_PIECE_BYTES)
		*earned = SCHEDULE_PIECE_BYTES;
}

/* The class of the next turn, but for what is idle; what the background earns by waiting is bounded, or it
 * would come back as a flood. */
static struct tier_io *choose_wanted(struct schedule *schedule)
{
	struct tier_io *demand = top(schedule, SCHEDULE_DEMAND);
	struct tier_io *background = top(schedule, SCHEDULE_BACKGROUND);

	if (background && !demand)
		return has_room(schedule, background) ? background : NULL;
	if (!background)
		return demand;
	if (schedule->earned >= piece_of(background) && has_room(schedule, background)) {
		schedule->earned -= piece_of(background);
		return background;
	}
	earn(&schedule->earned, demand, SCHEDULE_BACKGROUND_PART);
	return demand;
}

/* What is idle would never end on a device that is always busy, if it earned nothing, or if what is smaller
 * took the room that it waits for. */
static struct tier_io *choose(struct schedule *schedule)
{
	struct tier_io *idle = top(schedule, SCHEDULE_IDLE), *wanted;
	bool is_wanted = is_any_wanted(schedule);

	if (!idle)
		return choose_wanted(schedule);
	if (is_wanted && schedule->idle_earned < piece_of(idle)) {
		wanted = choose_wanted(schedule);
		if (wanted)
			earn(&schedule->idle_earned, wanted, SCHEDULE_IDLE_PART);
		return wanted;
	}
	if (!has_room(schedule, idle))
		return top(schedule, SCHEDULE_DEMAND);
	schedule->idle_earned -= is_wanted ? piece_of(idle) : 0;
	return idle;
}

static void account_write_back(struct schedule_flow *flow, const struct tier_io *io)
{
	if (queue_is_empty(&flow->waiting[TIER_WRITE_BACK]) || io->priority == TIER_DEMAND ||
	    io->priority == TIER_IDLE)
		return;
	if (io->priority == TIER_PREFETCH)
		flow->earned += io->piece / SCHEDULE_WRITE_BACK_PART;
	else if (!queue_is_empty(&flow->waiting[TIER_PREFETCH]))
		flow->earned -= io->piece;
}

/* The flow is the first of the class's heap, and pays for its turn. */
static void pay(struct schedule_flow *flow, enum schedule_class class, size_t bytes)
{
	struct schedule_heap *heap = &flow->schedule->heaps[class];
	uint64_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES;

	heap->now = flow->turns[class].time;
	flow->turns[class].time += pages * PAGE_TIME / flow->weight;
	sift_down(heap, class, 0, flow);
}

struct tier_io *schedule_next(struct schedule *schedule)
{
	struct tier_io *io = schedule->in_flight < schedule->limits.depth ? choose(schedule) : NULL;

	if (!io)
		return NULL;
	io->piece = piece_of(io);
	io->is_background = io->priority != TIER_DEMAND;
	account_write_back(io->flow, io);
	pay(io->flow, class_of(io->priority), io->piece);
	take(io);
	io->flow->in_flight++;
	schedule->in_flight++;
	if (io->is_background) {
		schedule->background_in_flight++;
		schedule->background_bytes += io->piece;
	} else {
		schedule->grown = 0;
	}
	return io;
}

void schedule_finish(struct tier_io *io)
{
	struct schedule *schedule = io->flow->schedule;

	io->flow->in_flight--;
	schedule->in_flight--;
	if (!io->is_background)
		return;
	schedule->background_in_flight--;
	schedule->background_bytes -= io->piece;
	grow(schedule, io->piece);
}
