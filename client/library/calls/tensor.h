/* What calls about values of tensors have in common. With the node's lock. */
#ifndef TIERD_CLIENT_TENSOR_H
#define TIERD_CLIENT_TENSOR_H

#include "client/library/pages/job.h"

/* -EINVAL: there are no such elements. */
int tensor_check_range(const struct tierd_job *job, uint32_t unit, uint32_t tensor, uint64_t first,
		       uint64_t count);
/* In the window; has_full_elements: fp32, whatever the tensor's format. */
uint64_t tensor_element_bytes(const struct tierd_job *job, uint32_t unit, uint32_t tensor,
			      bool has_full_elements);

#endif
