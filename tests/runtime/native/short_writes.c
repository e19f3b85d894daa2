/* A file system that takes few bytes at a time, as a full or slow one may. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

ssize_t write(int file, const void *bytes, size_t count) {
    const size_t most = 100;
    return syscall(SYS_write, file, bytes, count > most && file > 2 ? most : count);
}
