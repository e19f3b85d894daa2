/* A library with the few NVML functions that a probe calls, for a machine without a GPU: two GPUs
 * with 18 NVLinks each to an NVSwitch. NVML_SCENE names its fault. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, GPU_IS_LOST = 15, MISMATCH = 18 };

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} pci_info;

typedef struct {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    int value_type, result;
    union {
        unsigned u32;
        unsigned long long u64;
    } value;
} field_value;

typedef struct {
    unsigned long long total, free, used;
} memory_info;

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique, state, health;
} fabric_info;

static int gpus[] = {0, 1};

static int scene(const char *name) {
    const char *wanted = getenv("NVML_SCENE");
    return wanted != NULL && strcmp(wanted, name) == 0;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return scene("mismatch") ? MISMATCH : SUCCESS;
}
int nvmlShutdown(void) {
    return SUCCESS;
}
const char *nvmlErrorString(int result) {
    (void)result;
    return "an error";
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    snprintf(text, length, "580.1");
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 2;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) {
    if (index > 1)
        return INVALID_ARGUMENT;
    if (index == 1 && scene("lost"))
        return GPU_IS_LOST;
    *gpu = &gpus[index];
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(int *gpu, pci_info *pci) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000001:%02X:00.0", 0x3B + *gpu);
    return SUCCESS;
}
int nvmlDeviceGetName(int *gpu, char *text, unsigned length) {
    (void)gpu;
    snprintf(text, length, "NVIDIA H200");
    return SUCCESS;
}
int nvmlDeviceGetUUID(int *gpu, char *text, unsigned length) {
    snprintf(text, length, "GPU-%d", *gpu);
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(int *gpu, int *major, int *minor) {
    (void)gpu;
    *major = 9;
    *minor = 0;
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(int *gpu, memory_info *memory) {
    (void)gpu;
    memset(memory, 0, sizeof *memory);
    memory->total = 150754820096ULL;
    return SUCCESS;
}
/* As on a board of its own: the fabric manager is done, and the cluster has no UUID. */
int nvmlDeviceGetGpuFabricInfoV(int *gpu, fabric_info *info) {
    (void)gpu;
    if (info->version != 0x02000024)
        return INVALID_ARGUMENT;
    memset(info->cluster, 0, sizeof info->cluster);
    info->status = SUCCESS;
    info->clique = 7;
    info->state = scene("joining") ? 2 : 3;
    info->cluster[0] = scene("domain") || scene("joining") ? 0xAB : 0;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(int *gpu, unsigned *now, unsigned *pending) {
    *now = *pending = *gpu == 1 && scene("mig");
    return SUCCESS;
}
int nvmlDeviceGetP2PStatus(int *gpu, int *other, int what, int *status) {
    (void)gpu;
    (void)other;
    *status = what == 1 && scene("apart") ? 1 : 0;
    return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkGeneration(int *gpu, unsigned *generation) {
    (void)gpu;
    *generation = 5;
    return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkWidth(int *gpu, unsigned *width) {
    (void)gpu;
    *width = 16;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkCapability(int *gpu, unsigned link, int capability, unsigned *result) {
    (void)gpu;
    (void)capability;
    if (link > 17)
        return INVALID_ARGUMENT;
    *result = 1;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkState(int *gpu, unsigned link, unsigned *state) {
    (void)gpu;
    (void)link;
    *state = 1;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(int *gpu, unsigned link, unsigned *type) {
    (void)gpu;
    (void)link;
    *type = 2;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(int *gpu, unsigned link, pci_info *pci) {
    (void)gpu;
    memset(pci, 0, sizeof *pci);
    snprintf(pci->bus_id, sizeof pci->bus_id, "00000001:%02X:00.0", link < 9 ? 6 : 7);
    return SUCCESS;
}
/* 165: state of an NVLink; 170, 171, 172: C2C links, their state and MB/s. */
int nvmlDeviceGetFieldValues(int *gpu, int count, field_value *values) {
    for (int i = 0; i < count; i++) {
        values[i].result = SUCCESS;
        switch (values[i].field_id) {
        case 165:
            values[i].value.u32 = !(*gpu == 1 && values[i].scope_id == 7 && scene("down"));
            break;
        case 170:
            values[i].value.u32 = 10;
            break;
        case 171:
            values[i].value.u32 = values[i].scope_id != 9;
            break;
        case 172:
            values[i].value.u32 = 45000;
            break;
        default:
            values[i].result = NOT_SUPPORTED;
        }
    }
    return SUCCESS;
}
int nvmlDeviceGetEnforcedPowerLimit(int *gpu, unsigned *milliwatts) {
    *milliwatts = *gpu == 1 && scene("capped") ? 500000 : 700000;
    return SUCCESS;
}
/* 1 is the clock of the multiprocessors, 2 that of the memory. */
int nvmlDeviceGetMaxClockInfo(int *gpu, int kind, unsigned *clock) {
    (void)gpu;
    *clock = kind == 2 ? 3201 : 1980;
    return SUCCESS;
}
int nvmlDeviceGetApplicationsClock(int *gpu, int kind, unsigned *clock) {
    if (scene("bare"))
        return NOT_SUPPORTED;
    *clock = kind == 2 ? 3201 : *gpu == 1 && scene("slow") ? 1200 : 1980;
    return SUCCESS;
}
int nvmlDeviceGetEccMode(int *gpu, unsigned *now, unsigned *pending) {
    *now = *pending = !(*gpu == 1 && scene("no ECC"));
    return SUCCESS;
}
int nvmlDeviceGetTotalEccErrors(int *gpu, int kind, int counter, unsigned long long *errors) {
    *errors = *gpu == 1 && kind == 1 && counter == 1 && scene("errors") ? 3 : 0;
    return SUCCESS;
}
int nvmlDeviceGetRemappedRows(int *gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
    *corrected = *uncorrected = 0;
    *pending = *gpu == 1 && scene("pending");
    *failed = *gpu == 1 && scene("failed");
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(int *gpu, unsigned long long *reasons) {
    *reasons = *gpu == 1 && scene("hot") ? 0x40 : 1; /* 1: idle. */
    return SUCCESS;
}
int nvmlDeviceGetComputeMode(int *gpu, int *mode) {
    *mode = *gpu == 1 && scene("exclusive") ? 3 : 0;
    return SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(int *gpu, unsigned *count, void *processes) {
    (void)gpu;
    (void)processes;
    *count = 0;
    return SUCCESS;
}
