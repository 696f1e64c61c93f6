#include "client/safetensors/text.h"

/* The code of the control character that text begins with; 0: it begins with another one. */
static unsigned control_character(const char *text)
{
	unsigned first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;

	if (first < 0x20 || first == 0x7f)
		return first;
	/* U+0080 to U+009F, which take two bytes. */
	return first == 0xc2 && second >= 0x80 && second < 0xa0 ? second : 0;
}

/* The reader, as terminals, takes control characters only when they are escaped. */
void safetensors_text_write(FILE *stream, const char *text)
{
	fputc('"', stream);
	for (; *text; text++) {
		unsigned control = control_character(text);

		if (*text == '"' || *text == '\\')
			fprintf(stream, "\\%c", *text);
		else if (control)
			fprintf(stream, "\\u%04x", control);
		else
			fputc(*text, stream);
		text += control >= 0x80;
	}
	fputc('"', stream);
}
