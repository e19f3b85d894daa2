/* The CUDA driver, loaded on demand: this library is built on machines without CUDA. The
 * declarations match libcuda.so.1 since CUDA 11.4. */
#ifndef TUCCL_MEASURE_CUDA_DRIVER_H
#define TUCCL_MEASURE_CUDA_DRIVER_H

#include "failure.h"

#include <stddef.h>
#include <stdint.h>

typedef uint64_t device_pointer;
typedef struct cuda_context *cuda_context;
typedef struct cuda_stream *cuda_stream;
typedef struct cuda_event *cuda_event;
typedef struct cuda_graph *cuda_graph;
typedef struct cuda_graph_exec *cuda_graph_exec;
typedef struct cuda_module *cuda_module;
typedef struct cuda_function *cuda_function;

enum {
    CUDA_STREAM_NON_BLOCKING = 1,
    CUDA_CAPTURE_THREAD_LOCAL = 1,
    CUDA_EVENT_WITH_TIMING = 0,
    CUDA_EVENT_WITHOUT_TIMING = 2,
};

struct cuda_driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*error_name)(int error, const char **name);
    int (*error_string)(int error, const char **text);
    int (*device_count)(int *count);
    int (*device)(int *device, int ordinal);
    int (*device_name)(char *name, int bytes, int device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*retain_context)(cuda_context *context, int device);
    int (*release_context)(int device);
    int (*set_context)(cuda_context context);
    int (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    int (*allocate)(device_pointer *pointer, size_t bytes);
    int (*free)(device_pointer pointer);
    int (*allocate_host)(void **pointer, size_t bytes, unsigned flags);
    int (*free_host)(void *pointer);
    int (*copy_to_device)(device_pointer to, const void *from, size_t bytes);
    int (*copy_to_host)(void *to, device_pointer from, size_t bytes);
    int (*fill)(device_pointer pointer, unsigned char byte, size_t bytes, cuda_stream stream);
    int (*create_stream)(cuda_stream *stream, unsigned flags);
    int (*destroy_stream)(cuda_stream stream);
    int (*synchronize_stream)(cuda_stream stream);
    int (*create_event)(cuda_event *event, unsigned flags);
    int (*destroy_event)(cuda_event event);
    int (*record_event)(cuda_event event, cuda_stream stream);
    int (*elapsed_ms)(float *ms, cuda_event from, cuda_event to);
    int (*wait_event)(cuda_stream stream, cuda_event event, unsigned flags);
    int (*begin_capture)(cuda_stream stream, int mode);
    int (*end_capture)(cuda_stream stream, cuda_graph *graph);
    int (*instantiate_graph)(cuda_graph_exec *exec, cuda_graph graph, unsigned long long flags);
    int (*launch_graph)(cuda_graph_exec exec, cuda_stream stream);
    int (*destroy_graph)(cuda_graph graph);
    int (*destroy_graph_exec)(cuda_graph_exec exec);
    int (*load_module)(cuda_module *module, const void *image);
    int (*unload_module)(cuda_module module);
    int (*find_function)(cuda_function *function, cuda_module module, const char *name);
    int (*set_function_attribute)(cuda_function function, int attribute, int value);
    int (*launch_kernel)(cuda_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                         unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, cuda_stream stream, void **arguments, void **extra);
};

/* Loads libcuda.so.1 and initializes it; false where there is no driver or no GPU. */
bool cuda_load(struct cuda_driver *cuda, struct failure *failure);

/* Returns whether a driver call succeeded; records a failed call with the driver's message. */
bool cuda_succeeded(const struct cuda_driver *cuda, int result, const char *call,
                    struct failure *failure);

#endif
