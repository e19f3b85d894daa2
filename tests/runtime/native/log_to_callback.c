/* A logger as NCCL has one, for tests in Python: formats, then hands over the text. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*text_callback)(int level, unsigned long flags, const char *text);

text_callback log_callback;

/* The library that has the logger is the NCCL. */
int ncclGetVersion(int *version);

int ncclGetVersion(int *version) {
    const char *said = getenv("STAND_IN_NCCL_VERSION");
    *version = said != NULL ? atoi(said) : 0;
    return said != NULL ? 0 : 1;
}

void log_to_callback(int level, unsigned long flags, const char *file, int line, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));

void log_to_callback(int level, unsigned long flags, const char *file, int line, const char *format,
                     ...) {
    char text[8192];
    va_list arguments;
    (void)file;
    (void)line;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (log_callback != NULL)
        log_callback(level, flags, text);
}
