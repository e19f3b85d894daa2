#include "machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    VENDOR_NVIDIA = 0x10de,
    VENDOR_AMD = 0x1002,
    CLASS_DISPLAY = 0x03,
    CLASS_ACCELERATOR = 0x12,
};

/* A sysfs file that holds one hexadecimal number; -1 when it cannot be read. */
static long read_number(int devices, const char *device, const char *file) {
    char path[300], text[32];
    int length = snprintf(path, sizeof path, "%s/%s", device, file);
    if (length < 0 || (size_t)length >= sizeof path)
        return -1;
    int descriptor = openat(devices, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return -1;
    ssize_t got = read(descriptor, text, sizeof text - 1);
    close(descriptor);
    if (got <= 0)
        return -1;
    text[got] = '\0';
    return strtol(text, NULL, 16);
}

static bool is_gpu(int devices, const char *device, long *vendor) {
    *vendor = read_number(devices, device, "vendor");
    if (*vendor != VENDOR_NVIDIA && *vendor != VENDOR_AMD)
        return false;
    long class = read_number(devices, device, "class");
    return class >> 16 == CLASS_DISPLAY || class >> 16 == CLASS_ACCELERATOR;
}

struct findings {
    bool listed_vendor;
    bool unknown_vendor;
    bool unknown_model;
    long vendor, device; /* Of the first unknown GPU, those of a listed vendor before others. */
};

static void judge(struct findings *findings, const struct tuccl_gpu_model_record *models,
                  uint32_t model_count, long vendor, long device) {
    bool vendor_listed = false, model_listed = false;
    for (uint32_t i = 0; i < model_count; i++) {
        vendor_listed |= models[i].vendor == vendor;
        model_listed |= models[i].vendor == vendor && models[i].device == device;
    }
    findings->listed_vendor |= vendor_listed;
    bool first = vendor_listed ? !findings->unknown_model
                               : !findings->unknown_model && !findings->unknown_vendor;
    if (!model_listed && first) {
        findings->vendor = vendor;
        findings->device = device;
    }
    findings->unknown_model |= vendor_listed && !model_listed;
    findings->unknown_vendor |= !vendor_listed;
}

bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                           uint32_t model_count, char *why, size_t why_bytes) {
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
    if (model_count == 0 || length < 0 || (size_t)length >= sizeof path)
        return true;
    DIR *devices = opendir(path);
    if (devices == NULL)
        return true;
    struct findings findings = {0};
    const struct dirent *entry;
    while ((entry = readdir(devices)) != NULL) {
        long vendor;
        if (entry->d_name[0] == '.' || !is_gpu(dirfd(devices), entry->d_name, &vendor))
            continue;
        long device = read_number(dirfd(devices), entry->d_name, "device");
        if (device >= 0)
            judge(&findings, models, model_count, vendor, device);
    }
    closedir(devices);
    if (!findings.unknown_model && (findings.listed_vendor || !findings.unknown_vendor))
        return true;
    snprintf(why, why_bytes,
             "is for another machine: GPU %04lx:%04lx here, not among its %u GPU "
             "model%s (first %04x:%04x)",
             (unsigned long)findings.vendor, (unsigned long)findings.device, model_count,
             model_count == 1 ? "" : "s", models[0].vendor, models[0].device);
    return false;
}
