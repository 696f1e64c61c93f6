/* What checksum_vector.c is compiled to, once for each vector width. */
#ifndef TIERD_OFFLOAD_CHECKSUM_VECTOR_H
#define TIERD_OFFLOAD_CHECKSUM_VECTOR_H

#include "offload/store/checksum.h"

checksum_kernel checksum_scalar, checksum_avx2, checksum_avx512;

#endif
