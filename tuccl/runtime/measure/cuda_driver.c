#include "cuda_driver.h"

#include <dlfcn.h>

/* `slot` is where a member of struct cuda_driver lies: POSIX lets a function's address be stored
 * through a void pointer. */
static bool find(void *library, const char *name, void *slot, struct failure *failure) {
    void *address = dlsym(library, name);
    if (address == NULL)
        return fail(failure, "libcuda.so.1 has no %s: the NVIDIA driver is older than CUDA 11.4",
                    name);
    *(void **)slot = address;
    return true;
}

static bool find_all(void *library, struct cuda_driver *cuda, struct failure *failure) {
    const struct {
        const char *name;
        void *slot;
    } symbols[] = {
        {"cuInit", &cuda->init},
        {"cuDriverGetVersion", &cuda->driver_version},
        {"cuGetErrorName", &cuda->error_name},
        {"cuGetErrorString", &cuda->error_string},
        {"cuDeviceGetCount", &cuda->device_count},
        {"cuDeviceGet", &cuda->device},
        {"cuDeviceGetName", &cuda->device_name},
        {"cuDeviceGetAttribute", &cuda->device_attribute},
        {"cuDevicePrimaryCtxRetain", &cuda->retain_context},
        {"cuDevicePrimaryCtxRelease_v2", &cuda->release_context},
        {"cuCtxSetCurrent", &cuda->set_context},
        {"cuMemGetInfo_v2", &cuda->memory_info},
        {"cuMemAlloc_v2", &cuda->allocate},
        {"cuMemFree_v2", &cuda->free},
        {"cuMemHostAlloc", &cuda->allocate_host},
        {"cuMemFreeHost", &cuda->free_host},
        {"cuMemcpyHtoD_v2", &cuda->copy_to_device},
        {"cuMemcpyDtoH_v2", &cuda->copy_to_host},
        {"cuMemsetD8Async", &cuda->fill},
        {"cuStreamCreate", &cuda->create_stream},
        {"cuStreamDestroy_v2", &cuda->destroy_stream},
        {"cuStreamSynchronize", &cuda->synchronize_stream},
        {"cuEventCreate", &cuda->create_event},
        {"cuEventDestroy_v2", &cuda->destroy_event},
        {"cuEventRecord", &cuda->record_event},
        {"cuEventElapsedTime", &cuda->elapsed_ms},
        {"cuStreamWaitEvent", &cuda->wait_event},
        {"cuStreamBeginCapture_v2", &cuda->begin_capture},
        {"cuStreamEndCapture", &cuda->end_capture},
        {"cuGraphInstantiateWithFlags", &cuda->instantiate_graph},
        {"cuGraphLaunch", &cuda->launch_graph},
        {"cuGraphDestroy", &cuda->destroy_graph},
        {"cuGraphExecDestroy", &cuda->destroy_graph_exec},
        {"cuModuleLoadData", &cuda->load_module},
        {"cuModuleUnload", &cuda->unload_module},
        {"cuModuleGetFunction", &cuda->find_function},
        {"cuFuncSetAttribute", &cuda->set_function_attribute},
        {"cuLaunchKernel", &cuda->launch_kernel},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++)
        if (!find(library, symbols[i].name, symbols[i].slot, failure))
            return false;
    return true;
}

bool cuda_load(struct cuda_driver *cuda, struct failure *failure) {
    /* Never closed: the driver cannot be unloaded. */
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fail(failure, "no NVIDIA driver here (%s)", dlerror());
    return find_all(library, cuda, failure) &&
           cuda_succeeded(cuda, cuda->init(0), "cuInit", failure);
}

bool cuda_succeeded(const struct cuda_driver *cuda, int result, const char *call,
                    struct failure *failure) {
    if (result == 0)
        return true;
    const char *name = NULL, *text = NULL;
    cuda->error_name(result, &name);
    cuda->error_string(result, &text);
    return fail_broken(failure, "%s failed: %s (%s, %d)", call,
                       text != NULL ? text : "unknown error", name != NULL ? name : "no name",
                       result);
}
