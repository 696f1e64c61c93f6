#include "offload/device/fault.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define SCRATCH_ALIGNMENT 4096

struct fault_tier {
	struct tier tier;
	struct tier_ops ops; /* with the block size of next */
	struct tier *next;
	struct fault_config config;
	uint64_t seen; /* transfers of the direction that counts */
	bool has_tripped;
};

/* Stands for a transfer that fails. */
struct fault_io {
	struct tier_io io;
	struct tier_io *original;
	void *scratch;
	int status; /* what done() gets, if io went well */
	bool flips, kills;
};

static void fault_io_free(struct fault_io *fault)
{
	free(fault->scratch);
	free(fault);
}

static void fault_done(struct tier_io *io, int status)
{
	struct fault_io *fault = container_of(io, struct fault_io, io);
	struct tier_io *original = fault->original;

	if (fault->kills)
		raise(SIGKILL);
	if (status == 0 && fault->flips)
		*(unsigned char *)original->buffer ^= 1;
	if (status == 0)
		status = fault->status;
	fault_io_free(fault);
	original->done(original, status);
}

static int make_scratch(struct fault_io *fault, size_t length)
{
	size_t rounded = (length + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;

	fault->scratch = aligned_alloc(SCRATCH_ALIGNMENT, rounded);
	if (!fault->scratch)
		return -ENOMEM;
	fault->io.buffer = fault->scratch;
	return 0;
}

/* Reads a block and discards it, so that next calls done() in time and nothing else happens. */
static int replace_by_read(struct fault_tier *tier, struct fault_io *fault)
{
	fault->io.direction = TIER_READ;
	fault->io.length = tier->ops.block_size;
	return make_scratch(fault, fault->io.length);
}

static int corrupt(struct fault_io *fault)
{
	int r;

	fault->flips = fault->io.direction == TIER_READ;
	if (fault->flips)
		return 0;
	r = make_scratch(fault, fault->io.length);
	if (r < 0)
		return r;
	memcpy(fault->scratch, fault->original->buffer, fault->io.length);
	*(unsigned char *)fault->scratch ^= 1;
	return 0;
}

static void misdirect(struct fault_tier *tier, struct fault_io *fault)
{
	struct tier_io *io = &fault->io;

	if (io->offset >= io->length)
		io->offset -= io->length;
	else if (io->length <= tier->tier.capacity - io->offset - io->length)
		io->offset += io->length;
}

static int spoil(struct fault_tier *tier, struct fault_io *fault)
{
	switch (tier->config.kind) {
	case FAULT_COMPLETE:
		fault->status = -tier->config.error;
		return fault->io.direction != TIER_READ ? replace_by_read(tier, fault) : 0;
	case FAULT_CORRUPT:
		return corrupt(fault);
	case FAULT_LOSE:
		return fault->io.direction != TIER_READ ? replace_by_read(tier, fault) : 0;
	case FAULT_MISDIRECT:
		misdirect(tier, fault);
		return 0;
	case FAULT_KILL:
		raise(SIGKILL);
		break;
	case FAULT_KILL_AFTER:
		fault->kills = true;
		return 0;
	case FAULT_SUBMIT:
		break;
	}
	return -tier->config.error;
}

static int submit_spoilt(struct fault_tier *tier, struct tier_io *io)
{
	struct fault_io *fault = calloc(1, sizeof(*fault));
	int r;

	if (!fault)
		return -ENOMEM;
	fault->io = *io;
	fault->io.done = fault_done;
	fault->original = io;
	r = spoil(tier, fault);
	if (r == 0)
		r = tier_submit(tier->next, &fault->io);
	if (r < 0)
		fault_io_free(fault);
	return r;
}

static bool is_due(struct fault_tier *tier, const struct tier_io *io)
{
	const struct fault_config *config = &tier->config;

	if (config->countdown == 0 || io->direction != config->direction)
		return false;
	tier->seen++;
	return tier->seen == config->countdown || (config->is_lasting && tier->seen > config->countdown);
}

static int fault_submit(struct tier *base, struct tier_io *io)
{
	struct fault_tier *tier = container_of(base, struct fault_tier, tier);

	if (!is_due(tier, io))
		return tier_submit(tier->next, io);
	tier->has_tripped = true;
	return submit_spoilt(tier, io);
}

/* A transfer that is replaced is not raised: it waits nowhere. */
static void fault_raise(struct tier *base, struct tier_io *io, enum tier_priority priority)
{
	if (!queue_is_empty(&io->link))
		tier_raise(container_of(base, struct fault_tier, tier)->next, io, priority);
}

static void fault_weigh(struct tier *base, const struct tier_share *share)
{
	tier_weigh(container_of(base, struct fault_tier, tier)->next, share);
}

static int fault_grow(struct tier *base, uint64_t capacity)
{
	return tier_grow(container_of(base, struct fault_tier, tier)->next, capacity);
}

static void fault_keep(struct tier *base, bool is_kept)
{
	tier_keep(container_of(base, struct fault_tier, tier)->next, is_kept);
}

static void fault_free(struct tier *base)
{
	struct fault_tier *tier = container_of(base, struct fault_tier, tier);

	tier->next = tier_free(tier->next);
	free(tier);
}

int fault_tier_new(struct tier *next, const struct fault_config *config, struct tier **ret_tier)
{
	struct fault_tier *tier = calloc(1, sizeof(*tier));

	if (!tier) {
		tier_free(next);
		return -ENOMEM;
	}
	tier->ops = (struct tier_ops){
		.block_size = next->ops->block_size,
		.submit = fault_submit,
		.raise = fault_raise,
		.weigh = fault_weigh,
		.grow = fault_grow,
		.keep = fault_keep,
		.free = fault_free,
	};
	tier->tier = (struct tier){ .ops = &tier->ops, .capacity = next->capacity, .label = next->label };
	tier->next = next;
	tier->config = *config;
	*ret_tier = &tier->tier;
	return 0;
}

bool fault_tier_has_tripped(const struct tier *tier)
{
	return container_of(tier, struct fault_tier, tier)->has_tripped;
}

static const char *const kinds[] = { "submit",	  "complete", "corrupt",    "lose",
				     "misdirect", "kill",     "kill-after", NULL };
static const char *const directions[] = { "read", "write", "flush", NULL };

/* The number of a word. */
static int parse_word(const char *text, const char *const words[])
{
	for (int i = 0; words[i]; i++)
		if (strcmp(text, words[i]) == 0)
			return i;
	return -EINVAL;
}

static int parse_countdown(const char *text, uint64_t *ret_countdown)
{
	char *end;

	errno = 0;
	*ret_countdown = strtoull(text, &end, 10);
	return errno != 0 || *end || text[0] < '0' || text[0] > '9' ? -EINVAL : 0;
}

static int parse_error(const char *text, int *ret_error)
{
	for (int error = 1; error < 134; error++) {
		const char *name = strerrorname_np(error);

		if (!name || strcmp(text, name) != 0)
			continue;
		*ret_error = error;
		return 0;
	}
	return -EINVAL;
}

static int parse_option(const char *text, struct fault_config *config)
{
	if (strcmp(text, "lasting") != 0)
		return parse_error(text, &config->error);
	config->is_lasting = true;
	return 0;
}

static int parse_field(unsigned field, const char *text, struct fault_config *config)
{
	int word;

	switch (field) {
	case 0:
		word = parse_word(text, kinds);
		config->kind = (enum fault_kind)word;
		return word < 0 ? word : 0;
	case 1:
		word = parse_word(text, directions);
		config->direction = (enum tier_direction)word;
		return word < 0 ? word : 0;
	case 2:
		return parse_countdown(text, &config->countdown);
	case 3:
	case 4:
		return parse_option(text, config);
	default:
		return -EINVAL;
	}
}

int fault_config_parse(const char *text, struct fault_config *ret_config)
{
	struct fault_config config = { .error = EIO };
	char copy[64], *rest = copy, *field;
	unsigned count = 0;
	int r = 0;

	if (strlen(text) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, text);
	while (r == 0 && (field = strsep(&rest, ":")))
		r = parse_field(count++, field, &config);
	if (r < 0 || count < 3)
		return -EINVAL;
	/* It moves nothing that could be wrong. */
	if (config.direction == TIER_FLUSH &&
	    (config.kind == FAULT_CORRUPT || config.kind == FAULT_MISDIRECT))
		return -EINVAL;
	*ret_config = config;
	return 0;
}
