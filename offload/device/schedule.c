/* Start-time fair queueing by bytes, among users and then among the flows of a user. A turn costs virtual
 * time: the bytes of the piece divided by the share, or the weight. The earliest time is next. A user or flow
 * that comes back begins at the present time: it is served at once, but has saved nothing up. Each class has
 * its own times. */
#include "offload/device/schedule.h"

#include <assert.h>

#define PAGE_BYTES 4096
/* Virtual time of a page at weight 1. At the largest weight a page still costs 16. The clock wraps after
 * years, which is_before() allows for. */
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

/* ---- Orders ---- */

static void order_init(struct schedule_order *order)
{
	*order = (struct schedule_order){ 0 };
	queue_init(&order->turns);
}

/* Inserts a turn behind all that are not later. */
static void place(struct schedule_order *order, struct schedule_turn *turn)
{
	struct queue *before = order->turns.previous;

	while (before != &order->turns &&
	       is_before(turn->time, queue_entry(before, struct schedule_turn, link)->time))
		before = before->previous;
	queue_push_front(before, &turn->link);
}

static void enter(struct schedule_order *order, struct schedule_turn *turn)
{
	if (is_before(turn->time, order->now))
		turn->time = order->now;
	place(order, turn);
}

/* A turn that could not start in time has saved nothing up, either. */
static void pay(struct schedule_order *order, struct schedule_turn *turn, size_t bytes, unsigned weight)
{
	uint64_t pages = (bytes + PAGE_BYTES - 1) / PAGE_BYTES;

	if (is_before(order->now, turn->time))
		order->now = turn->time;
	turn->time = order->now + pages * PAGE_TIME / weight;
	queue_remove(&turn->link);
	place(order, turn);
}

/* ---- Users ---- */

static bool is_waiting(const struct schedule_user *user, enum schedule_kind kind)
{
	return !queue_is_empty(&user->turns[kind].link);
}

static enum schedule_kind kind_of(enum schedule_class class)
{
	return class == SCHEDULE_IDLE ? SCHEDULE_SPARE : SCHEDULE_WANTED;
}

static bool has_work(const struct schedule_user *user, enum schedule_kind kind)
{
	if (kind == SCHEDULE_SPARE)
		return !queue_is_empty(&user->flows[SCHEDULE_IDLE].turns);
	return !queue_is_empty(&user->flows[SCHEDULE_DEMAND].turns) ||
	       !queue_is_empty(&user->flows[SCHEDULE_BACKGROUND].turns);
}

static bool is_away(const struct schedule_user *user)
{
	return user->load.in_flight == 0 && !is_waiting(user, SCHEDULE_WANTED) &&
	       !is_waiting(user, SCHEDULE_SPARE);
}

/* A new slot, or that of the absent user with the earliest time. If all are present, there is no other flow.
 */
static struct schedule_user *take_slot(struct schedule *schedule)
{
	struct schedule_user *least = NULL;

	if (schedule->user_count < SCHEDULE_MAX_FLOWS) {
		least = &schedule->users[schedule->user_count++];
		*least = (struct schedule_user){ 0 };
		for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
			queue_init(&least->turns[kind].link);
		for (int i = 0; i < SCHEDULE_CLASSES; i++)
			order_init(&least->flows[i]);
		return least;
	}
	for (unsigned i = 0; i < SCHEDULE_MAX_FLOWS; i++) {
		struct schedule_user *user = &schedule->users[i];

		if (is_away(user) && (!least || is_before(user->turns[SCHEDULE_WANTED].time,
							  least->turns[SCHEDULE_WANTED].time)))
			least = user;
	}
	assert(least);
	return least;
}

static struct schedule_user *find_user(struct schedule *schedule, uint32_t id)
{
	struct schedule_user *user;

	for (unsigned i = 0; i < schedule->user_count; i++)
		if (schedule->users[i].id == id)
			return &schedule->users[i];
	user = take_slot(schedule);
	user->id = id;
	for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
		user->turns[kind].time = schedule->orders[kind].now;
	return user;
}

/* A flow that changes its user begins anew, because its times are relative to the other flows of a user. */
static void belong(struct schedule_flow *flow)
{
	if (flow->user && flow->user->id == flow->share.user)
		return;
	for (int i = 0; flow->user && i < SCHEDULE_CLASSES; i++)
		flow->turns[i].time = 0;
	flow->user = find_user(flow->schedule, flow->share.user);
}

static void flow_enter(struct schedule_flow *flow, enum schedule_class class)
{
	struct schedule *schedule = flow->schedule;
	struct schedule_user *user = flow->user;
	enum schedule_kind kind = kind_of(class);

	enter(&user->flows[class], &flow->turns[class]);
	if (is_waiting(user, kind))
		return;
	user->share = flow->share.user_share;
	enter(&schedule->orders[kind], &user->turns[kind]);
	if (kind == SCHEDULE_WANTED) {
		schedule->waiting++;
		schedule->present += user->bytes == 0;
	}
}

static void flow_leave(struct schedule_flow *flow, enum schedule_class class)
{
	struct schedule *schedule = flow->schedule;
	struct schedule_user *user = flow->user;
	enum schedule_kind kind = kind_of(class);

	queue_remove(&flow->turns[class].link);
	if (queue_is_empty(&user->flows[SCHEDULE_BACKGROUND].turns))
		user->earned = 0;
	if (has_work(user, kind))
		return;
	queue_remove(&user->turns[kind].link);
	if (queue_is_empty(&schedule->orders[SCHEDULE_SPARE].turns))
		schedule->idle_earned = 0;
	if (kind == SCHEDULE_WANTED) {
		schedule->waiting--;
		schedule->present -= user->bytes == 0;
	}
}

/* ---- What waits ---- */

static void add(struct schedule_flow *flow, struct tier_io *io, bool is_rest)
{
	enum schedule_class class = class_of(io->priority);
	bool was_empty = !peek(flow, class);

	if (schedule_flow_is_idle(flow))
		belong(flow);
	io->flow = flow;
	if (is_rest)
		queue_push_front(&flow->waiting[io->priority], &io->link);
	else
		queue_push(&flow->waiting[io->priority], &io->link);
	if (was_empty)
		flow_enter(flow, class);
}

static void take(struct tier_io *io)
{
	struct schedule_flow *flow = io->flow;
	enum schedule_class class = class_of(io->priority);

	queue_remove(&io->link);
	if (queue_is_empty(&flow->waiting[TIER_WRITE_BACK]))
		flow->earned = 0;
	if (!peek(flow, class))
		flow_leave(flow, class);
}

void schedule_init(struct schedule *schedule, const struct schedule_limits *limits)
{
	*schedule = (struct schedule){ .limits = *limits };
	schedule->alone = limits->depth * SCHEDULE_PIECE_BYTES;
	for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
		order_init(&schedule->orders[kind]);
}

void schedule_flow_weigh(struct schedule_flow *flow, const struct tier_share *share)
{
	flow->share = *share;
	if (share->weight == 0)
		flow->share.weight = SCHEDULE_DEFAULT_WEIGHT;
	if (share->user_share == 0)
		flow->share.user_share = SCHEDULE_DEFAULT_SHARE;
	assert(flow->share.weight <= SCHEDULE_MAX_WEIGHT && flow->share.user_share <= SCHEDULE_MAX_SHARE);
}

void schedule_flow_init(struct schedule_flow *flow, struct schedule *schedule, const struct tier_share *share)
{
	*flow = (struct schedule_flow){ .schedule = schedule };
	schedule_flow_weigh(flow, share);
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		queue_init(&flow->waiting[priority]);
	for (int i = 0; i < SCHEDULE_CLASSES; i++)
		queue_init(&flow->turns[i].link);
}

bool schedule_flow_is_idle(const struct schedule_flow *flow)
{
	return flow->in_flight == 0 && !peek(flow, SCHEDULE_DEMAND) && !peek(flow, SCHEDULE_BACKGROUND) &&
	       !peek(flow, SCHEDULE_IDLE);
}

size_t schedule_most_bytes(const struct schedule *schedule)
{
	return SCHEDULE_GROWTH_MAX * schedule->limits.background_bytes;
}

bool schedule_is_wanted(const struct schedule *schedule)
{
	return schedule->present > 0;
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

static struct schedule_user *first_user(const struct schedule *schedule, enum schedule_kind kind)
{
	struct queue *link = queue_first(&schedule->orders[kind].turns);

	return link ? container_of(link, struct schedule_user, turns[kind].link) : NULL;
}

static struct tier_io *top(const struct schedule_user *user, enum schedule_class class)
{
	struct queue *link = queue_first(&user->flows[class].turns);

	return link ? peek(container_of(link, struct schedule_flow, turns[class].link), class) : NULL;
}

static bool is_any_wanted(const struct schedule *schedule)
{
	return schedule->waiting > 0;
}

/* Idle transfers alone get no more than the bound. In a turn before others they may use the grown bound,
 * which those have filled. */
static size_t bound_of(const struct schedule *schedule, const struct schedule_load *load)
{
	size_t bound = schedule->limits.background_bytes;

	if (load->in_flight > load->background_in_flight)
		return bound / SCHEDULE_DEMAND_DIVISOR;
	return is_any_wanted(schedule) ? bound + load->grown : bound;
}

/* A demand read waits for the configured bound, and a quarter of what was moved since the last demand read,
 * at most. */
static void grow(const struct schedule *schedule, struct schedule_load *load, size_t moved)
{
	size_t most = schedule_most_bytes(schedule) - schedule->limits.background_bytes;

	load->grown += moved / SCHEDULE_GROWTH_PART;
	if (load->grown > most)
		load->grown = most;
}

/* No smaller transfer overtakes one that is too large for now, or that might never start. */
static bool has_room(const struct schedule *schedule, const struct schedule_load *load,
		     const struct tier_io *background)
{
	unsigned depth = schedule->limits.depth;

	if (load->background_in_flight == 0)
		return true;
	return load->background_in_flight < depth - depth / 4 &&
	       load->background_bytes + piece_of(background) <= bound_of(schedule, load);
}

static void earn(size_t *earned, const struct tier_io *io, unsigned part)
{
	*earned += piece_of(io) / part;
	if (*earned > SCHEDULE_PIECE_BYTES)
		*earned = SCHEDULE_PIECE_BYTES;
}

/* The next transfer of a user that is not idle, or NULL. */
static struct tier_io *choose_of_user(const struct schedule *schedule, const struct schedule_user *user)
{
	struct tier_io *demand = top(user, SCHEDULE_DEMAND);
	struct tier_io *background = top(user, SCHEDULE_BACKGROUND);
	bool may_start = background && has_room(schedule, &user->load, background);

	if (!demand)
		return may_start ? background : NULL;
	return may_start && user->earned >= piece_of(background) ? background : demand;
}

/* What a transfer costs the other users of the device. */
static size_t cost_of(const struct tier_io *io)
{
	if (io->direction == TIER_FLUSH)
		return SCHEDULE_PIECE_BYTES;
	return piece_of(io) > SCHEDULE_LEAST_BYTES ? piece_of(io) : SCHEDULE_LEAST_BYTES;
}

/* The device has its own order for what is in flight, so a user with more in flight gets more of it. */
static bool is_fair(const struct schedule *schedule, const struct schedule_user *user,
		    const struct tier_io *io)
{
	bool do_all_wait = schedule->present > 1 && schedule->waiting == schedule->present;
	size_t each = do_all_wait && schedule->limits.background_bytes > SCHEDULE_PIECE_BYTES
			      ? schedule->limits.background_bytes
			      : SCHEDULE_PIECE_BYTES;

	return user->bytes == 0 || user->bytes + cost_of(io) <= each ||
	       schedule->bytes + cost_of(io) <= schedule->present * each + schedule->alone;
}

/* The transfer of the earliest user who may start something. Nobody overtakes a user who has to wait for
 * others. */
static struct tier_io *choose_wanted(const struct schedule *schedule, bool is_demand_only)
{
	QUEUE_FOREACH (link, &schedule->orders[SCHEDULE_WANTED].turns) {
		const struct schedule_user *user =
			container_of(link, struct schedule_user, turns[SCHEDULE_WANTED].link);
		struct tier_io *io =
			is_demand_only ? top(user, SCHEDULE_DEMAND) : choose_of_user(schedule, user);

		if (io)
			return is_fair(schedule, user, io) ? io : NULL;
	}
	return NULL;
}

/* Idle transfers earn bytes from the others, or they would never end on a busy device; and while one waits
 * for space, no smaller transfer takes that. */
static struct tier_io *choose(const struct schedule *schedule)
{
	const struct schedule_user *user = first_user(schedule, SCHEDULE_SPARE);
	struct tier_io *idle = user ? top(user, SCHEDULE_IDLE) : NULL;
	bool may_start;

	if (!idle || (is_any_wanted(schedule) && schedule->idle_earned < piece_of(idle)))
		return choose_wanted(schedule, false);
	/* Beside others one idle transfer at a time, so that a series of demand reads waits for one at most.
	 */
	may_start = schedule->bytes == 0 || schedule->idle_in_flight == 0;
	return may_start && has_room(schedule, &schedule->load, idle) ? idle : choose_wanted(schedule, true);
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

/* What waits behind this transfer earns bytes, and what goes before others spends them. They are bounded, so
 * that nothing comes back as a flood. */
static void account_classes(struct schedule *schedule, struct schedule_user *user, const struct tier_io *io)
{
	enum schedule_class class = class_of(io->priority);

	if (class == SCHEDULE_IDLE)
		schedule->idle_earned -= is_any_wanted(schedule) ? piece_of(io) : 0;
	else if (first_user(schedule, SCHEDULE_SPARE))
		earn(&schedule->idle_earned, io, SCHEDULE_IDLE_PART);
	if (class == SCHEDULE_DEMAND && top(user, SCHEDULE_BACKGROUND))
		earn(&user->earned, io, SCHEDULE_BACKGROUND_PART);
	else if (class == SCHEDULE_BACKGROUND && top(user, SCHEDULE_DEMAND))
		user->earned -= piece_of(io);
}

static void account_turn(struct schedule_flow *flow, const struct tier_io *io)
{
	struct schedule *schedule = flow->schedule;
	struct schedule_user *user = flow->user;
	enum schedule_class class = class_of(io->priority);
	enum schedule_kind kind = kind_of(class);

	pay(&schedule->orders[kind], &user->turns[kind], cost_of(io), user->share);
	pay(&user->flows[class], &flow->turns[class], io->piece, flow->share.weight);
	if (kind == SCHEDULE_WANTED && schedule->last != user) {
		schedule->alone = schedule->last ? 0 : schedule->alone;
		schedule->last = user;
	}
}

static void load_add(struct schedule_load *load, const struct tier_io *io)
{
	load->in_flight++;
	if (io->is_background) {
		load->background_in_flight++;
		load->background_bytes += io->piece;
	} else {
		load->grown = 0;
	}
}

static void load_remove(const struct schedule *schedule, struct schedule_load *load, const struct tier_io *io)
{
	load->in_flight--;
	if (!io->is_background)
		return;
	load->background_in_flight--;
	load->background_bytes -= io->piece;
	grow(schedule, load, io->piece);
}

struct tier_io *schedule_next(struct schedule *schedule)
{
	bool has_place = schedule->load.in_flight < schedule->limits.depth;
	struct tier_io *io = has_place ? choose(schedule) : NULL;
	struct schedule_user *user;

	if (!io)
		return NULL;
	user = io->flow->user;
	io->piece = piece_of(io);
	io->is_background = io->priority != TIER_DEMAND;
	io->cost = io->priority == TIER_IDLE ? 0 : cost_of(io);
	account_classes(schedule, user, io);
	account_write_back(io->flow, io);
	account_turn(io->flow, io);
	io->flow->in_flight++;
	load_add(&schedule->load, io);
	load_add(&user->load, io);
	schedule->idle_in_flight += io->cost == 0;
	schedule->bytes += io->cost;
	user->bytes += io->cost;
	take(io);
	return io;
}

void schedule_finish(struct tier_io *io)
{
	struct schedule *schedule = io->flow->schedule;
	struct schedule_user *user = io->flow->user;
	size_t most = schedule->limits.depth * SCHEDULE_PIECE_BYTES;

	io->flow->in_flight--;
	load_remove(schedule, &schedule->load, io);
	load_remove(schedule, &user->load, io);
	schedule->idle_in_flight -= io->cost == 0;
	schedule->bytes -= io->cost;
	user->bytes -= io->cost;
	if (io->cost > 0 && user->bytes == 0 && !is_waiting(user, SCHEDULE_WANTED))
		schedule->present--;
	if (io->cost > 0 && user == schedule->last)
		schedule->alone += io->cost / SCHEDULE_ALONE_PART;
	if (schedule->alone > most)
		schedule->alone = most;
}
