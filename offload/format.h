/* Conversions between number formats, at memory speed. */
#ifndef TIERD_OFFLOAD_FORMAT_H
#define TIERD_OFFLOAD_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* master ⇄ bf16 and signed remainder; see docs/numerics.md. A NaN stays one. Arrays do not overlap. */
void format_split(const float *master, size_t count, uint16_t *ret_parameter, int16_t *ret_remainder);
void format_join(const uint16_t *parameter, const int16_t *remainder, size_t count, float *ret_master);

#endif
