/* Prints the ranges of code points that are not printable, as they are found in text: for
 * common/printable_ranges.py. */
#include <stdio.h>

#include "common/printable.h"

/* Surrogates, too, which no text has. */
static void encode(uint32_t code, char text[5])
{
	unsigned length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const unsigned char first[] = { 0, 0, 0xc0, 0xe0, 0xf0 };

	text[length] = '\0';
	for (unsigned i = length; i-- > 1; code >>= 6)
		text[i] = (char)(0x80 | (code & 0x3f));
	text[0] = (char)(first[length] | code);
}

int main(void)
{
	uint32_t begin = 0;
	bool is_within = true;

	for (uint32_t code = 0; code <= 0x110000; code++) {
		char text[5];
		bool is_unprintable;

		encode(code, text);
		is_unprintable = code < 0x110000 && printable_character(text) == 0;
		if (is_unprintable && !is_within)
			begin = code;
		else if (!is_unprintable && is_within)
			printf("%x %x\n", begin, code - 1);
		is_within = is_unprintable;
	}
	return 0;
}
