#include "proto/name.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* By the first byte: how many follow, and the least code point that is not written too long (RFC 3629). */
static size_t sequence_length(uint8_t first, uint32_t *ret_bits, uint32_t *ret_least)
{
	static const struct {
		uint8_t mask, value, length;
		uint32_t least;
	} kinds[] = {
		{ 0x80, 0x00, 1, 0x20 },
		{ 0xe0, 0xc0, 2, 0xa0 }, /* U+0080 to U+009F are controls */
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

bool name_is_word(const char *name, size_t maximum)
{
	static const char alphanumeric[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	size_t length = name ? strnlen(name, maximum + 1) : 0;

	if (length == 0 || length > maximum || !strchr(alphanumeric, name[0]) || strstr(name, ".."))
		return false;
	for (const char *at = name; *at; at++)
		if (!strchr(alphanumeric, *at) && !strchr("._-", *at))
			return false;
	return true;
}

size_t name_character(const char *text)
{
	uint32_t code, least;
	size_t length = sequence_length((uint8_t)text[0], &code, &least);

	for (size_t i = 1; i < length; i++) {
		if (((uint8_t)text[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | ((uint8_t)text[i] & 0x3f);
	}
	if (length == 0 || code < least || code == 0x7f || (code >= 0xd800 && code < 0xe000) ||
	    code > 0x10ffff)
		return 0;
	return length;
}

int name_check(const char *name, size_t maximum)
{
	size_t length = name ? strnlen(name, maximum + 1) : 0;

	if (length == 0)
		return -ENODATA;
	if (length > maximum)
		return -ENAMETOOLONG;
	while (*name) {
		length = name_character(name);
		if (length == 0)
			return -EILSEQ;
		name += length;
	}
	return 0;
}

void name_make_printable(char *text)
{
	while (*text) {
		size_t length = name_character(text);

		if (length == 0)
			*text = '?';
		text += length ? length : 1;
	}
}

int name_fit(const char *text, int maximum)
{
	int fitting = 0, length = (int)name_character(text);

	while (length > 0 && fitting + length <= maximum) {
		fitting += length;
		length = (int)name_character(text + fitting);
	}
	return fitting;
}
