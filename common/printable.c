#include "common/printable.h"

struct range {
	uint32_t first, last;
};

static const struct range unprintable[] = {
#include "common/printable_ranges.h"
};

/* By the first byte: how many follow, and the least code point that is not written too long (RFC 3629). */
static size_t sequence_length(uint8_t first, uint32_t *ret_bits, uint32_t *ret_least)
{
	static const struct {
		uint8_t mask, value, length;
		uint32_t least;
	} kinds[] = {
		{ 0x80, 0x00, 1, 0x01 },
		{ 0xe0, 0xc0, 2, 0x80 },
		{ 0xf0, 0xe0, 3, 0x800 },
		{ 0xf8, 0xf0, 4, 0x10000 },
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if ((first & kinds[i].mask) == kinds[i].value) {
			*ret_bits = first & (uint8_t)~kinds[i].mask;
			*ret_least = kinds[i].least;
			return kinds[i].length;
		}
	return 0;
}

bool printable_code(uint32_t code)
{
	size_t first = 0, end = sizeof(unprintable) / sizeof(unprintable[0]);

	/* Most names are ASCII. */
	if (code < 0x7f)
		return code >= 0x20;
	while (first < end) {
		size_t middle = first + (end - first) / 2;

		if (code > unprintable[middle].last)
			first = middle + 1;
		else
			end = middle;
	}
	return first < sizeof(unprintable) / sizeof(unprintable[0]) && code < unprintable[first].first;
}

size_t printable_decode(const char *text, uint32_t *ret_code)
{
	uint32_t code, least;
	size_t length = sequence_length((uint8_t)text[0], &code, &least);

	for (size_t i = 1; i < length; i++) {
		if (((uint8_t)text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | ((uint8_t)text[i] & 0x3f);
	}
	if (length == 0 || code < least || (code >= 0xd800 && code < 0xe000) || code > 0x10ffff)
		return 0;
	*ret_code = code;
	return length;
}

size_t printable_character(const char *text)
{
	uint32_t code;
	size_t length = printable_decode(text, &code);

	return length > 0 && printable_code(code) ? length : 0;
}
