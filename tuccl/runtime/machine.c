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
    SUBCLASS_VGA = 0x0300, /* Drives a screen. Consumer cards that compute have it too. */
};

/* Returns the hexadecimal number in a sysfs file, -1 if it cannot be read. */
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

/* Evidence that an unlisted GPU gives about the host, in ascending order. */
enum evidence {
    NO_EVIDENCE,  /* A processor's display unit beside an accelerator of another vendor. */
    OTHER_VENDOR, /* An accelerator of a vendor that the list does not name. */
    LISTED_VENDOR_VGA,
    LISTED_VENDOR_COMPUTE,
};

struct findings {
    uint32_t listed;        /* GPUs of listed models. */
    enum evidence evidence; /* Strongest evidence found. */
    long vendor, device;    /* The GPU of that evidence with the lowest number. */
};

static void judge(struct findings *findings, const struct tuccl_gpu_model_record *models,
                  uint32_t model_count, long vendor, long device, long class) {
    bool vendor_listed = false;
    for (uint32_t i = 0; i < model_count; i++) {
        vendor_listed |= models[i].vendor == vendor;
        findings->listed += models[i].vendor == vendor && models[i].device == device;
    }
    bool vga = class >> 8 == SUBCLASS_VGA;
    enum evidence evidence = vendor_listed ? (vga ? LISTED_VENDOR_VGA : LISTED_VENDOR_COMPUTE)
                                           : (vga ? NO_EVIDENCE : OTHER_VENDOR);
    if (evidence == NO_EVIDENCE || evidence < findings->evidence)
        return;
    bool first = evidence > findings->evidence;
    findings->evidence = evidence;
    if (first || device < findings->device) {
        findings->vendor = vendor;
        findings->device = device;
    }
}

static void examine(struct findings *findings, const struct tuccl_gpu_model_record *models,
                    uint32_t model_count, int devices, const char *name) {
    long vendor = read_number(devices, name, "vendor");
    if (vendor != VENDOR_NVIDIA && vendor != VENDOR_AMD)
        return;
    long class = read_number(devices, name, "class");
    long device = read_number(devices, name, "device");
    bool gpu = class >> 16 == CLASS_DISPLAY || class >> 16 == CLASS_ACCELERATOR;
    if (gpu && device >= 0)
        judge(findings, models, model_count, vendor, device, class);
}

/* Without a list or sysfs nothing is found. */
static struct findings look(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                            uint32_t model_count) {
    struct findings findings = {0};
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
    if (model_count == 0 || length < 0 || (size_t)length >= sizeof path)
        return findings;
    DIR *devices = opendir(path);
    if (devices == NULL)
        return findings;
    const struct dirent *entry;
    while ((entry = readdir(devices)) != NULL)
        if (entry->d_name[0] != '.')
            examine(&findings, models, model_count, dirfd(devices), entry->d_name);
    closedir(devices);
    return findings;
}

uint32_t tuccl_machine_gpus(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                            uint32_t model_count) {
    return look(sysfs_root, models, model_count).listed;
}

bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_gpu_model_record *models,
                           uint32_t model_count, char *why, size_t why_bytes) {
    struct findings findings = look(sysfs_root, models, model_count);
    if (findings.listed > 0 || findings.evidence == NO_EVIDENCE)
        return true;
    snprintf(why, why_bytes,
             "is for another machine: GPU %04lx:%04lx here, none of its %u GPU model%s (first "
             "%04x:%04x)",
             (unsigned long)findings.vendor, (unsigned long)findings.device, model_count,
             model_count == 1 ? "" : "s", models[0].vendor, models[0].device);
    return false;
}
