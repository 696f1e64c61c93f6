/* What has to be true of a header, whoever has made it. */
#ifndef TIERD_CLIENT_SAFETENSORS_CHECK_H
#define TIERD_CLIENT_SAFETENSORS_CHECK_H

#include "client/safetensors/header.h"

/* -EEXIST: two tensors, or two of the metadata, have one name. */
int safetensors_check_names(const struct safetensors_header *header, const char *file,
			    struct safetensors_problem *problem);

/* Puts the tensors in the order of their data, which they fill without holes, each as its shape says. */
int safetensors_check_places(struct safetensors_header *header, const char *file,
			     struct safetensors_problem *problem);

#endif
