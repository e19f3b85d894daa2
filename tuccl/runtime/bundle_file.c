#include "bundle_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool fail(char *why, size_t why_bytes, const char *step, int error) {
    char text[128] = "";
    if (error == 0) {
        snprintf(why, why_bytes, "%s", step);
        return false;
    }
    /* strerror is not thread-safe, and communicators start in several threads. The type selects
     * POSIX's strerror_r, which _GNU_SOURCE would replace. */
    int (*describe)(int, char *, size_t) = strerror_r;
    if (describe(error, text, sizeof text) != 0)
        snprintf(text, sizeof text, "error %d", error);
    snprintf(why, why_bytes, "%s: %s", step, text);
    return false;
}

static int fill(int file, unsigned char *data, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(file, data + done, bytes - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return errno;
        if (got == 0) /* Truncated while being read. */
            return EIO;
        done += (size_t)got;
    }
    return 0;
}

static bool is_readable(int file, size_t most_bytes, size_t *bytes, char *why, size_t why_bytes) {
    struct stat status;
    if (fstat(file, &status) != 0)
        return fail(why, why_bytes, "cannot be examined", errno);
    if (!S_ISREG(status.st_mode))
        return fail(why, why_bytes, "is no regular file", 0);
    if (status.st_size <= 0)
        return fail(why, why_bytes, "is empty", 0);
    if ((uint64_t)status.st_size > most_bytes) {
        snprintf(why, why_bytes, "is too large: %lld bytes, %zu are the most",
                 (long long)status.st_size, most_bytes);
        return false;
    }
    *bytes = (size_t)status.st_size;
    return true;
}

int tuccl_open_file(const char *path, size_t most_bytes, size_t *bytes, char *why,
                    size_t why_bytes) {
    /* O_NONBLOCK: opening a FIFO without a writer would hang the job. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        fail(why, why_bytes, "cannot be opened", errno);
        return -1;
    }
    if (is_readable(file, most_bytes, bytes, why, why_bytes))
        return file;
    close(file);
    return -1;
}

bool tuccl_read_start(int file, void *start, size_t bytes, char *why, size_t why_bytes) {
    int error = fill(file, start, bytes);
    return error == 0 || fail(why, why_bytes, "cannot be read", error);
}

const unsigned char *tuccl_read_pages(int file, size_t bytes, char *why, size_t why_bytes) {
    /* Not a mapping of the file: truncating a mapped file kills its readers with SIGBUS, and
     * writing to it in place would change the table of a running job on some of its ranks. */
    unsigned char *data =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        fail(why, why_bytes, "does not fit in memory", errno);
        return NULL;
    }
    int error = fill(file, data, bytes);
    if (error == 0 && mprotect(data, bytes, PROT_READ) != 0)
        error = errno;
    if (error == 0)
        return data;
    munmap(data, bytes);
    fail(why, why_bytes, "cannot be read", error);
    return NULL;
}
