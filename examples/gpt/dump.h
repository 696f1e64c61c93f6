/* A file of a model's whole state, so that two runs can be compared byte by byte. */
#ifndef GPT_DUMP_H
#define GPT_DUMP_H

#include <stdio.h>

#include "backend.h"

/* For each unit and tensor in order: parameters in their format, then master, m and v as fp32; nothing
 * between them. -errno if it cannot be read, or, with ferror(file), written. */
int dump_write(FILE *file, struct backend *backend, const struct model *model);

#endif
