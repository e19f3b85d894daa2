/* The bundle's records, byte by byte. lookup_tables/bundle_layout.py declares them for
 * Python, docs/reference/bundle-format.md describes the format. All integers are little-endian. */
#ifndef TUCCL_BUNDLE_LAYOUT_H
#define TUCCL_BUNDLE_LAYOUT_H

#include <assert.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "bundle records are read in place, which needs a little-endian machine"
#endif

#define TUCCL_BUNDLE_MAGIC "TUCCLBDL"
#define TUCCL_NO_SCHEDULE UINT32_MAX

enum {
    TUCCL_BUNDLE_VERSION = 1,
    /* Far above any table, so that a wrong path (a checkpoint) cannot fill a job's memory. */
    TUCCL_LARGEST_BUNDLE_BYTES = 1073741824,
    TUCCL_SECTION_REQUIRED = 1,
    TUCCL_OPERATION_SLOTS = 8,
    TUCCL_NO_CODE = 0xFF,
    /* Far above any machine: each is compared with each. */
    TUCCL_MOST_HOST_DEVICES = 1024,
};

enum tuccl_section_kind {
    TUCCL_SECTION_TEXT = 1,
    TUCCL_SECTION_IDENTITY = 2,
    TUCCL_SECTION_GPU_MODELS = 3,
    TUCCL_SECTION_SHAPES = 4,
    TUCCL_SECTION_ENTRIES = 5,
    TUCCL_SECTION_PROFILE = 6,
    TUCCL_SECTION_SCHEDULES = 7,
    TUCCL_SECTION_PROGRAMS = 8,   /* Optional: program_layout.h. */
    TUCCL_SECTION_PLACEMENTS = 9, /* Optional, with the next. */
    TUCCL_SECTION_PLACED_ENTRIES = 10,
    TUCCL_SECTION_HOST_DEVICES = 11,        /* Optional. */
    TUCCL_SECTION_VARIABLES = 12,           /* Optional; its records are those of PROFILE. */
    TUCCL_SECTION_SUMS = 13,                /* Only in tables whose sums do not move. */
    TUCCL_SECTION_SETTINGS = 14,            /* Optional. */
    TUCCL_SECTION_RUNNERS_UP = 15,          /* Optional. */
    TUCCL_SECTION_RUNNER_UP_SCHEDULES = 16, /* Optional. */
    TUCCL_SECTION_KINDS = 17,
};

struct tuccl_bundle_header {
    char magic[8];
    uint32_t version;
    uint32_t crc;
    uint32_t header_bytes;
    uint32_t section_count;
    uint64_t total_bytes;
};

struct tuccl_bundle_section {
    uint32_t kind;
    uint32_t flags;
    uint64_t offset;
    uint64_t bytes;
    uint32_t record_count;
    uint32_t record_bytes;
};

struct tuccl_text_record {
    uint32_t offset;
    uint32_t bytes;
};

struct tuccl_identity_record {
    struct tuccl_text_record fingerprint;
    struct tuccl_text_record topology_name;
};

struct tuccl_gpu_model_record {
    uint16_t vendor;
    uint16_t device;
    uint32_t zero;
};

struct tuccl_range_record {
    uint32_t first;
    uint32_t count;
};

struct tuccl_shape_record {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node;
    uint32_t zero;
    /* By operation code: 0 to 4 are NCCL's ncclFunc_t, 5 is alltoall. */
    struct tuccl_range_record of_operation[TUCCL_OPERATION_SLOTS];
};

enum tuccl_entry_flag {
    /* The schedule serves calls on registered windows, too (docs/reference/executor.md). */
    TUCCL_ENTRY_IN_WINDOWS = 1,
};

struct tuccl_entry_record {
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint8_t algorithm;
    uint8_t protocol;
    uint8_t nchannels;
    uint8_t chunk_log2; /* As in struct tuccl_choice. */
    uint32_t schedule;
    uint8_t schedule_protocol;
    uint8_t flags; /* enum tuccl_entry_flag */
    uint16_t schedule_nchannels;
    uint32_t schedule_nthreads;
    uint64_t schedule_buffer_bytes;
    float builtin_time_us;
    float default_time_us;
};

/* A class of a shape's communicators that NCCL's estimates for ring with Simple tell from others.
 */
struct tuccl_placement_record {
    uint32_t shape; /* Index into SHAPES. */
    uint32_t operation;
    double latency_us;
    double us_per_byte;
    struct tuccl_range_record entries; /* In PLACED_ENTRIES. */
    float tolerance;
    uint32_t zero;
};

struct tuccl_profile_record {
    struct tuccl_text_record name;
    struct tuccl_text_record value;
};

enum tuccl_device_kind {
    TUCCL_DEVICE_GPU,
    TUCCL_DEVICE_NIC,
    TUCCL_DEVICE_KINDS,
};

/* GPUs of a model on one kind of host, or one of its NICs. */
struct tuccl_host_device_record {
    uint32_t host; /* Kind of host, ascending from 0. */
    uint32_t kind;
    uint16_t vendor;
    uint16_t device;
    uint32_t count;
    uint32_t mbit_per_s; /* Line rate of a NIC; 0 if it is not known. */
    struct tuccl_text_record name;
    uint8_t nvlinks; /* Of a GPU, those that are up; 0 if they are not known. */
    /* Further GPUs of the host below a switch that is above this device, and of its NUMA node; 0
     * if that is not known. */
    uint8_t gpus_at_switch;
    uint8_t gpus_at_numa_node;
    uint8_t zero;
};

struct tuccl_schedule_record {
    struct tuccl_text_record content_hash;
    struct tuccl_text_record name;
    struct tuccl_text_record msccl_xml;
};

/* The order in which all entries of a shape and operation add an element's parts. */
struct tuccl_sum_record {
    uint32_t shape; /* Index into SHAPES. */
    uint32_t operation;
    struct tuccl_text_record order;
};

/* A variable of PROFILE that the executor sets on communicators of a shape, by their configuration.
 */
struct tuccl_setting_record {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node; /* 0 if nodes differ. */
    uint32_t zero;
    struct tuccl_profile_record pair;
};

/* Settings of NCCL that a job may try for calls of a size. */
enum { TUCCL_MOST_RUNNERS_UP = 7 };
struct tuccl_runners_up_record {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node; /* 0 if nodes differ. */
    uint32_t operation;
    uint64_t min_bytes;
    uint64_t max_bytes;
    uint32_t count;
    uint32_t words[TUCCL_MOST_RUNNERS_UP]; /* As of requests (tuner_abi.h), the fastest first. */
};

/* A schedule that a job may try for calls of a size; those of a size follow one another, the
 * fastest first. */
struct tuccl_runner_up_schedule_record {
    uint32_t ranks;
    uint32_t nodes;
    uint32_t ranks_per_node; /* 0 if nodes differ. */
    uint32_t operation;
    struct tuccl_entry_record entry; /* Of a schedule alone. */
};

static_assert(sizeof(struct tuccl_bundle_header) == 32, "header");
static_assert(sizeof(struct tuccl_bundle_section) == 32, "section");
static_assert(sizeof(struct tuccl_gpu_model_record) == 8, "GPU model");
static_assert(sizeof(struct tuccl_shape_record) == 80, "shape");
static_assert(sizeof(struct tuccl_entry_record) == 48, "entry");
static_assert(sizeof(struct tuccl_placement_record) == 40, "placement");
static_assert(sizeof(struct tuccl_host_device_record) == 32, "host device");
static_assert(sizeof(struct tuccl_sum_record) == 16, "order of sums");
static_assert(sizeof(struct tuccl_setting_record) == 32, "setting");
static_assert(sizeof(struct tuccl_runners_up_record) == 64, "runners-up");
static_assert(sizeof(struct tuccl_runner_up_schedule_record) == 64, "runner-up schedule");

#endif
