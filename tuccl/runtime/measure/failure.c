#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

static void write_down(struct failure *failure, const char *format, va_list arguments) {
    vsnprintf(failure->text, sizeof failure->text, format, arguments);
}

bool fail(struct failure *failure, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_down(failure, format, arguments);
    va_end(arguments);
    return false;
}

bool fail_broken(struct failure *failure, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    write_down(failure, format, arguments);
    va_end(arguments);
    failure->broken = true;
    return false;
}
