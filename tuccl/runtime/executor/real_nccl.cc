#include "real_nccl.h"

#include <cstring>
#include <dlfcn.h>
#include <link.h>
#include <string>
#include <vector>

namespace tuccl {

namespace {

// The file that an address belongs to, by where it is mapped; NULL if unknown.
const void *file_of(const void *address) {
    Dl_info info = {};
    return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

int add_nccl(dl_phdr_info *object, size_t, void *paths) {
    const char *name = std::strrchr(object->dlpi_name, '/');
    if (name != nullptr && std::strncmp(name + 1, "libnccl.so", 10) == 0)
        static_cast<std::vector<std::string> *>(paths)->emplace_back(object->dlpi_name);
    return 0;
}

// Libraries of that name that the process has loaded. One may stand for NCCL and need this one.
std::vector<void *> loaded_nccls() {
    std::vector<std::string> paths;
    dl_iterate_phdr(add_nccl, &paths);
    std::vector<void *> handles;
    for (const std::string &path : paths)
        if (void *handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD))
            handles.push_back(handle);
    return handles;
}

// RTLD_NEXT does not see what was loaded with RTLD_LOCAL (an extension module and all it needs).
void *find(const char *name) {
    if (void *next = dlsym(RTLD_NEXT, name))
        return next;
    static const std::vector<void *> loaded = loaded_nccls();
    static const void *const own = file_of(reinterpret_cast<const void *>(&loaded_nccls));
    for (void *handle : loaded)
        if (void *found = dlsym(handle, name); found != nullptr && file_of(found) != own)
            return found;
    return nullptr;
}

template <typename... Parameters>
void fill(NcclFunction<Parameters...> *function, const char *name) {
    function->address = reinterpret_cast<int (*)(Parameters...)>(find(name));
}

RealNccl find_all() {
    RealNccl real = {};
#define TUCCL_FILL(name, ...) fill(&real.name, "nccl" #name);
    TUCCL_NCCL_FUNCTIONS(TUCCL_FILL)
#undef TUCCL_FILL
    real.TeamLsa = reinterpret_cast<NcclTeam (*)(ncclComm_t)>(find("ncclTeamLsa"));
    return real;
}

} // namespace

const RealNccl &real_nccl() {
    static const RealNccl real = find_all();
    return real;
}

int state_of(ncclComm_t comm) {
    int error = kNcclSuccess;
    if (!real_nccl().CommGetAsyncError)
        return error;
    const int result = real_nccl().CommGetAsyncError(comm, &error);
    return result != kNcclSuccess ? result : error;
}

int pass_on(const NcclCall &c) {
    const RealNccl &real = real_nccl();
    switch (c.kind) {
    case kBroadcast:
        return real.Broadcast(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    case kReduce:
        return real.Reduce(c.send, c.receive, c.count, c.type, c.reduction, c.root, c.comm,
                           c.stream);
    case kAllGather:
        return real.AllGather(c.send, c.receive, c.count, c.type, c.comm, c.stream);
    case kReduceScatter:
        return real.ReduceScatter(c.send, c.receive, c.count, c.type, c.reduction, c.comm,
                                  c.stream);
    case kAllReduce:
        return real.AllReduce(c.send, c.receive, c.count, c.type, c.reduction, c.comm, c.stream);
    case kAlltoAll:
        return real.AlltoAll(c.send, c.receive, c.count, c.type, c.comm, c.stream);
    case kGather:
        return real.Gather(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    case kScatter:
        return real.Scatter(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    case kSend:
        return real.Send(c.send, c.count, c.type, c.root, c.comm, c.stream);
    case kRecv:
        return real.Recv(c.receive, c.count, c.type, c.root, c.comm, c.stream);
    }
    return kNcclInvalidUsage;
}

} // namespace tuccl
