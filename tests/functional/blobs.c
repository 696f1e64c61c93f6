/* Blobs: what counts from when on, what is given back, and what is refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"

#define ELEMENTS 1000
#define MIB (1ul << 20)

static struct tierd_node *node;

static struct tierd_job *join(const char *name, bool is_durable, uint64_t blob_bytes)
{
	struct tierd_job_options options = support_options(name, 0, 1);

	options.blob_bytes = blob_bytes;
	options.snapshots = is_durable;
	if (!is_durable) {
		options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
		options.durability = TIERD_DURABILITY_NONE;
	}
	return support_join(node, &options, 1);
}

static struct tierd_job *start(const char *name, bool is_durable, uint64_t blob_bytes)
{
	struct tierd_job *job = join(name, is_durable, blob_bytes);

	OK(tierd_job_ready(job, -1, NULL));
	return job;
}

static void take_step_with(struct tierd_job *job, float gradient)
{
	struct tierd_rates rates = support_rates(0.1f);

	OK(support_push(job, 0, ELEMENTS, gradient));
	OK(tierd_step(job, &rates, NULL));
}

static void take_step(struct tierd_job *job)
{
	take_step_with(job, 1.0f);
}

/* Bytes of which each says where it should be, and whose. */
static void fill(unsigned char *bytes, size_t size, unsigned seed)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)((i ^ i >> 9 ^ i >> 17) * 31 + seed);
}

static void set(struct tierd_job *job, const char *key, size_t size, unsigned seed, uint32_t flags)
{
	unsigned char *bytes = malloc(size + 1);

	REQUIRE(bytes);
	fill(bytes, size, seed);
	OK(tierd_blob_set(job, key, bytes, size, flags));
	free(bytes);
}

static void expect(struct tierd_job *job, const char *key, size_t size, unsigned seed, uint32_t flags)
{
	unsigned char *bytes = malloc(size + 1), *wanted = malloc(size + 1);
	size_t found = 0;

	REQUIRE(bytes && wanted);
	OK(tierd_blob_get(job, key, NULL, 0, &found, flags));
	REQUIRE(found == size);
	OK(tierd_blob_get(job, key, bytes, size, &found, flags));
	fill(wanted, size, seed);
	REQUIRE(found == size && memcmp(bytes, wanted, size) == 0);
	free(bytes);
	free(wanted);
}

static void expect_none(struct tierd_job *job, const char *key, uint32_t flags)
{
	size_t size;

	FAILS(tierd_blob_get(job, key, NULL, 0, &size, flags), -ENOENT, key);
}

/* ---- In one life of the daemon ---- */

static void a_blob_counts_from_its_step_on(struct tierd_job *job)
{
	set(job, "position", 100, 1, 0);
	expect_none(job, "position", 0);
	take_step(job);
	expect(job, "position", 100, 1, 0);
	set(job, "position", 100, 2, 0);
	set(job, "position", 100, 3, 0);
	expect(job, "position", 100, 1, 0);
	take_step(job);
	expect(job, "position", 100, 3, 0);
	take_step(job);
	expect(job, "position", 100, 3, 0);
	expect_none(job, "position", TIERD_BLOB_SHARED);
}

static void blobs_grow_shrink_and_go(struct tierd_job *job)
{
	set(job, "large", 2 * MIB + 77, 4, TIERD_BLOB_SHARED);
	set(job, "empty", 0, 0, 0);
	set(job, "small", 5, 5, 0);
	take_step(job);
	set(job, "position", 3000, 6, 0);
	set(job, "large", 1 * MIB + 1, 7, TIERD_BLOB_SHARED);
	take_step(job);
	expect(job, "position", 3000, 6, 0);
	expect(job, "large", 1 * MIB + 1, 7, TIERD_BLOB_SHARED);
	expect(job, "empty", 0, 0, 0);
	expect(job, "small", 5, 5, 0);
	OK(tierd_blob_delete(job, "position", 0));
	OK(tierd_blob_delete(job, "never", 0));
	expect(job, "position", 3000, 6, 0);
	take_step(job);
	expect_none(job, "position", 0);
	expect(job, "small", 5, 5, 0);
	set(job, "position", 200, 8, 0);
	take_step(job);
	expect(job, "position", 200, 8, 0);
	expect(job, "large", 1 * MIB + 1, 7, TIERD_BLOB_SHARED);
}

/* It counts: its batch has been used. */
static void a_skipped_step_takes_its_blobs(struct tierd_job *job)
{
	set(job, "position", 200, 9, 0);
	take_step_with(job, 1e38f * 10);
	expect(job, "position", 200, 9, 0);
}

static void what_is_wrong_is_refused(struct tierd_job *job)
{
	char key[TIERD_MAX_BLOB_KEY + 2], bytes[8] = "12345678";
	size_t size = 0;

	memset(key, 'k', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	FAILS(tierd_blob_set(job, key, bytes, 8, 0), -EINVAL, "1 to 64 characters");
	FAILS(tierd_blob_set(job, "", bytes, 8, 0), -EINVAL, "1 to 64 characters");
	FAILS(tierd_blob_set(job, "a b", bytes, 8, 0), -EINVAL, "without blanks");
	FAILS(tierd_blob_set(job, "key", bytes, 8, 2), -EINVAL, "no flags 0x2");
	FAILS(tierd_blob_set(job, "key", NULL, 8, 0), -EINVAL, "NULL");
	FAILS(tierd_blob_get(job, "small", bytes, 4, &size, 0), -ERANGE, "has 5 bytes");
	REQUIRE(size == 5);
}

static void what_is_used_up_is_refused(struct tierd_job *job)
{
	char key[16], *bytes = calloc(1, 4 * MIB);

	REQUIRE(bytes);
	FAILS(tierd_blob_set(job, "more", bytes, 4 * MIB, 0), -ENOSPC, "blob_bytes");
	FAILS(tierd_blob_set(job, "more", bytes, TIERD_MAX_BLOB_BYTES + 1, 0), -EINVAL, "67108864 at most");
	/* Three of this rank are there. */
	for (unsigned i = 3; i < 16; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		OK(tierd_blob_set(job, key, bytes, 8, 0));
	}
	FAILS(tierd_blob_set(job, "key16", bytes, 8, 0), -ENOSPC, "16 keys");
	OK(tierd_blob_set(job, "shared", bytes, 8, TIERD_BLOB_SHARED));
	free(bytes);
}

/* Those of a step that is lost are lost, and their room is free again. */
static void what_belongs_to_a_lost_step_is_lost(struct tierd_job *job)
{
	struct tierd_job *again;

	OK(tierd_job_detach(job));
	again = start("host", false, 3 * MIB);
	expect_none(again, "key3", 0);
	expect_none(again, "shared", TIERD_BLOB_SHARED);
	expect(again, "position", 200, 9, 0);
	set(again, "key16", 8, 1, 0);
	OK(tierd_job_close(again));
}

static void a_job_without_room_refuses(void)
{
	struct tierd_job *job = start("bare", false, 0);

	FAILS(tierd_blob_set(job, "key", "12345678", 8, 0), -ENOSPC, "open it with blob_bytes");
	FAILS(tierd_blob_set(job, "key", "", 0, 0), -ENOSPC, "open it with blob_bytes");
	OK(tierd_job_close(job));
}

static void play_in_host_memory(void)
{
	struct tierd_job *job = start("host", false, 3 * MIB);

	a_blob_counts_from_its_step_on(job);
	blobs_grow_shrink_and_go(job);
	a_skipped_step_takes_its_blobs(job);
	what_is_wrong_is_refused(job);
	what_is_used_up_is_refused(job);
	what_belongs_to_a_lost_step_is_lost(job);
	a_job_without_room_refuses();
}

/* ---- Across kills of the daemon: blobs say of which step they are ---- */

static size_t size_at(uint64_t step)
{
	return step % 3 == 0 ? 1 * MIB + 300 * step : 5000;
}

static void check_agreement(struct tierd_job *job, uint64_t step)
{
	uint64_t found = 0;
	size_t size = sizeof(found);

	if (step == 0) {
		expect_none(job, "step", 0);
		return;
	}
	OK(tierd_blob_get(job, "step", &found, size, &size, 0));
	REQUIRE(size == sizeof(found) && found == step);
	expect(job, "bulk", size_at(step), (unsigned)step, TIERD_BLOB_SHARED);
}

/* Until it is killed, or has taken so many steps; says at which it has begun. */
static void play_until_killed(uint64_t steps)
{
	struct tierd_job *job = join("kept", true, 4 * MIB);
	struct tierd_job_state state;

	OK(tierd_job_state(job, &state));
	check_agreement(job, state.step);
	printf("%lu\n", state.step);
	fflush(stdout);
	OK(tierd_job_ready(job, -1, &state));
	for (uint64_t step = state.step + 1; step <= steps; step++) {
		if (tierd_blob_set(job, "step", &step, sizeof(step), 0) < 0)
			_exit(1);
		set(job, "bulk", size_at(step), (unsigned)step, TIERD_BLOB_SHARED);
		take_step(job);
	}
	OK(tierd_job_close(job));
}

/* ---- As large as one may be ---- */

static void one_byte_more_is_refused(struct tierd_job *job)
{
	unsigned char *bytes = calloc(1, TIERD_MAX_BLOB_BYTES + 1);

	REQUIRE(bytes);
	FAILS(tierd_blob_set(job, "largest", bytes, TIERD_MAX_BLOB_BYTES + 1, 0), -EINVAL, "67108865");
	REQUIRE(strstr(tierd_message(), "67108864"));
	free(bytes);
}

static void play_largest(bool is_there)
{
	struct tierd_job *job = join("largest", true, TIERD_MAX_BLOB_BYTES);

	OK(tierd_job_ready(job, -1, NULL));
	if (!is_there) {
		set(job, "largest", TIERD_MAX_BLOB_BYTES, 5, 0);
		one_byte_more_is_refused(job);
		take_step(job);
	}
	expect(job, "largest", TIERD_MAX_BLOB_BYTES, 5, 0);
	OK(tierd_job_close(job));
}

int main(int argc, char **argv)
{
	node = support_connect();
	if (argc > 1 && strncmp(argv[1], "largest", 7) == 0)
		play_largest(strcmp(argv[1], "largest-is-there") == 0);
	else if (argc > 1)
		play_until_killed((uint64_t)atoi(argv[1]));
	else
		play_in_host_memory();
	tierd_disconnect(node);
	return 0;
}
