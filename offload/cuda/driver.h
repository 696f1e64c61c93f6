/* The calls of the GPU driver that we use, and its numbers, as CUDA's reference of the driver interface has
 * them. */
#ifndef TIERD_OFFLOAD_CUDA_DRIVER_H
#define TIERD_OFFLOAD_CUDA_DRIVER_H

#include "common/dynamic_library.h"

enum driver_error {
	DRIVER_DONE = 0,
	DRIVER_NO_DEVICE = 100,
};

enum driver_attribute {
	DRIVER_COMPUTE_MODE = 20,
	DRIVER_PCI_BUS = 33,
	DRIVER_PCI_DEVICE = 34,
	DRIVER_PCI_DOMAIN = 50,
	DRIVER_CAPABILITY_MAJOR = 75,
	DRIVER_CAPABILITY_MINOR = 76,
	DRIVER_HAS_VIRTUAL_MEMORY = 102,
	DRIVER_HAS_DESCRIPTORS = 103,
};

enum driver_compute_mode {
	DRIVER_PROHIBITED = 2,
};

/* All return an error of the driver's. */
struct driver {
	int (*init)(unsigned flags);
	int (*version)(int *ret_version);
	int (*error_string)(int error, const char **ret_text);
	int (*device_count)(int *ret_count);
	int (*device)(int *ret_device, int ordinal);
	int (*device_name)(char *name, int size, int device);
	int (*device_bytes)(size_t *ret_bytes, int device);
	int (*device_attribute)(int *ret_value, int attribute, int device);
};

/* False: the library says why not. A driver that serves no GPU has not been found either. */
bool driver_open(struct driver *ret_driver, struct dynamic_library *library);

const char *driver_text(const struct driver *driver, int error);

#endif
