/* The calls of the GPU driver that we use, and its numbers, as CUDA's reference of the driver interface has
 * them. */
#ifndef TIERD_OFFLOAD_CUDA_DRIVER_H
#define TIERD_OFFLOAD_CUDA_DRIVER_H

#include <stdint.h>

#include "common/dynamic_library.h"

enum driver_error {
	DRIVER_DONE = 0,
	DRIVER_INVALID_VALUE = 1,
	DRIVER_OUT_OF_MEMORY = 2,
	DRIVER_NOT_INITIALIZED = 3,
	DRIVER_NO_DEVICE = 100,
	DRIVER_INVALID_DEVICE = 101,
	DRIVER_INVALID_IMAGE = 200,
	DRIVER_INVALID_CONTEXT = 201,
	DRIVER_NO_BINARY = 209,
	DRIVER_INVALID_PTX = 218,
	DRIVER_UNSUPPORTED_PTX = 222,
	DRIVER_INVALID_HANDLE = 400,
	DRIVER_NOT_FOUND = 500,
	DRIVER_NOT_READY = 600,
	DRIVER_ILLEGAL_ADDRESS = 700,
	DRIVER_CONTEXT_IS_DESTROYED = 709,
	DRIVER_ALREADY_REGISTERED = 712,
	DRIVER_NOT_REGISTERED = 713,
	DRIVER_LAUNCH_FAILED = 719,
	DRIVER_NOT_PERMITTED = 800,
	DRIVER_NOT_SUPPORTED = 801,
	DRIVER_UNKNOWN = 999,
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

enum driver_flag {
	DRIVER_SLEEP_IN_CALLS = 4, /* of a context: a call that waits does not take a processor */
	DRIVER_NO_STREAM_0 = 1,	   /* of a stream: what is in the stream without a name does not delay it */
	DRIVER_NO_TIMES = 2,	   /* of an event */
	DRIVER_SHARED = 4,	   /* processes can share it */
	DRIVER_PORTABLE = 1,	   /* of host memory: all contexts know it */
};

/* Of memory: what it is, and where. */
enum driver_memory {
	DRIVER_PINNED = 1,
	DRIVER_DESCRIPTOR = 1,
	DRIVER_ON_GPU = 1,
	DRIVER_READ_WRITE = 3,
	DRIVER_LEAST_GRANULARITY = 0,
};

struct driver_location {
	int type, id;
};

struct driver_memory_kind {
	int type, handles;
	struct driver_location location;
	void *windows;
	unsigned char compression, rdma;
	unsigned short usage;
	unsigned char reserved[4];
};

struct driver_access {
	struct driver_location location;
	int flags;
};

/* It names a GPU to all processes, whatever each of them counts. */
struct driver_uuid {
	char bytes[16];
};

/* Of an event, for another process. */
struct driver_event_handle {
	char bytes[64];
};

struct driver_context;
struct driver_stream;
struct driver_event;
struct driver_module;
struct driver_function;

/* Of GPU memory; of host memory it is that of the host. */
typedef unsigned long long driver_address;
typedef unsigned long long driver_allocation;

/* All return an error of the driver's. A stream does in their order what it was told, by itself. */
struct driver {
	int (*init)(unsigned flags);
	int (*version)(int *ret_version);
	int (*error_string)(int error, const char **ret_text);
	int (*device_count)(int *ret_count);
	int (*device)(int *ret_device, int ordinal);
	int (*device_name)(char *name, int size, int device);
	int (*device_bytes)(size_t *ret_bytes, int device);
	int (*device_uuid)(struct driver_uuid *ret_uuid, int device);
	int (*device_attribute)(int *ret_value, int attribute, int device);
	int (*device_reaches)(int *ret_reaches, int device, int peer);

	int (*context_flags)(int device, unsigned flags);
	int (*context_retain)(struct driver_context **ret_context, int device);
	int (*context_release)(int device);
	int (*context_state)(int device, unsigned *ret_flags, int *ret_is_there); /* in this process */
	int (*context_enter)(struct driver_context *context);			  /* for this thread */
	int (*context_current)(struct driver_context **ret_context);
	int (*context_synchronize)(void); /* all has ended that the current one was told */

	int (*memory_info)(size_t *ret_free, size_t *ret_total);
	int (*memory_granularity)(size_t *ret_bytes, const struct driver_memory_kind *kind, int which);
	int (*memory_create)(driver_allocation *ret_allocation, size_t bytes,
			     const struct driver_memory_kind *kind, unsigned long long flags);
	int (*memory_release)(driver_allocation allocation);
	int (*memory_export)(void *ret_fd, driver_allocation allocation, int type, unsigned long long flags);
	int (*memory_import)(driver_allocation *ret_allocation, void *fd, int type);
	int (*address_reserve)(driver_address *ret_address, size_t bytes, size_t alignment,
			       driver_address wish, unsigned long long flags);
	int (*address_free)(driver_address address, size_t bytes);
	int (*memory_map)(driver_address address, size_t bytes, size_t offset, driver_allocation allocation,
			  unsigned long long flags);
	int (*memory_unmap)(driver_address address, size_t bytes);
	int (*memory_allow)(driver_address address, size_t bytes, const struct driver_access *accesses,
			    size_t count);
	int (*host_register)(void *base, size_t bytes, unsigned flags);
	int (*host_unregister)(void *base);

	int (*stream_create)(struct driver_stream **ret_stream, unsigned flags);
	int (*stream_destroy)(struct driver_stream *stream);
	int (*stream_synchronize)(struct driver_stream *stream);
	int (*stream_context)(struct driver_stream *stream, struct driver_context **ret_context);
	int (*stream_wait)(struct driver_stream *stream, struct driver_event *event, unsigned flags);
	int (*copy)(driver_address to, driver_address from, size_t bytes, struct driver_stream *stream);
	int (*fill)(driver_address to, unsigned char value, size_t bytes, struct driver_stream *stream);

	int (*module_load)(struct driver_module **ret_module, const void *image);
	int (*module_unload)(struct driver_module *module);
	int (*module_function)(struct driver_function **ret_function, struct driver_module *module,
			       const char *name);
	/* Each of the parameters points to one, which is read before the call returns. */
	int (*launch)(struct driver_function *function, unsigned blocks_x, unsigned blocks_y,
		      unsigned blocks_z, unsigned threads_x, unsigned threads_y, unsigned threads_z,
		      unsigned shared_bytes, struct driver_stream *stream, void **parameters, void **extra);

	int (*event_create)(struct driver_event **ret_event, unsigned flags);
	int (*event_destroy)(struct driver_event *event);
	int (*event_record)(struct driver_event *event, struct driver_stream *stream);
	int (*event_query)(struct driver_event *event);
	int (*event_export)(struct driver_event_handle *ret_handle, struct driver_event *event);
	int (*event_import)(struct driver_event **ret_event, struct driver_event_handle handle);
};

/* False: the library says why not. A driver that serves no GPU has not been found either. */
bool driver_open(struct driver *ret_driver, struct dynamic_library *library);

const char *driver_text(const struct driver *driver, int error);

#endif
