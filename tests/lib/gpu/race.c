#include "tests/lib/gpu/race.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/gpu/standin.h"

/* A stream's number begins with its process. */
#define PROCESS_SHIFT 24

void race_table_init(struct race_table *table)
{
	pthread_mutexattr_t attributes;

	memset(table, 0, sizeof(*table));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	/* A process may be killed with the lock. */
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&table->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
}

static void lock(struct race_table *table)
{
	if (pthread_mutex_lock(&table->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&table->lock);
}

static uint64_t *time_of(struct race_clock *clock, uint64_t stream)
{
	for (unsigned i = 0; i < clock->count; i++)
		if (clock->entries[i].stream == stream)
			return &clock->entries[i].time;
	return NULL;
}

static bool comes_before(const struct race_clock *clock, const struct race_access *access)
{
	const uint64_t *time = time_of((struct race_clock *)clock, access->stream);

	return time && *time >= access->time;
}

/* The driver has waited for what a process did before it lets that go. A process may have ended, and nobody
 * has asked how. */
static bool has_ended(uint64_t stream)
{
	char path[64], state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)(stream >> PROCESS_SHIFT));
	file = fopen(path, "re");
	if (!file)
		return true;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = 'X';
	fclose(file);
	return state == 'Z' || state == 'X';
}

static uint64_t *add(struct race_clock *clock, uint64_t stream)
{
	for (unsigned i = clock->count; clock->count == RACE_ACTORS && i-- > 0;)
		if (has_ended(clock->entries[i].stream))
			clock->entries[i] = clock->entries[--clock->count];
	if (clock->count == RACE_ACTORS)
		standin_abort("more than %d streams know of one another", RACE_ACTORS);
	clock->entries[clock->count].stream = stream;
	clock->entries[clock->count].time = 0;
	return &clock->entries[clock->count++].time;
}

void race_actor_init(struct race_actor *actor)
{
	static _Atomic uint64_t last;

	actor->stream = (uint64_t)getpid() << PROCESS_SHIFT | ++last;
	actor->clock.count = 0;
	race_step(actor);
}

void race_step(struct race_actor *actor)
{
	uint64_t *time = time_of(&actor->clock, actor->stream);

	(*(time ? time : add(&actor->clock, actor->stream)))++;
}

void race_join(struct race_clock *clock, const struct race_clock *other)
{
	for (unsigned i = 0; i < other->count; i++) {
		uint64_t *time = time_of(clock, other->entries[i].stream);

		if (!time)
			time = add(clock, other->entries[i].stream);
		if (*time < other->entries[i].time)
			*time = other->entries[i].time;
	}
}

/* Whatever races with the old one races with the new one, too. */
static bool replaces(const struct race_access *access, const struct race_access *old)
{
	return access->begin <= old->begin && access->end >= old->end &&
	       (access->is_write || (access->stream == old->stream && !old->is_write));
}

static void forget(struct race_table *table, unsigned i)
{
	table->accesses[i] = table->accesses[--table->count];
}

static void insert(struct race_table *table, const struct race_access *access)
{
	for (unsigned i = table->count; i-- > 0;)
		if (replaces(access, &table->accesses[i]))
			forget(table, i);
	for (unsigned i = table->count; table->count == RACE_ACCESSES && i-- > 0;)
		if (has_ended(table->accesses[i].stream))
			forget(table, i);
	if (table->count == RACE_ACCESSES)
		standin_abort("%d accesses to one range of memory, whose end nobody has seen", RACE_ACCESSES);
	table->accesses[table->count++] = *access;
}

static const char *verb(bool is_write)
{
	return is_write ? "writes" : "reads";
}

void race_check(const struct race_actor *actor, const struct race_range *range, const char *what)
{
	struct race_table *table = range->table;
	struct race_access access = {
		.begin = range->offset,
		.end = range->offset + range->bytes,
		.stream = actor->stream,
		.time = *time_of((struct race_clock *)&actor->clock, actor->stream),
		.is_write = range->is_write,
	};

	lock(table);
	for (unsigned i = 0; i < table->count; i++) {
		const struct race_access *other = &table->accesses[i];

		if (other->end <= access.begin || other->begin >= access.end ||
		    (!access.is_write && !other->is_write) || other->stream == access.stream ||
		    comes_before(&actor->clock, other) || has_ended(other->stream))
			continue;
		standin_abort("race: a %s %s bytes %zu to %zu, and another stream %s bytes %zu to %zu: "
			      "neither waits for the other",
			      what, verb(access.is_write), access.begin, access.end, verb(other->is_write),
			      other->begin, other->end);
	}
	insert(table, &access);
	pthread_mutex_unlock(&table->lock);
}

void race_see(struct race_table *table, const struct race_clock *clock)
{
	lock(table);
	for (unsigned i = table->count; i-- > 0;)
		if (comes_before(clock, &table->accesses[i]))
			forget(table, i);
	pthread_mutex_unlock(&table->lock);
}

bool race_is_quiet(struct race_table *table, size_t offset, size_t bytes)
{
	uint64_t process = (uint64_t)getpid();
	bool is_quiet = true;

	lock(table);
	for (unsigned i = 0; i < table->count; i++) {
		const struct race_access *access = &table->accesses[i];

		is_quiet &= access->stream >> PROCESS_SHIFT != process || access->end <= offset ||
			    access->begin >= offset + bytes;
	}
	pthread_mutex_unlock(&table->lock);
	return is_quiet;
}
