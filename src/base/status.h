/* What every fallible function returns, and the detail that goes with it. */
#ifndef STROBE_BASE_STATUS_H
#define STROBE_BASE_STATUS_H

#include <stddef.h>

enum status {
    STATUS_OK = 0,
    STATUS_FAILED,     /* strobe itself could not do it (no memory, a system call failed) */
    STATUS_USAGE,      /* the user asked for something that does not exist */
    STATUS_NO_PROCESS, /* no such process, or it ended while it was being read */
    STATUS_PERMISSION, /* the kernel refused */
    STATUS_NOT_PYTHON, /* not a Python process, or a Python that strobe does not know */
    STATUS_DAMAGED,    /* a file is not what it says it is */
    STATUS_UNREADABLE, /* an address that is not mapped: a pointer read at a bad moment */
    STATUS_TORN,       /* bytes that contradict each other: the target changed meanwhile */
    STATUS_LIMIT,      /* more of something than strobe is willing to follow */
    STATUS_NOT_FOUND,  /* searched for, and not there */
    STATUS_NO_FILES,   /* strobe may not open any more files */
};

/* Marks a result that must not be dropped. */
#define MUST_USE __attribute__((warn_unused_result))

/* The first failure's words, for the user: one line, no newline. Zero-initialise it before use. */
struct error {
    enum status status;
    char text[512];
};

/* Writes `format` into `error` (which may be NULL) and returns `status`, so that a failing function can end with
 * `return error_set(...)`. A text that is longer than the buffer keeps its beginning and its
 * end (message.h). Not signal-safe. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* clang's analyzer sees one file at a time; this tells it that what follows a failure is not reached. */
#ifdef __clang_analyzer__
#define error_set(error, status, ...) ((void)error_set(error, status, __VA_ARGS__), (status))
#endif

/* A short name such as "unreadable", for counters and messages. Never NULL. */
const char *status_name(enum status status);

/* Returns from the calling function when `expression` is not STATUS_OK. The only macro that hides a return. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        enum status try_status_ = (expression);                                                                        \
        if (try_status_ != STATUS_OK)                                                                                  \
            return try_status_;                                                                                        \
    } while (0)

#endif
