#include "control.h"
#include "control_layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct tuccl_control {
    struct tuccl_control_block *block;
    size_t nodes;
};

static bool is_sound(const struct tuccl_control_block *block, char *why, size_t why_bytes) {
    snprintf(why, why_bytes, "is no control block");
    if (memcmp(block->magic, TUCCL_CONTROL_MAGIC, sizeof block->magic) != 0)
        return false;
    snprintf(why, why_bytes, "has format %u of %u bytes, this plugin takes %d of %zu",
             block->version, block->block_bytes, TUCCL_CONTROL_VERSION, sizeof *block);
    return block->version == TUCCL_CONTROL_VERSION && block->block_bytes == sizeof *block;
}

/* Whether a file can be mapped without a fault: it holds the block's page, and only this user can
 * truncate it. */
static bool can_be_mapped(int file, char *why, size_t why_bytes) {
    struct stat status;
    struct tuccl_control_block block;
    snprintf(why, why_bytes, "is no control block");
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        return false;
    /* Files in memory have all permissions, but no name by which others could open them. */
    bool is_open = status.st_nlink > 0 && (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    if (status.st_uid != geteuid() || is_open) {
        snprintf(why, why_bytes, "can be written by other users");
        return false;
    }
    return pread(file, &block, sizeof block, 0) == (ssize_t)sizeof block &&
           is_sound(&block, why, why_bytes);
}

static struct tuccl_control_block *map_block(const char *path, char *why, size_t why_bytes) {
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        snprintf(why, why_bytes, "cannot be opened (error %d)", errno);
        return NULL;
    }
    void *block = MAP_FAILED;
    if (can_be_mapped(file, why, why_bytes)) {
        block = mmap(NULL, sizeof(struct tuccl_control_block), PROT_READ | PROT_WRITE, MAP_SHARED,
                     file, 0);
        if (block == MAP_FAILED)
            snprintf(why, why_bytes, "cannot be mapped (error %d)", errno);
    }
    close(file);
    return block == MAP_FAILED ? NULL : block;
}

struct tuccl_control *tuccl_control_open(const char *path, int abi, size_t nodes, char *why,
                                         size_t why_bytes) {
    struct tuccl_control_block *block = map_block(path, why, why_bytes);
    if (block == NULL)
        return NULL;
    snprintf(why, why_bytes, "does not fit in memory");
    struct tuccl_control *control = malloc(sizeof *control);
    if (control == NULL) {
        munmap(block, sizeof *block);
        return NULL;
    }
    *control = (struct tuccl_control){block, nodes};
    atomic_store(&block->loaded_pid, (uint32_t)getpid());
    atomic_store(&block->loaded_abi, (uint32_t)abi);
    atomic_fetch_add(&block->communicators, 1);
    return control;
}

void tuccl_control_close(struct tuccl_control *control) {
    if (control == NULL)
        return;
    munmap(control->block, sizeof *control->block);
    free(control);
}

/* Records one of several concurrent calls: no call waits for another. */
static void record_question(struct tuccl_control_block *block,
                            const struct tuccl_question *question) {
    uint32_t sequence = atomic_load(&block->sequence);
    if (sequence % 2 != 0 ||
        !atomic_compare_exchange_strong(&block->sequence, &sequence, sequence + 1))
        return;
    atomic_store(&block->function, question->function);
    atomic_store(&block->bytes, question->bytes);
    atomic_store(&block->nchannels, question->nchannels);
    bool fits = question->cost != NULL && question->algorithms >= 0 && question->protocols >= 0 &&
                question->algorithms <= TUCCL_CONTROL_COSTS &&
                question->protocols <= TUCCL_CONTROL_COSTS &&
                question->algorithms * question->protocols <= TUCCL_CONTROL_COSTS;
    atomic_store(&block->algorithms, fits ? question->algorithms : 0);
    atomic_store(&block->protocols, fits ? question->protocols : 0);
    for (int i = 0; fits && i < question->algorithms * question->protocols; i++)
        atomic_store(&block->cost[i], question->cost[i]);
    atomic_store(&block->sequence, sequence + 2);
}

bool tuccl_control_ask(struct tuccl_control *control, const struct tuccl_question *question,
                       struct tuccl_choice *override) {
    struct tuccl_control_block *block = control->block;
    record_question(block, question);
    atomic_fetch_add(&block->asked, 1);
    if (!tuccl_requested_choice(atomic_load(&block->override), override))
        return false;
    if (override->nchannels > TUCCL_MOST_NCHANNELS ||
        !tuccl_chunk_is_sound(override->algorithm, override->chunk_log2)) /* It is refused. */
        override->algorithm = TUCCL_NO_REQUEST;
    if (tuccl_channels_are_unbounded(override->algorithm, control->nodes))
        override->nchannels = 0;
    return true;
}

void tuccl_control_answer(struct tuccl_control *control, bool forced) {
    atomic_fetch_add(forced ? &control->block->forced : &control->block->refused, 1);
}

void tuccl_control_count_chunk(struct tuccl_control *control, bool changed) {
    atomic_fetch_add(&control->block->chunks_asked, 1);
    if (changed)
        atomic_fetch_add(&control->block->chunks_changed, 1);
}
