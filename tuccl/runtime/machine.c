#include "machine.h"
#include "pci_switches.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    VENDOR_NVIDIA = 0x10de,
    VENDOR_AMD = 0x1002,
    CLASS_NETWORK = 0x02,
    CLASS_DISPLAY = 0x03,
    CLASS_ACCELERATOR = 0x12,
    SUBCLASS_INFINIBAND = 0x0c06, /* On a serial bus; most of InfiniBand are CLASS_NETWORK. */
    SUBCLASS_VGA = 0x0300,        /* Drives a screen. Consumer cards that compute have it too. */
};

enum { NAME_BYTES = 64, ADDRESS_BYTES = 24, MOST_DEVICES = 512, NO_NUMA_NODE = -1 };

/* What the table says of the GPUs close to a device. */
enum closeness { AT_SWITCH, AT_NUMA_NODE, CLOSENESSES };

/* A GPU or NIC of this host whose model the table's hosts have. */
struct seen_device {
    uint16_t vendor, device;
    uint32_t kind;
    struct tuccl_pci_switches switches;
    long numa_node;                   /* NO_NUMA_NODE if it is not known. */
    uint32_t close_gpus[CLOSENESSES]; /* Further GPUs below its switches, of its NUMA node. */
    uint32_t mbit_per_s;   /* Of a NIC's fastest port that is up; 0 if it is not known. */
    char name[NAME_BYTES]; /* Of that port, or of any. */
    char address[ADDRESS_BYTES];
};

/* Reads the first line of `directory`/`file` below an open directory. */
static bool read_line(int devices, const char *directory, const char *file, char *text,
                      size_t text_bytes) {
    char path[600];
    int length = snprintf(path, sizeof path, "%s/%s", directory, file);
    if (length < 0 || (size_t)length >= sizeof path)
        return false;
    int descriptor = openat(devices, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return false;
    ssize_t got = read(descriptor, text, text_bytes - 1);
    close(descriptor);
    if (got <= 0)
        return false;
    text[got] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return true;
}

/* Returns the hexadecimal number in a sysfs file, -1 if it cannot be read. */
static long read_number(int devices, const char *device, const char *file) {
    char text[32];
    return read_line(devices, device, file, text, sizeof text) ? strtol(text, NULL, 16) : -1;
}

/* Returns the entries of a directory, NULL if it cannot be read. */
static DIR *open_directory(int above, const char *path) {
    int descriptor = openat(above, path, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    DIR *directory = descriptor < 0 ? NULL : fdopendir(descriptor);
    if (directory == NULL && descriptor >= 0)
        close(descriptor);
    return directory;
}

/* Returns the name of the next entry, NULL at the end; those with a dot in front are left out. */
static const char *next_name(DIR *directory) {
    const struct dirent *entry;
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            return entry->d_name;
    return NULL;
}

/* Returns a rate as InfiniBand shows it, "2.5 Gb/sec (1X SDR)", in Mb/s. strtod depends on the
 * locale. */
static long rdma_mbit_per_s(const char *text) {
    char *rest;
    long whole = strtol(text, &rest, 10);
    bool fraction = rest[0] == '.' && rest[1] >= '0' && rest[1] <= '9';
    return whole < 0 || whole > 4000000 ? 0 : 1000 * whole + (fraction ? 100 * (rest[1] - '0') : 0);
}

/* Keeps the fastest of a NIC's ports. */
static void keep_port(struct seen_device *nic, const char *name, long mbit_per_s) {
    bool faster = mbit_per_s > (long)nic->mbit_per_s && mbit_per_s <= UINT32_MAX;
    if (nic->name[0] == '\0' || faster)
        snprintf(nic->name, sizeof nic->name, "%.*s", NAME_BYTES - 1, name);
    if (faster)
        nic->mbit_per_s = (uint32_t)mbit_per_s;
}

/* The rate of a port that is down is meaningless. `function` is the NIC's folder. */
static void read_rdma_device(struct seen_device *nic, int devices, const char *function,
                             const char *name) {
    char path[500], state[64], rate[64];
    keep_port(nic, name, 0);
    snprintf(path, sizeof path, "%.100s/infiniband/%.200s/ports", function, name);
    DIR *ports = open_directory(devices, path);
    if (ports == NULL)
        return;
    const char *port;
    while ((port = next_name(ports)) != NULL) {
        if (read_line(dirfd(ports), port, "state", state, sizeof state) &&
            strcmp(state, "4: ACTIVE") == 0 &&
            read_line(dirfd(ports), port, "rate", rate, sizeof rate))
            keep_port(nic, name, rdma_mbit_per_s(rate));
    }
    closedir(ports);
}

static void read_interface(struct seen_device *nic, int interfaces, const char *name) {
    char state[32], speed[32];
    bool up = read_line(interfaces, name, "operstate", state, sizeof state) &&
              strcmp(state, "up") == 0 && read_line(interfaces, name, "speed", speed, sizeof speed);
    keep_port(nic, name, up ? strtol(speed, NULL, 10) : 0);
}

/* Reads name and rate of a NIC's ports: those of RDMA if it shows any, else its interfaces. */
static void read_ports(struct seen_device *nic, int devices, const char *function) {
    char path[200];
    const char *name;
    snprintf(path, sizeof path, "%.100s/infiniband", function);
    DIR *ports = open_directory(devices, path);
    bool rdma = ports != NULL;
    if (!rdma) {
        snprintf(path, sizeof path, "%.100s/net", function);
        ports = open_directory(devices, path);
    }
    while (ports != NULL && (name = next_name(ports)) != NULL) {
        if (rdma)
            read_rdma_device(nic, devices, function, name);
        else
            read_interface(nic, dirfd(ports), name);
    }
    if (ports != NULL)
        closedir(ports);
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
    uint32_t seen_count;    /* May exceed MOST_DEVICES; then devices are not compared. */
    struct seen_device seen[MOST_DEVICES];
};

static void judge(struct findings *findings, const struct tuccl_bundle *bundle, long vendor,
                  long device, long class) {
    bool vendor_listed = false;
    for (uint32_t i = 0; i < bundle->gpu_model_count; i++) {
        const struct tuccl_gpu_model_record *model = &bundle->gpu_models[i];
        vendor_listed |= model->vendor == vendor;
        findings->listed += model->vendor == vendor && model->device == device;
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

static long read_numa_node(int devices, const char *function) {
    char text[32];
    bool is_known = read_line(devices, function, "numa_node", text, sizeof text) &&
                    text[0] >= '0' && text[0] <= '9';
    return is_known ? strtol(text, NULL, 10) : NO_NUMA_NODE;
}

/* Keeps a device if the table's hosts have one of its kind and model. */
static void keep(struct findings *findings, const struct tuccl_bundle *bundle, uint32_t kind,
                 long vendor, long device, int devices, const char *function) {
    const struct tuccl_host_device_record *known = bundle->host_devices;
    uint32_t at = 0;
    while (at < bundle->host_device_count &&
           (known[at].kind != kind || known[at].vendor != vendor || known[at].device != device))
        at++;
    if (at == bundle->host_device_count || ++findings->seen_count > MOST_DEVICES)
        return;
    struct seen_device *seen = &findings->seen[findings->seen_count - 1];
    *seen = (struct seen_device){.vendor = (uint16_t)vendor, .device = (uint16_t)device};
    seen->kind = kind;
    snprintf(seen->address, sizeof seen->address, "%.*s", ADDRESS_BYTES - 1, function);
    seen->switches = tuccl_pci_switches(devices, function);
    seen->numa_node = read_numa_node(devices, function);
    if (kind == TUCCL_DEVICE_NIC)
        read_ports(seen, devices, function);
}

/* The class is read first, since most functions of a host are bridges. */
static void examine(struct findings *findings, const struct tuccl_bundle *bundle, bool across_hosts,
                    int devices, const char *name) {
    long class = read_number(devices, name, "class");
    bool gpu = class >> 16 == CLASS_DISPLAY || class >> 16 == CLASS_ACCELERATOR;
    bool network = class >> 16 == CLASS_NETWORK || class >> 8 == SUBCLASS_INFINIBAND;
    bool nic = network && across_hosts && bundle->host_device_count > 0;
    if (!gpu && !nic)
        return;
    long vendor = read_number(devices, name, "vendor");
    if (gpu && vendor != VENDOR_NVIDIA && vendor != VENDOR_AMD)
        return;
    long device = read_number(devices, name, "device");
    if (device < 0)
        return;
    if (gpu)
        judge(findings, bundle, vendor, device, class);
    keep(findings, bundle, gpu ? TUCCL_DEVICE_GPU : TUCCL_DEVICE_NIC, vendor, device, devices,
         name);
}

/* Counts the GPUs close to each device. A device without a NUMA node may be of any, so that nothing
 * is known of NUMA nodes. */
static void count_close_gpus(struct findings *findings) {
    bool has_numa_nodes = true;
    for (uint32_t i = 0; i < findings->seen_count; i++)
        has_numa_nodes &= findings->seen[i].numa_node != NO_NUMA_NODE;
    for (uint32_t i = 0; i < findings->seen_count; i++) {
        struct seen_device *own = &findings->seen[i];
        for (uint32_t k = 0; k < findings->seen_count; k++) {
            const struct seen_device *gpu = &findings->seen[k];
            if (k == i || gpu->kind != TUCCL_DEVICE_GPU)
                continue;
            own->close_gpus[AT_SWITCH] += tuccl_share_switch(&own->switches, &gpu->switches);
            own->close_gpus[AT_NUMA_NODE] += has_numa_nodes && own->numa_node == gpu->numa_node;
        }
    }
}

/* Without a list or sysfs nothing is found. */
static void look(struct findings *findings, const char *sysfs_root,
                 const struct tuccl_bundle *bundle, bool across_hosts) {
    char path[4096];
    memset(findings, 0, offsetof(struct findings, seen));
    int length = snprintf(path, sizeof path, "%s/bus/pci/devices", sysfs_root);
    if (bundle->gpu_model_count == 0 || length < 0 || (size_t)length >= sizeof path)
        return;
    DIR *devices = opendir(path);
    if (devices == NULL)
        return;
    const char *name;
    while ((name = next_name(devices)) != NULL)
        examine(findings, bundle, across_hosts, dirfd(devices), name);
    closedir(devices);
    if (findings->seen_count <= MOST_DEVICES)
        count_close_gpus(findings);
}

uint32_t tuccl_machine_gpus(const char *sysfs_root, const struct tuccl_bundle *bundle) {
    struct findings findings;
    look(&findings, sysfs_root, bundle, false);
    return findings.listed;
}

/* Devices of one kind of host, all of those that `look` compares. */
struct host {
    const struct tuccl_bundle *bundle;
    const struct tuccl_host_device_record *devices;
    uint32_t count;
};

static bool same_model(const struct tuccl_host_device_record *one,
                       const struct tuccl_host_device_record *other) {
    return one->kind == other->kind && one->vendor == other->vendor && one->device == other->device;
}

static bool is_of(const struct seen_device *seen, const struct tuccl_host_device_record *record) {
    return seen->vendor == record->vendor && seen->device == record->device;
}

/* Returns the devices of a record's model on a kind of host; at any rate if `mbit_per_s` is 0. */
static uint64_t expected(const struct host *host, const struct tuccl_host_device_record *record,
                         uint32_t mbit_per_s) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < host->count; i++)
        if (same_model(&host->devices[i], record) &&
            (mbit_per_s == 0 || host->devices[i].mbit_per_s == mbit_per_s))
            count += host->devices[i].count;
    return count;
}

static uint64_t found(const struct findings *findings,
                      const struct tuccl_host_device_record *record) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < findings->seen_count; i++)
        count += is_of(&findings->seen[i], record);
    return count;
}

static uint64_t found_at(const struct findings *findings,
                         const struct tuccl_host_device_record *record, uint32_t mbit_per_s) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < findings->seen_count; i++)
        count += is_of(&findings->seen[i], record) && findings->seen[i].mbit_per_s == mbit_per_s;
    return count;
}

/* Writes ": mlx5_3 is missing" if a NIC of this model is not seen under the name that the table
 * has. */
static void name_missing(const struct host *host, const struct findings *findings,
                         const struct tuccl_host_device_record *record, char *text,
                         size_t text_bytes) {
    text[0] = '\0';
    for (uint32_t i = 0; i < host->count; i++) {
        const struct tuccl_host_device_record *own = &host->devices[i];
        const char *name = host->bundle->text + own->name.offset;
        bool here = own->name.bytes == 0 || own->name.bytes >= NAME_BYTES;
        for (uint32_t k = 0; k < findings->seen_count; k++)
            here |= is_of(&findings->seen[k], record) &&
                    strlen(findings->seen[k].name) == own->name.bytes &&
                    memcmp(findings->seen[k].name, name, own->name.bytes) == 0;
        if (same_model(own, record) && !here) {
            snprintf(text, text_bytes, ": %.*s is missing", (int)own->name.bytes, name);
            return;
        }
    }
}

/* Returns how many devices of a record's model are missing, with the reason in `why`. */
static uint64_t missing(const struct host *host, const struct findings *findings,
                        const struct tuccl_host_device_record *record, char *why,
                        size_t why_bytes) {
    uint64_t wanted = expected(host, record, 0), here = found(findings, record);
    char name[NAME_BYTES + 16];
    if (here >= wanted)
        return 0;
    name_missing(host, findings, record, name, sizeof name);
    snprintf(why, why_bytes, "is for another machine: %llu %s %04x:%04x here, %llu on its hosts%s",
             (unsigned long long)here, record->kind == TUCCL_DEVICE_GPU ? "GPUs" : "NICs",
             record->vendor, record->device, (unsigned long long)wanted, name);
    return wanted - here;
}

/* Returns how many NICs of a record's model run at none of their rates, with the reason in `why`. A
 * NIC whose rate is not known may run at any. */
static uint64_t at_other_rates(const struct host *host, const struct findings *findings,
                               const struct tuccl_host_device_record *record, char *why,
                               size_t why_bytes) {
    uint64_t lacking = 0, unknown = found_at(findings, record, 0);
    for (uint32_t i = 0; i < host->count; i++) {
        const struct tuccl_host_device_record *own = &host->devices[i];
        uint32_t rate = own->mbit_per_s;
        bool first = same_model(own, record) && rate > 0;
        for (uint32_t k = 0; k < i; k++)
            first &= !same_model(&host->devices[k], own) || host->devices[k].mbit_per_s != rate;
        if (!first)
            continue;
        uint64_t wanted = expected(host, record, rate), here = found_at(findings, record, rate);
        if (here >= wanted)
            continue;
        if (lacking == 0)
            snprintf(
                why, why_bytes,
                "is for another machine: %llu NICs %04x:%04x at %g Gb/s here, %llu on its hosts",
                (unsigned long long)here, record->vendor, record->device, rate / 1000.0,
                (unsigned long long)wanted);
        lacking += wanted - here;
    }
    return lacking > unknown ? lacking - unknown : 0;
}

static uint32_t close_gpus(const struct tuccl_host_device_record *record,
                           enum closeness closeness) {
    return closeness == AT_SWITCH ? record->gpus_at_switch : record->gpus_at_numa_node;
}

/* Returns the device of a record's model with the fewest close GPUs, of these the first by
 * address. */
static const struct seen_device *loneliest(const struct findings *findings,
                                           const struct tuccl_host_device_record *record,
                                           enum closeness closeness) {
    const struct seen_device *found = NULL;
    for (uint32_t i = 0; i < findings->seen_count; i++) {
        const struct seen_device *seen = &findings->seen[i];
        if (!is_of(seen, record))
            continue;
        uint32_t fewest = found == NULL ? UINT32_MAX : found->close_gpus[closeness];
        if (seen->close_gpus[closeness] < fewest ||
            (seen->close_gpus[closeness] == fewest && strcmp(seen->address, found->address) < 0))
            found = seen;
    }
    return found;
}

static void tell_closeness(char *why, size_t why_bytes, const struct findings *findings,
                           const struct tuccl_host_device_record *record, enum closeness closeness,
                           uint64_t here, uint64_t wanted) {
    static const char *const places[] = {"below their PCIe switches", "of their NUMA node"};
    const struct seen_device *lonely = loneliest(findings, record, closeness);
    uint32_t least = close_gpus(record, closeness);
    snprintf(why, why_bytes,
             "is for another machine: %llu %s %04x:%04x with %u or more GPUs %s here, %llu on its "
             "hosts: %s has %u",
             (unsigned long long)here, record->kind == TUCCL_DEVICE_GPU ? "GPUs" : "NICs",
             record->vendor, record->device, least, places[closeness], (unsigned long long)wanted,
             lonely->name[0] != '\0' ? lonely->name : lonely->address,
             lonely->close_gpus[closeness]);
}

/* Returns whether any device of a record's model has GPUs close to it: else this host may not show
 * them, as virtual machines do not. */
static bool shows_closeness(const struct findings *findings,
                            const struct tuccl_host_device_record *record,
                            enum closeness closeness) {
    for (uint32_t i = 0; i < findings->seen_count; i++)
        if (is_of(&findings->seen[i], record) && findings->seen[i].close_gpus[closeness] > 0)
            return true;
    return false;
}

/* Returns how many devices of a record's model have fewer GPUs close to them than those of the
 * table, with the reason in `why`. */
static uint64_t too_far(const struct host *host, const struct findings *findings,
                        const struct tuccl_host_device_record *record, enum closeness closeness,
                        char *why, size_t why_bytes) {
    uint64_t most = 0;
    if (!shows_closeness(findings, record, closeness))
        return 0;
    for (uint32_t i = 0; i < host->count; i++) {
        uint64_t wanted = 0, here = 0;
        uint32_t least = close_gpus(&host->devices[i], closeness);
        if (least == 0 || !same_model(&host->devices[i], record))
            continue;
        for (uint32_t k = 0; k < host->count; k++)
            if (same_model(&host->devices[k], record) &&
                close_gpus(&host->devices[k], closeness) >= least)
                wanted += host->devices[k].count;
        for (uint32_t k = 0; k < findings->seen_count; k++)
            here += is_of(&findings->seen[k], record) &&
                    findings->seen[k].close_gpus[closeness] >= least;
        if (here >= wanted || wanted - here <= most)
            continue;
        most = wanted - here;
        tell_closeness(why, why_bytes, findings, &host->devices[i], closeness, here, wanted);
    }
    return most;
}

/* Returns the number of differences from a kind of host, the first of them in `why`. */
static uint64_t differences(const struct host *host, const struct findings *findings,
                            bool across_hosts, char *why, size_t why_bytes) {
    uint64_t count = 0;
    char text[TUCCL_MACHINE_WHY_BYTES] = "";
    for (uint32_t i = 0; i < host->count; i++) {
        const struct tuccl_host_device_record *record = &host->devices[i];
        bool repeated = false;
        for (uint32_t k = 0; k < i; k++)
            repeated |= same_model(&host->devices[k], record);
        if (repeated || (record->kind == TUCCL_DEVICE_NIC && !across_hosts))
            continue;
        uint64_t own = missing(host, findings, record, text, sizeof text);
        if (own == 0 && record->kind == TUCCL_DEVICE_NIC)
            own = at_other_rates(host, findings, record, text, sizeof text);
        if (own == 0)
            own = too_far(host, findings, record, AT_SWITCH, text, sizeof text);
        if (own == 0)
            own = too_far(host, findings, record, AT_NUMA_NODE, text, sizeof text);
        if (own > 0 && count == 0)
            snprintf(why, why_bytes, "%s", text);
        count += own;
    }
    return count;
}

/* Returns whether this host has what a kind of host has; else `why` has the first difference from
 * the kind that it is most like. */
static bool is_like_a_host(const struct tuccl_bundle *bundle, const struct findings *findings,
                           bool across_hosts, char *why, size_t why_bytes) {
    uint64_t fewest = UINT64_MAX;
    char text[TUCCL_MACHINE_WHY_BYTES] = "";
    for (uint32_t first = 0, end = 0; first < bundle->host_device_count; first = end) {
        const struct tuccl_host_device_record *devices = &bundle->host_devices[first];
        while (end < bundle->host_device_count && bundle->host_devices[end].host == devices->host)
            end++;
        struct host host = {bundle, devices, end - first};
        uint64_t count = differences(&host, findings, across_hosts, text, sizeof text);
        if (count == 0)
            return true;
        if (count < fewest)
            snprintf(why, why_bytes, "%s", text);
        fewest = count < fewest ? count : fewest;
    }
    return fewest == UINT64_MAX;
}

bool tuccl_machine_matches(const char *sysfs_root, const struct tuccl_bundle *bundle,
                           bool across_hosts, char *why, size_t why_bytes) {
    struct findings findings;
    look(&findings, sysfs_root, bundle, across_hosts);
    if (findings.listed > 0)
        return findings.seen_count > MOST_DEVICES ||
               is_like_a_host(bundle, &findings, across_hosts, why, why_bytes);
    if (findings.evidence == NO_EVIDENCE)
        return true;
    snprintf(why, why_bytes,
             "is for another machine: GPU %04lx:%04lx here, none of its %u GPU model%s (first "
             "%04x:%04x)",
             (unsigned long)findings.vendor, (unsigned long)findings.device,
             bundle->gpu_model_count, bundle->gpu_model_count == 1 ? "" : "s",
             bundle->gpu_models[0].vendor, bundle->gpu_models[0].device);
    return false;
}
