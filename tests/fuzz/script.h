/* A script is an input cut into records: a byte that says what to do, a length of two bytes, little endian,
 * and as many bytes, or what is left of them. */
#ifndef TIERD_TESTS_FUZZ_SCRIPT_H
#define TIERD_TESTS_FUZZ_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct script {
	const uint8_t *bytes;
	size_t length;
};

struct script_record {
	uint8_t action;
	const uint8_t *bytes;
	size_t length;
};

/* False: there is none left. */
static inline bool script_next(struct script *script, struct script_record *ret_record)
{
	size_t length;

	if (script->length < 3)
		return false;
	length = (size_t)(script->bytes[1] | script->bytes[2] << 8);
	if (length > script->length - 3)
		length = script->length - 3;
	*ret_record = (struct script_record){ script->bytes[0], script->bytes + 3, length };
	script->bytes += 3 + length;
	script->length -= 3 + length;
	return true;
}

#endif
