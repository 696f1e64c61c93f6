#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

struct job *play(void)
{
	return job_find(scene.node, geteuid(), "play");
}

int define_unit(struct actor *actor, unsigned unit, const struct actor_tensor *tensors, unsigned count)
{
	struct actor_tensor named[4];
	char name[16], names[4][16];

	assert_true(count <= ARRAY_LENGTH(named));
	snprintf(name, sizeof(name), "u%u", unit);
	for (unsigned i = 0; i < count; i++) {
		snprintf(names[i], sizeof(names[i]), "u%u.%u", unit, i);
		named[i] = tensors[i];
		named[i].name = names[i];
	}
	return actor_define(actor, name, named, count);
}

int make_two_ready(struct actor *one, struct actor *other)
{
	uint32_t number = actor_send_ready(one, -1);
	int r = actor_ready(other);

	return r < 0 ? r : actor_finish_ready(one, number);
}

void expect_error(const struct actor *actor, int status, int expected, const char *text)
{
	if (status != expected || !strstr(actor_message(actor), text))
		print_message("%d, \"%s\" is not in: %s\n", status, text, actor_message(actor));
	assert_int_equal(status, expected);
	assert_non_null(strstr(actor_message(actor), text));
}

/* ---- Writing ---- */

uint64_t value_seed;

float next_value(void)
{
	value_seed = value_seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (float)(int32_t)(value_seed >> 32) * 0x1p-31f;
}

void put_values(const struct actor *actor, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		((float *)actor->window.base)[i] = next_value();
}

int write_masters(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count)
{
	put_values(actor, count);
	return actor_await(actor, actor_send_masters(actor, unit, tensor, first, count), 0)->status;
}

/* Half of an fp32 number is a bf16 one, of any bits but those of a NaN. */
int write_narrow(struct actor *actor, uint32_t unit, uint32_t tensor, uint64_t first, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		float value = next_value();

		memcpy(actor->window.base + 2 * i, (const char *)&value + 2, 2);
	}
	return actor_write(actor, unit, tensor, first, count);
}

/* ---- Pictures ---- */

struct picture picture_new(size_t bytes)
{
	return (struct picture){ .values = malloc(bytes) };
}

void picture_add(struct picture *picture, struct actor *actor, uint32_t unit, uint32_t tensor,
		 uint64_t elements, const char *state)
{
	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t left = elements - first, count = left < PIECE ? left : PIECE;

		memset(actor->window.base, 0, count * sizeof(float));
		assert_int_equal(actor_read(actor, unit, tensor, state, first, count, play()->step), 0);
		memcpy(picture->values + picture->size, actor->window.base, count * sizeof(float));
		picture->size += count * sizeof(float);
	}
}

bool pictures_are_equal(struct picture one, struct picture other)
{
	bool are = one.size == other.size && memcmp(one.values, other.values, one.size) == 0;

	free(one.values);
	free(other.values);
	return are;
}
