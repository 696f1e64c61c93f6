/* Writing strings as JSON has them. */
#ifndef TIERD_CLIENT_SAFETENSORS_TEXT_H
#define TIERD_CLIENT_SAFETENSORS_TEXT_H

#include <stdio.h>

void safetensors_text_write(FILE *stream, const char *text);

#endif
