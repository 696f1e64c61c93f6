/* The files of tensors that a path names: one file, those of an index, or what a folder has of either. */
#ifndef TIERD_CLIENT_TIERCTL_MODEL_PATH_H
#define TIERD_CLIENT_TIERCTL_MODEL_PATH_H

#include "client/safetensors/model.h"

/* A command's code: why it fails has been said. */
int model_path_open(const char *path, struct safetensors_model **ret_model);

#endif
