#include "base/status.h"

#include "base/message.h"

#include <stdarg.h>

#undef error_set /* what the analyzer is told in its place */

enum status error_set(struct error *error, enum status status, const char *format, ...) {
    if (error == NULL)
        return status;
    error->status = status;
    va_list arguments;
    va_start(arguments, format);
    /* clang-tidy 14 does not always see va_start. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    message_format(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}

const char *status_name(enum status status) {
    static const char *const names[] = {
        [STATUS_OK] = "ok",
        [STATUS_FAILED] = "failed",
        [STATUS_USAGE] = "usage",
        [STATUS_NO_PROCESS] = "no such process",
        [STATUS_PERMISSION] = "permission denied",
        [STATUS_NOT_PYTHON] = "not Python",
        [STATUS_DAMAGED] = "damaged",
        [STATUS_UNREADABLE] = "unreadable",
        [STATUS_TORN] = "inconsistent",
        [STATUS_LIMIT] = "limit reached",
        [STATUS_NOT_FOUND] = "not found",
        [STATUS_NO_FILES] = "too many open files ('ulimit -n' says how many may be)",
    };
    if ((size_t)status >= sizeof names / sizeof names[0])
        return "unknown";
    return names[status];
}
