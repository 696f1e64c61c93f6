#include "poll_train.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define MICRO_BATCHES 2
#define UNITS 8
#define ITEMS (MICRO_BATCHES * UNITS)
#define SLOTS 5
#define BUFFERS 6
#define GATHERS 3 /* in flight at a time */

/* More than half a pack: every unit is one of its own, in a slot of its own. */
#define ELEMENTS UINT64_C(540672)

/* A gather, what comes of it, and the push. */
struct item {
	unsigned unit, micro_batch;
	struct tierd_ticket *gather, *push;
	bool is_done;
};

struct results {
	struct tierd_step_result steps[TRAIN_RANKS][TRAIN_STEPS];
	unsigned char state[];
};

struct trainer {
	struct results *results;
	unsigned rank;
	struct tierd_node *node;
	struct tierd_job *job;
	uint64_t step;

	/* Of the event loop. */
	struct item items[ITEMS];
	unsigned oldest, begun; /* items before are done; items up to here have been begun */
	struct tierd_ticket *step_ticket;
	struct tierd_ticket *unwanted; /* a gather that is given up in the end */
	bool is_applied;
	unsigned wakes; /* in this step */
};

static bool is_bf16(unsigned unit)
{
	return unit % 2 != 0;
}

static size_t parameter_bytes(unsigned unit)
{
	return ELEMENTS * (is_bf16(unit) ? 2 : 4);
}

size_t train_space_bytes(void)
{
	size_t bytes = sizeof(struct results);

	for (unsigned unit = 0; unit < UNITS; unit++)
		bytes += parameter_bytes(unit) + 3 * sizeof(float) * ELEMENTS;
	return bytes;
}

/* ---- Both ways ---- */

/* Sums; of each rank its buffers, and one for gradients that wait; slots; windows and change. */
static uint64_t host_budget(void)
{
	return 4 * ELEMENTS * (UNITS + TRAIN_RANKS * (BUFFERS + 1) + SLOTS) + (4 << 20);
}

static void join(struct trainer *trainer, const char *name)
{
	struct tierd_job_options options = support_options(name, trainer->rank, TRAIN_RANKS);
	char unit[16];

	options.clip_norm = 0.5f;
	options.gradient_buffers = BUFFERS;
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	options.host_budget = host_budget();
	trainer->node = support_connect();
	OK(tierd_job_open(trainer->node, &options, &trainer->job));
	for (unsigned i = 0; i < UNITS; i++) {
		snprintf(unit, sizeof(unit), "unit%u", i);
		REQUIRE(support_define(trainer->job, unit, is_bf16(i) ? TIERD_BF16 : TIERD_FP32, ELEMENTS,
				       1.0 + i) == i);
	}
}

static void fill_gradients(unsigned unit, uint64_t seed, void *values)
{
	for (uint64_t i = 0; i < ELEMENTS; i++) {
		float value = (float)(int16_t)support_random(&seed) / 32768.0f;
		uint32_t bits;

		memcpy(&bits, &value, sizeof(bits));
		if (is_bf16(unit))
			((uint16_t *)values)[i] = (uint16_t)(bits >> 16);
		else
			((float *)values)[i] = value;
	}
}

/* Gradients depend on the parameters: a wrong version would show in the end. */
static void compute(struct trainer *trainer, unsigned unit, unsigned micro_batch,
		    const struct tierd_view *parameters)
{
	const char *last = (const char *)tierd_at(parameters, 0) + parameter_bytes(unit) - 2;
	struct tierd_view gradients;
	uint16_t bits;

	REQUIRE(parameters->version == trainer->step);
	memcpy(&bits, last, sizeof(bits));
	OK(tierd_gradients(trainer->job, unit, &gradients));
	fill_gradients(unit,
		       (((trainer->step * TRAIN_RANKS + trainer->rank) * UNITS + unit) * MICRO_BATCHES +
			micro_batch) << 16 |
			       bits,
		       tierd_at(&gradients, 0));
}

static struct tierd_rates rates_of(uint64_t step)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	rates.learning_rate = 0.01f / (float)(step + 1);
	return rates;
}

/* Each rank reads every other unit. */
static void read_state(struct trainer *trainer)
{
	static const char *const states[] = { "parameter", "master", "m", "v" };
	unsigned char *place = trainer->results->state;

	for (unsigned unit = 0; unit < UNITS; unit++)
		for (unsigned i = 0; i < 4; i++) {
			if (unit % TRAIN_RANKS == trainer->rank)
				OK(tierd_tensor_read(trainer->job, unit, 0, states[i], 0, ELEMENTS, place));
			place += i == 0 ? parameter_bytes(unit) : sizeof(float) * ELEMENTS;
		}
}

static void finish(struct trainer *trainer, struct crowd_board *board)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;

	OK(tierd_statistics(trainer->job, &statistics));
	REQUIRE(statistics.job_gather_read_bytes > 0); /* or there was nothing to wait for */
	read_state(trainer);
	REQUIRE(crowd_arrive(board, trainer->rank, trainer->job));
	OK(tierd_job_close(trainer->job));
	tierd_disconnect(trainer->node);
}

/* ---- By calls that block ---- */

static void take_step(struct trainer *trainer)
{
	struct tierd_step_result *result = &trainer->results->steps[trainer->rank][trainer->step];
	struct tierd_rates rates = rates_of(trainer->step);
	struct tierd_ticket *ticket;
	struct tierd_view view;

	for (unsigned i = 0; i < ITEMS; i++) {
		OK(tierd_gather(trainer->job, i % UNITS, &view));
		compute(trainer, i % UNITS, i / UNITS, &view);
		OK(tierd_push(trainer->job, i % UNITS));
		OK(tierd_release(trainer->job, i % UNITS));
	}
	OK(tierd_step(trainer->job, &rates, &ticket));
	OK(tierd_ticket_wait(ticket, TIERD_DONE, -1));
	OK(tierd_ticket_step_result(ticket, result));
	tierd_ticket_free(ticket);
	trainer->step++;
}

void train_blocking(struct crowd_board *board, unsigned rank, void *argument)
{
	struct trainer trainer = { .results = (struct results *)board->space, .rank = rank };

	join(&trainer, argument);
	OK(tierd_job_ready(trainer.job, -1, NULL));
	while (trainer.step < TRAIN_STEPS)
		take_step(&trainer);
	finish(&trainer, board);
}

/* ---- poll() ---- */

void poll_wait(const struct tierd_ticket *ticket)
{
	struct pollfd waiting = { .fd = tierd_ticket_descriptor(ticket), .events = POLLIN };

	REQUIRE(waiting.fd >= 0);
	REQUIRE(poll(&waiting, 1, PATIENCE_MS) == 1 && waiting.revents == POLLIN);
}

bool poll_is_readable(int fd)
{
	struct pollfd waiting = { .fd = fd, .events = POLLIN };
	int r = poll(&waiting, 1, 0);

	REQUIRE(r >= 0);
	return r == 1;
}

int poll_for(struct tierd_ticket *ticket, enum tierd_event event)
{
	int r = tierd_ticket_wait(ticket, event, 0);

	while (r == -ETIMEDOUT) {
		poll_wait(ticket);
		r = tierd_ticket_wait(ticket, event, 0);
	}
	return r;
}

/* ---- By tickets: each look takes what is done, and returns whether anything was ---- */

static bool look_at_gather(struct trainer *trainer, struct item *item)
{
	struct tierd_view view;
	int r;

	if (!item->gather)
		return false;
	r = tierd_gather_end(item->gather, 0, &view);
	if (r == -ETIMEDOUT)
		return false;
	OK(r);
	item->gather = NULL;
	compute(trainer, item->unit, item->micro_batch, &view);
	OK(tierd_push_begin(trainer->job, item->unit, &item->push));
	OK(tierd_release(trainer->job, item->unit));
	return true;
}

static bool look_at_push(struct item *item)
{
	int r;

	if (!item->push)
		return false;
	r = tierd_ticket_wait(item->push, TIERD_DONE, 0);
	if (r == -ETIMEDOUT)
		return false;
	OK(r);
	item->push = tierd_ticket_free(item->push);
	item->is_done = true;
	return true;
}

/* The step before, while the gathers of this one go on. */
static bool look_at_step(struct trainer *trainer)
{
	struct tierd_step_result *result;
	int r;

	if (!trainer->step_ticket)
		return false;
	r = tierd_ticket_wait(trainer->step_ticket, trainer->is_applied ? TIERD_DURABLE : TIERD_DONE, 0);
	if (r == -ETIMEDOUT)
		return false;
	if (!trainer->is_applied) {
		OK(r);
		trainer->is_applied = true;
		return true;
	}
	REQUIRE(r == 0 || r == -EOPNOTSUPP);
	result = &trainer->results->steps[trainer->rank][trainer->step - 1];
	OK(tierd_ticket_step_result(trainer->step_ticket, result));
	trainer->step_ticket = tierd_ticket_free(trainer->step_ticket);
	return true;
}

static bool look(struct trainer *trainer)
{
	bool has_moved = look_at_step(trainer);

	/* What nobody looks at keeps the descriptor readable. */
	if (trainer->unwanted)
		(void)tierd_ticket_wait(trainer->unwanted, TIERD_DONE, 0);
	for (unsigned i = trainer->oldest; i < trainer->begun; i++) {
		has_moved |= look_at_gather(trainer, &trainer->items[i]);
		has_moved |= look_at_push(&trainer->items[i]);
	}
	while (trainer->oldest < trainer->begun && trainer->items[trainer->oldest].is_done)
		trainer->oldest++;
	return has_moved;
}

/* ---- The event loop ---- */

/* A gather is begun only if there is a buffer for its gradients, so that nothing has to block; and not
 * before the unit's last micro-batch was pushed. */
static bool may_begin(const struct trainer *trainer)
{
	unsigned gathers = 0, pushes = 0;

	for (unsigned i = trainer->oldest; i < trainer->begun; i++) {
		gathers += trainer->items[i].gather != NULL;
		pushes += trainer->items[i].push != NULL;
	}
	return trainer->begun < ITEMS && trainer->begun - trainer->oldest < UNITS && gathers < GATHERS &&
	       gathers + pushes < BUFFERS;
}

static void begin(struct trainer *trainer)
{
	while (may_begin(trainer)) {
		struct item *item = &trainer->items[trainer->begun];

		*item = (struct item){ .unit = trainer->begun % UNITS,
				       .micro_batch = trainer->begun / UNITS };
		OK(tierd_gather_begin(trainer->job, item->unit, &item->gather));
		trainer->begun++;
	}
}

static const struct tierd_ticket *any_ticket(const struct trainer *trainer)
{
	const struct item *item = &trainer->items[trainer->oldest];

	if (trainer->oldest == trainer->begun)
		return trainer->step_ticket;
	return item->gather ? item->gather : item->push;
}

/* Each time there was a message, and with it at most some for which there is no ticket: of hints and of
 * gathers given up. A descriptor that is readable for nothing would go round and round. */
static void wait_for_any(struct trainer *trainer)
{
	poll_wait(any_ticket(trainer));
	REQUIRE(++trainer->wakes <= 4 * ITEMS);
}

static void give_up_unwanted(struct trainer *trainer)
{
	trainer->unwanted = tierd_ticket_free(trainer->unwanted);
}

/* Two gathers that nobody wants: one is given up at once, one when all else is pushed. */
static void begin_unwanted(struct trainer *trainer)
{
	unsigned unit = (unsigned)(3 * trainer->step + trainer->rank) % UNITS;

	OK(tierd_gather_begin(trainer->job, unit, &trainer->unwanted));
	give_up_unwanted(trainer);
	OK(tierd_gather_begin(trainer->job, (unit + 5) % UNITS, &trainer->unwanted));
}

static void run_step(struct trainer *trainer)
{
	const uint32_t soon[] = { 0, 1, 2 };
	struct tierd_rates rates = rates_of(trainer->step);

	trainer->oldest = trainer->begun = trainer->wakes = 0;
	OK(tierd_prefetch(trainer->job, soon, sizeof(soon) / sizeof(soon[0])));
	begin_unwanted(trainer);
	do {
		begin(trainer);
		if (!look(trainer))
			wait_for_any(trainer);
	} while (trainer->oldest < ITEMS || trainer->step_ticket);
	give_up_unwanted(trainer);
	OK(tierd_step(trainer->job, &rates, &trainer->step_ticket));
	trainer->is_applied = false;
	trainer->step++;
}

static void get_ready(struct trainer *trainer)
{
	struct tierd_ticket *ticket;
	struct tierd_job_state state;

	OK(tierd_job_ready_begin(trainer->job, -1, &ticket));
	OK(poll_for(ticket, TIERD_DONE));
	OK(tierd_ticket_job_state(ticket, &state));
	REQUIRE(state.status == TIERD_NEW && state.step == 0);
	tierd_ticket_free(ticket);
}

void train_polling(struct crowd_board *board, unsigned rank, void *argument)
{
	struct trainer trainer = { .results = (struct results *)board->space, .rank = rank };

	join(&trainer, argument);
	get_ready(&trainer);
	while (trainer.step < TRAIN_STEPS)
		run_step(&trainer);
	while (trainer.step_ticket)
		if (!look_at_step(&trainer))
			poll_wait(trainer.step_ticket);
	finish(&trainer, board);
}
