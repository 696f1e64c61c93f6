#include "proto/name.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "common/printable.h"

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

/* What names could have before categories of Unicode counted: no controls. */
size_t name_kept_character(const char *text)
{
	uint32_t code;
	size_t length = printable_decode(text, &code);

	return length == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0) ? 0 : length;
}

static int check(const char *name, size_t maximum, size_t (*character)(const char *text))
{
	size_t length = name ? strnlen(name, maximum + 1) : 0;

	if (length == 0)
		return -ENODATA;
	if (length > maximum)
		return -ENAMETOOLONG;
	while (*name) {
		length = character(name);
		if (length == 0)
			return -EILSEQ;
		name += length;
	}
	return 0;
}

int name_check(const char *name, size_t maximum)
{
	return check(name, maximum, printable_character);
}

int name_check_kept(const char *name, size_t maximum)
{
	return check(name, maximum, name_kept_character);
}

void name_make_printable(char *text)
{
	while (*text) {
		size_t length = printable_character(text);

		if (length == 0)
			*text = '?';
		text += length ? length : 1;
	}
}

int name_fit(const char *text, int maximum)
{
	int fitting = 0, length = (int)printable_character(text);

	while (length > 0 && fitting + length <= maximum) {
		fitting += length;
		length = (int)printable_character(text + fitting);
	}
	return fitting;
}
