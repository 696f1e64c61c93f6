/* A dtype is what the elements of a tensor are in a file. */
#ifndef TIERD_CLIENT_SAFETENSORS_DTYPE_H
#define TIERD_CLIENT_SAFETENSORS_DTYPE_H

#include <stdint.h>

enum safetensors_dtype {
	SAFETENSORS_BOOL,
	SAFETENSORS_F4,
	SAFETENSORS_F6_E2M3,
	SAFETENSORS_F6_E3M2,
	SAFETENSORS_U8,
	SAFETENSORS_I8,
	SAFETENSORS_F8_E5M2,
	SAFETENSORS_F8_E4M3,
	SAFETENSORS_F8_E8M0,
	SAFETENSORS_F8_E4M3FNUZ,
	SAFETENSORS_F8_E5M2FNUZ,
	SAFETENSORS_I16,
	SAFETENSORS_U16,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_I32,
	SAFETENSORS_U32,
	SAFETENSORS_F32,
	SAFETENSORS_C64,
	SAFETENSORS_F64,
	SAFETENSORS_I64,
	SAFETENSORS_U64,
	SAFETENSORS_DTYPES,
};

/* "BF16" */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);
/* -EINVAL: there is none of that name. */
int safetensors_dtype_find(const char *name, enum safetensors_dtype *ret_dtype);
unsigned safetensors_dtype_bits(enum safetensors_dtype dtype);

/* The bytes of a tensor. -ERANGE: more than 64 bits can count; -EDOM: its last byte would not be full. */
int safetensors_dtype_bytes(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t dimensions,
			    uint64_t *ret_bytes);

/* With its shape: "I64[2,3]". The caller frees it; NULL: no memory. */
char *safetensors_dtype_print(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t dimensions);
/* -EINVAL: the text is no such, or has more dimensions than the maximum; the shape may have changed then. */
int safetensors_dtype_parse(const char *text, enum safetensors_dtype *ret_dtype, uint64_t *ret_shape,
			    uint32_t maximum, uint32_t *ret_dimensions);

#endif
