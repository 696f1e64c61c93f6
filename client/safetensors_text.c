#include "client/safetensors_text.h"

void safetensors_text_write(FILE *stream, const char *text)
{
	fputc('"', stream);
	for (; *text; text++) {
		unsigned char character = (unsigned char)*text;

		if (character == '"' || character == '\\')
			fprintf(stream, "\\%c", character);
		else if (character < 0x20 || character == 0x7f)
			fprintf(stream, "\\u%04x", character);
		else
			fputc(character, stream);
	}
	fputc('"', stream);
}
