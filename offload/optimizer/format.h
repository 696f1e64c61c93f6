/* Number formats of parameters: how each keeps its fp32 master, and conversions at memory speed. */
#ifndef TIERD_OFFLOAD_FORMAT_H
#define TIERD_OFFLOAD_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* How the fp32 master of a parameter is kept: docs/numerics.md, "Formats". */
enum master_kind {
	MASTER_SPLIT,  /* of bf16: the parameter is its upper half, a signed remainder lies beside it */
	MASTER_BESIDE, /* of fp16: it lies beside the parameter */
	MASTER_ITSELF, /* of fp32: the parameter is the master */
	MASTER_KINDS
};

/* Bytes of a parameter, and of what lies beside it for its master. */
static inline size_t master_parameter_bytes(enum master_kind kind)
{
	return kind == MASTER_ITSELF ? sizeof(float) : sizeof(uint16_t);
}

static inline size_t master_bytes(enum master_kind kind)
{
	return kind == MASTER_ITSELF ? 0 : kind == MASTER_BESIDE ? sizeof(float) : sizeof(int16_t);
}

/* Between masters and what they are kept as. master is as in struct optimizer_arrays. A NaN stays one. Arrays
 * do not overlap. */
void format_keep(enum master_kind kind, const float *values, size_t count, void *ret_parameter,
		 void *ret_master);
void format_restore(enum master_kind kind, const void *parameter, const void *master, size_t count,
		    float *ret_values);

/* Between values and parameters alone, which keep what they have room for. */
void format_narrow(enum master_kind kind, const float *values, size_t count, void *ret_parameter);
void format_widen(enum master_kind kind, const void *parameter, size_t count, float *ret_values);

#endif
