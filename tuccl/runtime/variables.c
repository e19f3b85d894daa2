#include "variables.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

enum { VALUE_BYTES = 40 };

/* A text that may lack a terminator; without a start there is none. */
struct piece {
    const char *start;
    size_t bytes;
};

/* Beginnings of names on which no call depends, or that TuCCL sets: OF_NO_CALL in
 * tuccl/measuring/engines/nccl_variables.py. */
static const char *const of_no_call[] = {
    "NCCL_TUNER_PLUGIN", "NCCL_COMM_ID",  "NCCL_CONF_FILE", "NCCL_DEBUG",
    "NCCL_GRAPH_DUMP",   "NCCL_PROFILER", "NCCL_RAS_",      "NCCL_SET_THREAD_NAME",
    "NCCL_TOPO_DUMP",    "NCCL_VERSION",
};

static bool begins_with(struct piece text, const char *beginning) {
    size_t bytes = strlen(beginning);
    return text.bytes >= bytes && memcmp(text.start, beginning, bytes) == 0;
}

static bool equal(struct piece one, struct piece other) {
    return one.bytes == other.bytes && memcmp(one.start, other.start, one.bytes) == 0;
}

static struct piece name_of(const char *setting) {
    return (struct piece){setting, strcspn(setting, "=")};
}

/* Returns whether a variable that the table does not name is one of NCCL's, and no other table's.
 */
static bool counts(struct piece name) {
    if (!begins_with(name, "NCCL_"))
        return false;
    for (size_t i = 0; i < sizeof of_no_call / sizeof of_no_call[0]; i++)
        if (begins_with(name, of_no_call[i]))
            return false;
    const char *word = getenv("TUCCL_PROFILE");
    while (word != NULL && *word != '\0') {
        size_t bytes = strcspn(word, " ");
        if (equal((struct piece){word, bytes}, name))
            return false;
        word += bytes + (word[bytes] == ' ');
    }
    return true;
}

/* Returns the value in the table's profile, else among its variables. */
static struct piece of_table(const struct tuccl_bundle *bundle, struct piece name) {
    const struct tuccl_profile_record *lists[] = {bundle->profile, bundle->variables};
    uint32_t sizes[] = {bundle->profile_count, bundle->variable_count};
    for (int list = 0; list < 2; list++)
        for (uint32_t i = 0; i < sizes[list]; i++) {
            const struct tuccl_profile_record *pair = &lists[list][i];
            if (equal((struct piece){bundle->text + pair->name.offset, pair->name.bytes}, name))
                return (struct piece){bundle->text + pair->value.offset, pair->value.bytes};
        }
    return (struct piece){NULL, 0};
}

static struct piece of_process(struct piece name) {
    for (char **setting = environ; *setting != NULL; setting++)
        if (equal(name_of(*setting), name) && (*setting)[name.bytes] == '=' &&
            (*setting)[name.bytes + 1] != '\0')
            return (struct piece){*setting + name.bytes + 1, strlen(*setting + name.bytes + 1)};
    return (struct piece){NULL, 0};
}

static bool is_before(struct piece one, struct piece other) {
    size_t bytes = one.bytes < other.bytes ? one.bytes : other.bytes;
    int order = memcmp(one.start, other.start, bytes);
    return order != 0 ? order < 0 : one.bytes < other.bytes;
}

/* Makes `name` the next one after `last`, if it is. */
static void consider(struct piece name, struct piece last, struct piece *next) {
    if ((last.start == NULL || is_before(last, name)) &&
        (next->start == NULL || is_before(name, *next)))
        *next = name;
}

/* Returns the name after `last` in the alphabet, of the table or the process; none at the end. */
static struct piece name_after(const struct tuccl_bundle *bundle, struct piece last) {
    struct piece next = {NULL, 0};
    for (uint32_t i = 0; i < bundle->profile_count; i++) {
        struct tuccl_text_record name = bundle->profile[i].name;
        consider((struct piece){bundle->text + name.offset, name.bytes}, last, &next);
    }
    for (uint32_t i = 0; i < bundle->variable_count; i++) {
        struct tuccl_text_record name = bundle->variables[i].name;
        consider((struct piece){bundle->text + name.offset, name.bytes}, last, &next);
    }
    for (char **setting = environ; *setting != NULL; setting++)
        if (counts(name_of(*setting)))
            consider(name_of(*setting), last, &next);
    return next;
}

static int shown(struct piece value) {
    return value.bytes < VALUE_BYTES ? (int)value.bytes : VALUE_BYTES;
}

/* Returns the bytes of the text: the name, its value here and, in brackets, that of the table. */
static size_t describe(struct piece name, struct piece here, struct piece measured, char *text,
                       size_t text_bytes) {
    char own[VALUE_BYTES + 8] = " unset", other[VALUE_BYTES + 8] = "unset";
    if (here.start != NULL)
        snprintf(own, sizeof own, "=%.*s", shown(here), here.start);
    if (measured.start != NULL)
        snprintf(other, sizeof other, "%.*s", shown(measured), measured.start);
    return (size_t)snprintf(text, text_bytes, "%.*s%s (%s)", shown(name), name.start, own, other);
}

/* Returns whether the executor sets a variable on communicators by itself. */
static bool is_setting(const struct tuccl_bundle *bundle, struct piece name) {
    for (uint32_t i = 0; i < bundle->setting_count; i++) {
        struct tuccl_text_record own = bundle->settings[i].pair.name;
        if (equal((struct piece){bundle->text + own.offset, own.bytes}, name))
            return true;
    }
    return false;
}

static bool differ(struct piece here, struct piece measured) {
    if (here.start == NULL) /* An empty value counts as none. */
        return measured.bytes > 0;
    return measured.start == NULL || !equal(here, measured);
}

bool tuccl_variables_differ(const struct tuccl_bundle *bundle, bool has_executor, char *text,
                            size_t text_bytes) {
    static const char more[] = ", ...";
    size_t used = 0;
    text[0] = '\0';
    if (bundle->variables == NULL)
        return false;
    struct piece name = name_after(bundle, (struct piece){NULL, 0});
    for (; name.start != NULL; name = name_after(bundle, name)) {
        char own[3 * VALUE_BYTES + 32];
        struct piece here = of_process(name), measured = of_table(bundle, name);
        if (!differ(here, measured) ||
            (here.start == NULL && has_executor && is_setting(bundle, name)))
            continue;
        size_t bytes = describe(name, here, measured, own, sizeof own);
        bool fits = used + 2 + bytes + sizeof more <= text_bytes;
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s",
                                 fits && used > 0 ? ", " : "", fits ? own : more);
        if (!fits)
            break;
    }
    return used > 0;
}
